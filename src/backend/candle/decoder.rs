//! The decoder of both families on candle's operations, in float32 around quantised products.
//!
//! Not a general model library: Qwen2 and Llama. Source: the papers' equations, checked against
//! the reference logits and against candle-transformers' own models.

use std::sync::Arc;

use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{Device, Module, Tensor};
use candle_nn::ops::{rms_norm, silu, softmax_last_dim};
use candle_nn::rotary_emb::rope;

use super::Products;
use super::source::Source;
use crate::backend::BackendError;
use crate::model::Model;
use crate::model::config::Config;

/// Keys and values of some positions, per layer, each `(1, kv_heads, positions, head_dim)`. Tensors are shared
/// handles and are replaced, never written.
#[derive(Clone, Debug, Default)]
pub(super) struct KvCache {
    layers: Vec<(Tensor, Tensor)>,
    positions: usize,
}

impl KvCache {
    /// The first `positions` positions of consecutive parts.
    pub(super) fn join<'a>(
        parts: impl Iterator<Item = &'a Self>,
        positions: usize,
    ) -> Result<Self, BackendError> {
        let parts: Vec<&Self> = parts.collect();
        let found: usize = parts.iter().map(|part| part.positions).sum();
        if found < positions {
            return Err(BackendError::Step {
                what: "start",
                expected: found,
                found: positions,
            });
        }
        let cat = |layer: usize, side: fn(&(Tensor, Tensor)) -> &Tensor| {
            let tensors: Vec<&Tensor> = parts.iter().map(|part| side(&part.layers[layer])).collect();
            Tensor::cat(&tensors, 2)?.narrow(2, 0, positions)
        };
        let layers = parts.first().map_or(0, |part| part.layers.len());
        let layers = (0..layers).map(|layer| Ok((cat(layer, |kv| &kv.0)?, cat(layer, |kv| &kv.1)?)));
        Ok(Self {
            layers: layers.collect::<Result<_, _>>().map_err(failed("join"))?,
            positions,
        })
    }

    /// A copy of the positions from `first` on.
    pub(super) fn from(&self, first: usize) -> Result<Self, BackendError> {
        let positions = self.positions - first;
        // A copy, since a view would keep all of the tensor alive.
        let cut = |tensor: &Tensor| tensor.narrow(2, first, positions)?.force_contiguous();
        let layers = self
            .layers
            .iter()
            .map(|(key, value)| Ok((cut(key)?, cut(value)?)));
        Ok(Self {
            layers: layers.collect::<Result<_, _>>().map_err(failed("cut"))?,
            positions,
        })
    }

    /// Positions held.
    pub(super) fn positions(&self) -> usize {
        self.positions
    }
}

/// A product with an optional bias: `(…, in)` to `(…, out)`.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) weight: QMatMul,
    pub(super) bias: Option<Tensor>,
}

impl Linear {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let y = self.weight.forward(x)?;
        match &self.bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }
}

#[derive(Debug)]
struct Layer {
    attention_norm: Tensor,
    query: Linear,
    key: Linear,
    /// Norms of the heads of query and key, for Qwen3.
    head_norms: Option<(Tensor, Tensor)>,
    value: Linear,
    attention_output: Linear,
    feed_forward_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// The weights and how to compute with them.
#[derive(Debug)]
pub(super) struct Decoder {
    config: Config,
    embedding: Arc<QTensor>,
    layers: Vec<Layer>,
    norm: Tensor,
    output: QMatMul,
    /// Rotary frequencies, `head_dim / 2`, in radians per position.
    frequencies: Vec<f32>,
}

impl Decoder {
    /// Reads all weights; shapes were checked when the model was opened.
    pub(super) fn load(model: &Model, products: Products) -> Result<Self, BackendError> {
        let config = model.config.clone();
        let source = Source { model, products };
        let layers = (0..config.layers)
            .map(|index| {
                let name = |suffix: &str| format!("blk.{index}.{suffix}");
                Ok(Layer {
                    attention_norm: source.vector(&name("attn_norm.weight"))?,
                    query: source.linear(&name("attn_q"))?,
                    key: source.linear(&name("attn_k"))?,
                    head_norms: match config.architecture.has_head_norms() {
                        true => Some((
                            source.vector(&name("attn_q_norm.weight"))?,
                            source.vector(&name("attn_k_norm.weight"))?,
                        )),
                        false => None,
                    },
                    value: source.linear(&name("attn_v"))?,
                    attention_output: source.linear(&name("attn_output"))?,
                    feed_forward_norm: source.vector(&name("ffn_norm.weight"))?,
                    gate: source.linear(&name("ffn_gate"))?,
                    up: source.linear(&name("ffn_up"))?,
                    down: source.linear(&name("ffn_down"))?,
                })
            })
            .collect::<Result<_, BackendError>>()?;
        let embedding = Arc::new(source.tensor("token_embd.weight")?);
        let output = match config.tied {
            true => embedding.clone(),
            false => Arc::new(source.tensor("output.weight")?),
        };
        let frequency = |(pair, factor): (usize, &f32)| {
            1.0 / config.rope_theta.powf(2.0 * pair as f32 / config.head_dim as f32) / factor
        };
        Ok(Self {
            frequencies: config.rope_factors.iter().enumerate().map(frequency).collect(),
            norm: source.vector("output_norm.weight")?,
            output: source.product(output)?,
            embedding,
            layers,
            config,
        })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Computes `tokens`, which follow the positions of `cache`, and extends it. Returns the logits `(wanted, vocab)`
    /// of the last `wanted` tokens. On an error `cache` must not be used any more.
    pub(super) fn forward(
        &self,
        tokens: &[u32],
        cache: &mut KvCache,
        wanted: usize,
    ) -> Result<Vec<f32>, BackendError> {
        self.compute(tokens, cache, wanted).map_err(failed("forward"))
    }

    fn compute(&self, tokens: &[u32], cache: &mut KvCache, wanted: usize) -> candle_core::Result<Vec<f32>> {
        let (count, start) = (tokens.len(), cache.positions);
        let eps = self.config.rms_eps;
        let (cos, sin) = self.rotation(start, count)?;
        let mask = mask(start, count)?;
        let ids = Tensor::from_slice(tokens, (1, count), &Device::Cpu)?;
        let mut x = self.embedding.embedding(&ids)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let held = cache.layers.get(index);
            let normed = rms_norm(&x, &layer.attention_norm, eps)?;
            let (attended, kept) = self.attend(layer, &normed, held, &cos, &sin, mask.as_ref())?;
            match cache.layers.get_mut(index) {
                Some(slot) => *slot = kept,
                None => cache.layers.push(kept),
            }
            x = (x + attended)?;
            let normed = rms_norm(&x, &layer.feed_forward_norm, eps)?;
            let gated = (silu(&layer.gate.forward(&normed)?)? * layer.up.forward(&normed)?)?;
            x = (x + layer.down.forward(&gated)?)?;
        }
        cache.positions += count;
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let x = rms_norm(
            &x.narrow(1, count - wanted, wanted)?.contiguous()?,
            &self.norm,
            eps,
        )?;
        self.output.forward(&x)?.flatten_all()?.to_vec1()
    }

