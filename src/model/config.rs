//! The numbers that define a model's computation, and the shapes that its weights must have.
//!
//! Not the weights: a backend reads those by the names given here.

use super::ModelError;
use super::gguf::{BlockType, Gguf};

/// The tensor that holds the divisors of the rotary frequencies in a GGUF file.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Most numbers of each kind that a file may claim. The largest published models stay well under these.
pub(super) const MAX_HIDDEN: usize = 1 << 16;
pub(super) const MAX_HEADS: usize = 1 << 10;
pub(super) const MAX_HEAD: usize = 1 << 10;
pub(super) const MAX_LAYERS: usize = 1 << 10;
pub(super) const MAX_FEED_FORWARD: usize = 1 << 20;
pub(super) const MAX_CONTEXT: usize = 1 << 24;
pub(super) const MAX_VOCAB: usize = 1 << 22;

/// The families that backends compute. Mistral is Llama under another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Qwen2: biases on q, k and v.
    Qwen2,
    /// Qwen3: the heads of q and k go through RMSNorm.
    Qwen3,
    /// Llama: neither.
    Llama,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Qwen2, Self::Qwen3, Self::Llama];

    /// The name in `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
        }
    }

    /// Whether q, k and v have biases.
    pub fn has_biases(self) -> bool {
        self == Self::Qwen2
    }

    /// Whether each head of q and k is normalised before it is turned.
    pub fn has_head_norms(self) -> bool {
        self == Self::Qwen3
    }
}

/// What a decoder must know besides the weights. All sizes are in numbers, not bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The family.
    pub architecture: Architecture,
    /// Rows of the embedding table, hence logits per position; the tokenizer may have fewer tokens.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// Most positions of a sequence.
    pub context: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Added to the mean square in RMSNorm.
    pub rms_eps: f32,
    /// Whether the output projection is the embedding table.
    pub tied: bool,
    /// Divisors of the rotary frequencies, `head_dim / 2` of them; all 1 but for Llama 3. Rotary pairs are the
    /// dimensions `(i, i + head_dim / 2)` of a head.
    pub rope_factors: Vec<f32>,
}

