//! The decoder of the Llama family, which Qwen2 belongs to: tokens to logits, all rows of a batch at once.
//!
//! Not how an operation is computed: each has its own file. Rows never see each other but through the KV cache, and
//! every sum runs in an order that depends on the row alone, so a row's bits do not depend on the batch.

use super::attention::{Heads, Span, attend};
use super::kv::KvCache;
use super::linear::{Context, Input, Linear, forward, prepare};
use super::norm::rms_norm;
use super::pool::{Parts, Pool};
use super::quantize::Quantized;
use super::residual::Sum;
use super::rope::{Rope, rotate};
use super::silu::silu_mul;
use super::source::Source;
use crate::backend::{BLOCK, BackendError, Step};
use crate::model::Model;
use crate::model::config::Config;

#[derive(Debug)]
struct Layer {
    attention_norm: Vec<f32>,
    query: Linear,
    key: Linear,
    /// Norms `(head_dim,)` of the heads of query and key, for Qwen3.
    head_norms: Option<[Vec<f32>; 2]>,
    value: Linear,
    attention_output: Linear,
    feed_forward_norm: Vec<f32>,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// The weights of a model, packed.
#[derive(Debug)]
pub(super) struct Decoder {
    config: Config,
    embedding: Linear,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// None where the embedding table serves.
    output: Option<Linear>,
    rope: Rope,
    scratch: Scratch,
}

/// Inputs of layers that a [`Watch`] is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// Of query, key and value: `(rows, hidden)`.
    Attention,
    /// Of the layer that takes what attention gives: `(rows, heads * head_dim)`.
    AttentionOutput,
    /// Of gate and up: `(rows, hidden)`.
    FeedForward,
    /// Of down: `(rows, feed_forward)`.
    Down,
}

/// Is shown a layer's number, the site, and the numbers there.
pub type Watch<'a> = &'a mut dyn FnMut(usize, Site, &[f32]);

/// Activations, kept from call to call: `(rows, width)` each.
#[derive(Debug, Default)]
struct Scratch {
    residual: Vec<f32>,
    normed: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    /// What a block of the decoder adds to the residual.
    change: Vec<f32>,
    quantized: Quantized,
}