    /// Attention of `x` `(1, count, hidden)` to the held positions and to itself; returns it with the layer's keys
    /// and values, the new ones included.
    fn attend(
        &self,
        layer: &Layer,
        x: &Tensor,
        held: Option<&(Tensor, Tensor)>,
        cos: &Tensor,
        sin: &Tensor,
        mask: Option<&Tensor>,
    ) -> candle_core::Result<(Tensor, (Tensor, Tensor))> {
        let (heads, kv_heads, dim) = (self.config.heads, self.config.kv_heads, self.config.head_dim);
        let count = x.dim(1)?;
        let split = |x: Tensor, heads| x.reshape((1, count, heads, dim))?.transpose(1, 2)?.contiguous();
        let mut query = split(layer.query.forward(x)?, heads)?;
        let mut key = split(layer.key.forward(x)?, kv_heads)?;
        if let Some((query_norm, key_norm)) = &layer.head_norms {
            query = rms_norm(&query, query_norm, self.config.rms_eps)?;
            key = rms_norm(&key, key_norm, self.config.rms_eps)?;
        }
        let (query, key) = (rope(&query, cos, sin)?, rope(&key, cos, sin)?);
        let value = split(layer.value.forward(x)?, kv_heads)?;
        let (key, value) = match held {
            Some((old_key, old_value)) => (
                Tensor::cat(&[old_key, &key], 2)?,
                Tensor::cat(&[old_value, &value], 2)?,
            ),
            None => (key, value),
        };
        // Query heads of a group lie one after the other, so a group is rows for its key head.
        let group = heads / kv_heads;
        let query = query.reshape((1, kv_heads, group * count, dim))?;
        let scores = (query.matmul(&key.t()?)? * (1.0 / (dim as f64).sqrt()))?;
        let scores = match mask {
            Some(mask) => {
                let positions = key.dim(2)?;
                let scores = scores.reshape((kv_heads, group, count, positions))?;
                scores
                    .broadcast_add(mask)?
                    .reshape((1, kv_heads, group * count, positions))?
            }
            None => scores,
        };
        let mixed = softmax_last_dim(&scores)?.matmul(&value)?;
        let mixed = mixed.reshape((1, heads, count, dim))?.transpose(1, 2)?;
        let mixed = mixed.reshape((1, count, heads * dim))?;
        Ok((layer.attention_output.forward(&mixed)?, (key, value)))
    }

    /// Cosines and sines of the rotary angles of `count` positions from `start`, each `(count, head_dim / 2)`.
    fn rotation(&self, start: usize, count: usize) -> candle_core::Result<(Tensor, Tensor)> {
        let positions = (start..start + count).map(|position| position as f32);
        let angles: Vec<f32> = positions
            .flat_map(|position| self.frequencies.iter().map(move |f| position * f))
            .collect();
        let angles = Tensor::from_vec(angles, (count, self.frequencies.len()), &Device::Cpu)?;
        Ok((angles.cos()?, angles.sin()?))
    }
}

/// What to add to the scores `(count, start + count)` so that no token sees a later one; none if there is only one.
fn mask(start: usize, count: usize) -> candle_core::Result<Option<Tensor>> {
    if count == 1 {
        return Ok(None);
    }
    let rows = (0..count).flat_map(|row| {
        (0..start + count).map(move |column| {
            if column <= start + row {
                0.0
            } else {
                f32::NEG_INFINITY
            }
        })
    });
    let mask = Tensor::from_vec(rows.collect::<Vec<f32>>(), (count, start + count), &Device::Cpu)?;
    Ok(Some(mask))
}

/// An adaptor for `map_err` that names the operation.
pub(super) fn failed(op: &'static str) -> impl Fn(candle_core::Error) -> BackendError {
    move |error| BackendError::Compute {
        op,
        reason: error.to_string(),
    }
}