impl Config {
    /// Reads the configuration and checks the shape of every tensor that it implies.
    ///
    /// # Errors
    /// Another architecture, a missing or absurd number, a missing tensor or one of another shape.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let unsupported = |place: &str, expected: &str, found: String| ModelError::Unsupported {
            file: gguf.path().into(),
            place: place.into(),
            expected: expected.into(),
            found,
        };
        let name = gguf.required("general.architecture", gguf.text("general.architecture")?)?;
        let known = Architecture::ALL;
        let architecture = known.into_iter().find(|known| known.name() == name);
        let architecture = architecture.ok_or_else(|| {
            let names = known.map(Architecture::name).join(", ");
            unsupported("general.architecture", &names, format!("{name:?}"))
        })?;
        let key = |suffix: &str| format!("{name}.{suffix}");
        let bounded = |suffix: &str, limit: usize| -> Result<usize, ModelError> {
            let key = key(suffix);
            match gguf.required(&key, gguf.count(&key)?)? {
                n if (1..=limit).contains(&n) => Ok(n),
                n => Err(unsupported(&key, &format!("1 to {limit}"), n.to_string())),
            }
        };
        let hidden = bounded("embedding_length", MAX_HIDDEN)?;
        let heads = bounded("attention.head_count", MAX_HEADS)?;
        let kv_heads = match gguf.count(&key("attention.head_count_kv"))? {
            None => heads,
            Some(n) if n > 0 && heads % n == 0 => n,
            Some(n) => {
                let expected = format!("a divisor of the {heads} heads");
                return Err(unsupported(
                    &key("attention.head_count_kv"),
                    &expected,
                    n.to_string(),
                ));
            }
        };
        let head_dim = match gguf.count(&key("attention.key_length"))? {
            Some(n) => n,
            None if hidden % heads == 0 => hidden / heads,
            None => {
                let expected = format!("a divisor of the width {hidden}");
                return Err(unsupported(
                    &key("attention.head_count"),
                    &expected,
                    heads.to_string(),
                ));
            }
        };
        if !(2..=MAX_HEAD).contains(&head_dim) || head_dim % 2 != 0 {
            return Err(unsupported(
                "width of a head",
                "an even number up to 1024",
                head_dim.to_string(),
            ));
        }
        for suffix in ["rope.dimension_count", "attention.value_length"] {
            if let Some(n) = gguf.count(&key(suffix))?.filter(|&n| n != head_dim) {
                let expected = format!("{head_dim}, the width of a head");
                return Err(unsupported(&key(suffix), &expected, n.to_string()));
            }
        }
        if let Some(kind) = gguf
            .text(&key("rope.scaling.type"))?
            .filter(|&kind| kind != "none")
        {
            let expected = "no scaling of positions";
            return Err(unsupported(
                &key("rope.scaling.type"),
                expected,
                format!("{kind:?}"),
            ));
        }
        if let Some(n) = gguf.count(&key("expert_count"))?.filter(|&n| n != 0) {
            return Err(unsupported(&key("expert_count"), "dense models", n.to_string()));
        }
        let positive = |suffix: &str, default: Option<f64>| -> Result<f32, ModelError> {
            let key = key(suffix);
            let number = gguf.required(&key, gguf.number(&key)?.or(default))?;
            match number as f32 {
                x if x > 0.0 && x.is_finite() => Ok(x),
                _ => Err(unsupported(&key, "a positive number", number.to_string())),
            }
        };
        let tokens = gguf.required("tokenizer.ggml.tokens", gguf.list("tokenizer.ggml.tokens")?)?;
        let config = Self {
            architecture,
            vocab: tokens.len(),
            hidden,
            layers: bounded("block_count", MAX_LAYERS)?,
            heads,
            kv_heads,
            head_dim,
            feed_forward: bounded("feed_forward_length", MAX_FEED_FORWARD)?,
            context: bounded("context_length", MAX_CONTEXT)?,
            rope_theta: positive("rope.freq_base", Some(10_000.0))?,
            rms_eps: positive("attention.layer_norm_rms_epsilon", None)?,
            tied: !gguf.tensors().contains_key("output.weight"),
            rope_factors: vec![1.0; head_dim / 2],
        };
        let factors = gguf.tensors().contains_key(ROPE_FACTORS);
        let mut shapes = config.shapes();
        shapes.extend(factors.then(|| (ROPE_FACTORS.to_owned(), vec![head_dim / 2])));
        for (name, shape) in shapes {
            let found = gguf.tensors().get(&name).map(|entry| &entry.shape);
            if found != Some(&shape) {
                return Err(ModelError::Malformed {
                    file: gguf.path().into(),
                    place: format!("tensor {name}"),
                    expected: format!("shape {shape:?}"),
                    found: found.map_or("no such tensor".into(), |shape| format!("shape {shape:?}")),
                });
            }
        }
        match factors {
            true => config.with_factors(gguf),
            false => Ok(config),
        }
    }

    /// Reads the divisors of the rotary frequencies, whose shape was checked.
    fn with_factors(mut self, gguf: &Gguf) -> Result<Self, ModelError> {
        let block = gguf.tensors().get(ROPE_FACTORS).map(|entry| entry.block);
        let bytes = gguf.read(ROPE_FACTORS)?;
        let numbers = bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        self.rope_factors = numbers.collect();
        let good = |x: &f32| x.is_finite() && *x > 0.0;
        if block != Some(BlockType::F32) || !self.rope_factors.iter().all(good) {
            return Err(ModelError::Unsupported {
                file: gguf.path().into(),
                place: format!("tensor {ROPE_FACTORS}"),
                expected: "positive numbers, stored as F32".into(),
                found: "others".into(),
            });
        }
        Ok(self)
    }

    /// Cosines and sines of the rotary angles of the positions under `positions`: per position `head_dim / 2` of each.
    /// The angle is a float32 as the reference has it; its cosine goes by way of float64, so that the last bit does not
    /// depend on whose mathematics library is linked.
    pub fn rope_angles(&self, positions: std::ops::Range<usize>) -> Vec<f32> {
        let dim = self.head_dim as f64;
        let frequency = |(pair, factor): (usize, &f32)| {
            let plain = f64::from(self.rope_theta).powf(-2.0 * pair as f64 / dim);
            (plain / f64::from(*factor)) as f32
        };
        let frequencies: Vec<f32> = self.rope_factors.iter().enumerate().map(frequency).collect();
        let mut table = Vec::with_capacity(positions.len() * self.head_dim);
        for position in positions {
            let angle = |f: &f32| f64::from(position as f32 * f);
            table.extend(frequencies.iter().map(|f| angle(f).cos() as f32));
            table.extend(frequencies.iter().map(|f| angle(f).sin() as f32));
        }
        table
    }

    /// Numbers of keys and values, over all layers, per position.
    pub fn numbers_per_position(&self) -> usize {
        2 * self.layers * self.kv_heads * self.head_dim
    }

    /// Every tensor that the computation reads, with its shape, slowest dimension first.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, query, kv) = (
            self.hidden,
            self.heads * self.head_dim,
            self.kv_heads * self.head_dim,
        );
        let mut shapes = vec![
            ("token_embd.weight".to_owned(), vec![self.vocab, hidden]),
            ("output_norm.weight".to_owned(), vec![hidden]),
        ];
        if !self.tied {
            shapes.push(("output.weight".to_owned(), vec![self.vocab, hidden]));
        }
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: Vec<usize>| shapes.push((format!("blk.{layer}.{name}"), shape));
            add("attn_norm.weight", vec![hidden]);
            add("attn_q.weight", vec![query, hidden]);
            add("attn_k.weight", vec![kv, hidden]);
            add("attn_v.weight", vec![kv, hidden]);
            if self.architecture.has_biases() {
                add("attn_q.bias", vec![query]);
                add("attn_k.bias", vec![kv]);
                add("attn_v.bias", vec![kv]);
            }
            if self.architecture.has_head_norms() {
                add("attn_q_norm.weight", vec![self.head_dim]);
                add("attn_k_norm.weight", vec![self.head_dim]);
            }
            add("attn_output.weight", vec![hidden, query]);
            add("ffn_norm.weight", vec![hidden]);
            add("ffn_gate.weight", vec![self.feed_forward, hidden]);
            add("ffn_up.weight", vec![self.feed_forward, hidden]);
            add("ffn_down.weight", vec![hidden, self.feed_forward]);
        }
        shapes
    }
}