impl Decoder {
    /// Reads and packs all weights.
    pub(super) fn load(model: &Model, pool: &Pool) -> Result<Self, BackendError> {
        let source = Source { model, pool };
        let config = model.config.clone();
        let layers = (0..config.layers).map(|index| {
            let name = |suffix: &str| format!("blk.{index}.{suffix}");
            Ok(Layer {
                attention_norm: source.vector(&name("attn_norm.weight"))?,
                query: source.linear(&name("attn_q"))?,
                key: source.linear(&name("attn_k"))?,
                head_norms: match config.architecture.has_head_norms() {
                    true => Some([
                        source.vector(&name("attn_q_norm.weight"))?,
                        source.vector(&name("attn_k_norm.weight"))?,
                    ]),
                    false => None,
                },
                value: source.linear(&name("attn_v"))?,
                attention_output: source.linear(&name("attn_output"))?,
                feed_forward_norm: source.vector(&name("ffn_norm.weight"))?,
                gate: source.linear(&name("ffn_gate"))?,
                up: source.linear(&name("ffn_up"))?,
                down: source.linear(&name("ffn_down"))?,
            })
        });
        Ok(Self {
            layers: layers.collect::<Result<_, BackendError>>()?,
            embedding: source.linear("token_embd")?,
            norm: source.vector("output_norm.weight")?,
            output: match config.tied {
                true => None,
                false => Some(source.linear("output")?),
            },
            rope: Rope::default(),
            scratch: Scratch::default(),
            config,
        })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// What every pass computes with: the layers' matrices, and the output layer.
    pub(super) fn linears(&self) -> (Vec<&Linear>, &Linear) {
        fn layer(l: &Layer) -> [&Linear; 7] {
            [
                &l.query,
                &l.key,
                &l.value,
                &l.attention_output,
                &l.gate,
                &l.up,
                &l.down,
            ]
        }
        let layers = self.layers.iter().flat_map(layer).collect();
        (layers, self.output.as_ref().unwrap_or(&self.embedding))
    }

    /// Bytes of the weights in memory.
    pub(super) fn bytes(&self) -> usize {
        let (layers, output) = self.linears();
        let embedding = self.output.as_ref().map_or(0, |_| self.embedding.bytes());
        layers.iter().map(|linear| linear.bytes()).sum::<usize>() + output.bytes() + embedding
    }

    /// Computes the steps of a batch, which were checked; see [`crate::backend::Backend::forward`]. `watch` is shown the
    /// inputs of the layers.
    pub(super) fn forward(
        &mut self,
        context: Context<'_>,
        cache: &mut KvCache,
        batch: &[Step<'_>],
        mut watch: Option<Watch<'_>>,
    ) -> Vec<Vec<f32>> {
        let mut show = |layer, site, input: &Input<'_>| {
            if let Some(watch) = &mut watch {
                watch(layer, site, input.floats);
            }
        };
        let Self {
            config,
            embedding,
            layers,
            norm,
            output,
            rope,
            scratch: s,
        } = self;
        let (hidden, eps) = (config.hidden, config.rms_eps);
        let heads = Heads {
            query: config.heads,
            kv: config.kv_heads,
            dim: config.head_dim,
        };
        let (spans, positions) = layout(batch);
        let rows = positions.len();
        let ends = batch.iter().map(|step| step.start + step.tokens.len());
        rope.extend(config, ends.max().unwrap_or(0));
        s.resize(config, rows);
        let tokens = batch.iter().flat_map(|step| step.tokens);
        for (token, row) in tokens.zip(s.residual.chunks_exact_mut(hidden)) {
            embedding.row(*token as usize, row);
        }
        for (index, layer) in layers.iter().enumerate() {
            let change = (index > 0).then_some(s.change.as_slice());
            let next = Sum {
                residual: &mut s.residual,
                change,
                norm: &layer.attention_norm,
                eps,
            };
            let input = next.normed(context, &mut s.normed, &mut s.quantized);
            show(index, Site::Attention, &input);
            forward(
                context,
                &input,
                &mut [
                    (&layer.query, &mut s.query),
                    (&layer.key, &mut s.key),
                    (&layer.value, &mut s.value),
                ],
            );
            let placing = Placing {
                heads,
                rope,
                norms: layer.head_norms.as_ref(),
                eps,
            };
            placing.place(context, &positions, s, (cache, index));
            attend(
                context.isa,
                context.pool,
                heads,
                &s.query,
                (cache, index),
                &spans,
                &mut s.attended,
            );
            let width = heads.query * heads.dim;
            let input = prepare(context, &mut s.attended, width, &mut s.quantized, |_, _| ());
            show(index, Site::AttentionOutput, &input);
            forward(context, &input, &mut [(&layer.attention_output, &mut s.change)]);

            let next = Sum {
                residual: &mut s.residual,
                change: Some(&s.change),
                norm: &layer.feed_forward_norm,
                eps,
            };
            let input = next.normed(context, &mut s.normed, &mut s.quantized);
            show(index, Site::FeedForward, &input);
            forward(
                context,
                &input,
                &mut [(&layer.gate, &mut s.gate), (&layer.up, &mut s.up)],
            );
            let (up, width) = (&s.up, config.feed_forward);
            let input = prepare(context, &mut s.gate, width, &mut s.quantized, |row, gate| {
                silu_mul(context.isa, gate, &up[row * width..][..width]);
            });
            show(index, Site::Down, &input);
            forward(context, &input, &mut [(&layer.down, &mut s.change)]);
        }
        // Only the rows whose logits are wanted go through the output layer, the largest of all.
        let (mut last, mut change) = (Vec::new(), Vec::new());
        for (step, span) in batch.iter().zip(&spans) {
            let end = (span.row + span.count) * hidden;
            let wanted = end - step.logits * hidden..end;
            last.extend_from_slice(&s.residual[wanted.clone()]);
            change.extend_from_slice(&s.change[wanted]);
        }
        let next = Sum {
            residual: &mut last,
            change: Some(&change),
            norm,
            eps,
        };
        s.normed.resize(change.len(), 0.0);
        let mut logits = vec![0.0; change.len() / hidden * config.vocab];
        let input = next.normed(context, &mut s.normed, &mut s.quantized);
        let output = output.as_ref().unwrap_or(embedding);
        forward(context, &input, &mut [(output, &mut logits)]);
        let mut rest = logits.as_slice();
        let mut split = |step: &Step<'_>| {
            let (mine, others) = rest.split_at(step.logits * config.vocab);
            rest = others;
            mine.to_vec()
        };
        batch.iter().map(&mut split).collect()
    }
}

/// Where the steps' rows lie in the batch, and for each row its position and the block that holds it.
fn layout<'a>(batch: &[Step<'a>]) -> (Vec<Span<'a>>, Vec<(usize, crate::backend::BlockId)>) {
    let (mut spans, mut positions) = (Vec::new(), Vec::new());
    for step in batch {
        spans.push(Span {
            row: positions.len(),
            count: step.tokens.len(),
            start: step.start,
            blocks: step.blocks,
        });
        let new = step.start..step.start + step.tokens.len();
        positions.extend(new.map(|position| (position, step.blocks[position / BLOCK])));
    }
    (spans, positions)
}

/// How queries and keys become what attention takes.
struct Placing<'a> {
    heads: Heads,
    rope: &'a Rope,
    /// Norms of the heads of query and key.
    norms: Option<&'a [Vec<f32>; 2]>,
    eps: f32,
}

impl Placing<'_> {
    /// Turns queries and keys to their positions, scales the queries, and stores keys and values.
    fn place(
        &self,
        context: Context<'_>,
        positions: &[(usize, crate::backend::BlockId)],
        s: &mut Scratch,
        (cache, layer): (&mut KvCache, usize),
    ) {
        let dim = self.heads.dim;
        let scale = 1.0 / (dim as f32).sqrt();
        let (wide, narrow) = (self.heads.query * dim, self.heads.kv * dim);
        let (queries, keys) = (Parts::of(&mut s.query), Parts::of(&mut s.key));
        let places = cache.places();
        context.pool.each(positions.len(), |row| {
            let (position, block) = positions[row];
            let (cos, sin) = self.rope.at(position);
            // SAFETY: each row, and each position, belongs to one task.
            let query = unsafe { queries.part(row * wide, wide) };
            // SAFETY: as above.
            let key = unsafe { keys.part(row * narrow, narrow) };
            if let Some([query_norm, key_norm]) = self.norms {
                let mut normed = vec![0.0; wide.max(narrow)];
                for (x, norm) in [(&mut *query, query_norm), (&mut *key, key_norm)] {
                    let normed = &mut normed[..x.len()];
                    rms_norm(context.isa, x, norm, self.eps, normed);
                    x.copy_from_slice(normed);
                }
            }
            rotate(context.isa, query, cos, sin, scale);
            rotate(context.isa, key, cos, sin, 1.0);
            let value = &s.value[row * narrow..][..narrow];
            // SAFETY: as above.
            unsafe { places.write(block, layer, position % BLOCK, key, value) };
        });
    }
}

impl Scratch {
    fn resize(&mut self, config: &Config, rows: usize) {
        let (wide, narrow) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        for (buffer, width) in [
            (&mut self.residual, config.hidden),
            (&mut self.normed, config.hidden),
            (&mut self.query, wide),
            (&mut self.key, narrow),
            (&mut self.value, narrow),
            (&mut self.attended, wide),
            (&mut self.gate, config.feed_forward),
            (&mut self.up, config.feed_forward),
            (&mut self.change, config.hidden),
        ] {
            buffer.resize(rows * width, 0.0);
        }
    }
}
