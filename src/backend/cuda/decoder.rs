//! The decoder of the Llama family on a device: the kernels in their order, one layer after the other.
//!
//! Not how an operation is computed: `kernels/` has a file for each. The residual stream is fp32, what goes into a linear
//! layer fp16, and every kernel gives a row the same bits whatever rows stand beside it.

use super::device::{Address, Argument, Device, Head, Kernel};
use super::linear::{Input, Linear};
use super::pass::{Pass, Shape};
use super::source::Source;
use super::workspace::{LOGIT_ROWS, Workspace};
use crate::backend::{BLOCK, BackendError, Step};
use crate::model::Network;
use crate::model::config::Config;

#[derive(Debug)]
struct Layer {
    attention_norm: Address,
    /// Query, key and value.
    projections: Linear,
    /// `(2, head_dim)` fp32: norms of the heads of query and key, for Qwen3.
    head_norms: Address,
    attention_output: Linear,
    feed_forward_norm: Address,
    /// Gate and up.
    gate_up: Linear,
    down: Linear,
}

/// The weights of a model on a device.
#[derive(Debug)]
pub(super) struct Decoder {
    config: Config,
    head: Head,
    embedding: Address,
    layers: Vec<Layer>,
    norm: Address,
    output: Linear,
}

/// Where keys and values lie: `(blocks, layers, kv_heads, 2, BLOCK * head_dim)` fp16.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub(super) at: Address,
    /// `(positions, head_dim)` fp32: cosines and sines.
    pub(super) angles: Address,
    /// A block that rows write to that nobody asked for.
    pub(super) spare: usize,
}

impl Decoder {
    /// Reads all weights and copies them to the device.
    pub(super) fn load(model: Network<'_>, device: &mut dyn Device) -> Result<Self, BackendError> {
        let config = model.config.clone();
        let mut source = Source { model, device };
        let head = source.head(&config)?;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            let name = |suffix: &str| format!("blk.{index}.{suffix}");
            layers.push(Layer {
                attention_norm: source.vectors(&[&name("attn_norm.weight")])?,
                projections: source.linear(&[&name("attn_q"), &name("attn_k"), &name("attn_v")])?,
                head_norms: match config.architecture.has_head_norms() {
                    true => source.vectors(&[&name("attn_q_norm.weight"), &name("attn_k_norm.weight")])?,
                    false => Address::NULL,
                },
                attention_output: source.linear(&[&name("attn_output")])?,
                feed_forward_norm: source.vectors(&[&name("ffn_norm.weight")])?,
                gate_up: source.linear(&[&name("ffn_gate"), &name("ffn_up")])?,
                down: source.linear(&[&name("ffn_down")])?,
            });
        }
        let norm = source.vectors(&["output_norm.weight"])?;
        let (embedding, output) = match config.tied {
            true => {
                let output = source.linear(&["token_embd"])?;
                let table = output.table();
                let table =
                    table.ok_or_else(|| source.refused("token_embd", &"a table of halves was expected"))?;
                (table, output)
            }
            false => (source.table("token_embd.weight")?, source.linear(&["output"])?),
        };
        Ok(Self {
            config,
            head,
            embedding,
            layers,
            norm,
            output,
        })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// What every pass computes with: the layers' matrices, and the output layer.
    pub(super) fn linears(&self) -> (Vec<&Linear>, &Linear) {
        fn layer(l: &Layer) -> [&Linear; 4] {
            [&l.projections, &l.attention_output, &l.gate_up, &l.down]
        }
        (self.layers.iter().flat_map(layer).collect(), &self.output)
    }

    /// Computes the steps of a batch, which were checked. `read` is called for some wanted positions at a time, in their
    /// order, with their number: their logits and the largest of them are then in the workspace.
    pub(super) fn forward(
        &self,
        device: &mut dyn Device,
        cache: Cache,
        space: &mut Workspace,
        batch: &[Step<'_>],
        mut read: impl FnMut(&mut dyn Device, &Workspace, usize) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let group = self.config.heads / self.config.kv_heads;
        for mut pass in Pass::cut(batch, group) {
            let wanted = pass.shape().picks;
            if let Some(shape) = pass.pad(cache.spare) {
                space.write(device, &pass)?;
                self.replayed(device, cache, space, shape)?;
                read(device, space, wanted)?;
                continue;
            }
            space.write(device, &pass)?;
            self.compute(device, cache, space, pass.shape())?;
            for first in (0..wanted).step_by(LOGIT_ROWS) {
                let rows = LOGIT_ROWS.min(wanted - first);
                self.project(device, space, first, rows)?;
                read(device, space, rows)?;
            }
        }
        Ok(())
    }

    /// A pass of a shape that comes again: its launches are recorded the first time.
    fn replayed(
        &self,
        device: &mut dyn Device,
        cache: Cache,
        space: &Workspace,
        shape: Shape,
    ) -> Result<(), BackendError> {
        if device.replay(shape.key())? {
            return Ok(());
        }
        device.record()?;
        let recorded = self
            .compute(device, cache, space, shape)
            .and_then(|()| self.project(device, space, 0, shape.picks));
        device.keep(shape.key())?;
        recorded?;
        device.replay(shape.key()).map(|_| ())
    }

    /// All layers, up to the change that the last one makes to the residual stream.
    fn compute(
        &self,
        device: &mut dyn Device,
        cache: Cache,
        s: &Workspace,
        shape: Shape,
    ) -> Result<(), BackendError> {
        let (config, rows) = (&self.config, shape.rows);
        let plain = |x| Input {
            x,
            factors: Address::NULL,
            rows,
        };
        let arguments: [Argument; 4] = [
            self.embedding.into(),
            s.tokens.into(),
            s.residual.into(),
            config.hidden.into(),
        ];
        device.launch(Kernel::Embed, [rows, 1, 1], &arguments)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let change = if index == 0 { Address::NULL } else { s.change };
            self.norm(device, s, (change, Address::NULL), layer.attention_norm, rows)?;
            layer.projections.forward(device, plain(s.normed), s.projected)?;
            let part = config.kv_heads * 2 * BLOCK * config.head_dim;
            let cache = Cache {
                at: cache.at.of::<u16>(index * part),
                ..cache
            };
            self.place(device, cache, s, layer, rows)?;
            self.attend(device, cache.at, s, shape)?;
            layer
                .attention_output
                .forward(device, plain(s.attended), s.change)?;
            self.norm(
                device,
                s,
                (s.change, Address::NULL),
                layer.feed_forward_norm,
                rows,
            )?;
            layer.gate_up.forward(device, plain(s.normed), s.gate_up)?;
            let arguments = [
                s.gate_up.into(),
                s.activated.into(),
                s.factors.into(),
                config.feed_forward.into(),
            ];
            device.launch(Kernel::Silu, [rows, 1, 1], &arguments)?;
            let activated = Input {
                x: s.activated,
                factors: s.factors,
                rows,
            };
            layer.down.forward(device, activated, s.change)?;
        }
        Ok(())
    }

    /// The norm of `rows` rows, after a change of the residual stream; of those that `picks` names, if it is there.
    fn norm(
        &self,
        device: &mut dyn Device,
        s: &Workspace,
        (change, picks): (Address, Address),
        weight: Address,
        rows: usize,
    ) -> Result<(), BackendError> {
        let arguments = [
            s.residual.into(),
            change.into(),
            picks.into(),
            weight.into(),
            s.normed.into(),
            self.config.hidden.into(),
            self.config.rms_eps.into(),
        ];
        device.launch(Kernel::RmsNorm, [rows, 1, 1], &arguments)
    }

    /// Turns queries and keys, and writes keys and values to a layer's part of the cache.
    fn place(
        &self,
        device: &mut dyn Device,
        cache: Cache,
        s: &Workspace,
        layer: &Layer,
        rows: usize,
    ) -> Result<(), BackendError> {
        let config = &self.config;
        let arguments = [
            s.projected.into(),
            cache.angles.into(),
            s.places.into(),
            layer.head_norms.into(),
            s.queries.into(),
            cache.at.into(),
            config.heads.into(),
            config.kv_heads.into(),
            config.head_dim.into(),
            self.stride().into(),
            config.rms_eps.into(),
        ];
        device.launch(
            Kernel::Rope,
            [rows, config.heads + 2 * config.kv_heads, 1],
            &arguments,
        )
    }

    /// Numbers from a block of the cache to the next.
    fn stride(&self) -> usize {
        self.config.numbers_per_position() * BLOCK
    }

    /// Attention with a layer's part of the cache. Where the tiles are too few for the device, the parts of the positions
    /// are computed beside each other; the bits are the same.
    fn attend(
        &self,
        device: &mut dyn Device,
        cache: Address,
        s: &Workspace,
        shape: Shape,
    ) -> Result<(), BackendError> {
        let config = &self.config;
        let Shape {
            rows, tiles, parts, ..
        } = shape;
        let wide = tiles * config.kv_heads >= 4 * device.multiprocessors();
        let numbers = rows * config.heads * parts * (config.head_dim + 2);
        let whole = wide || numbers > s.partial_numbers;
        let to = if whole { s.attended } else { s.partial };
        let mut arguments: Vec<Argument> = vec![
            s.queries.into(),
            cache.into(),
            s.tiles.into(),
            s.tables.into(),
            to.into(),
            config.heads.into(),
            config.kv_heads.into(),
            self.stride().into(),
            (1.0 / (config.head_dim as f32).sqrt()).into(),
        ];
        if whole {
            let grid = [tiles, config.kv_heads, 1];
            return device.launch(Kernel::AttentionWhole(self.head), grid, &arguments);
        }
        arguments.push(parts.into());
        let grid = [tiles, config.kv_heads, parts];
        device.launch(Kernel::AttentionSplit(self.head), grid, &arguments)?;
        let arguments = [
            s.partial.into(),
            s.places.into(),
            s.attended.into(),
            config.heads.into(),
            parts.into(),
        ];
        device.launch(
            Kernel::AttentionFold(self.head),
            [rows, config.heads, 1],
            &arguments,
        )
    }

    /// Logits of `rows` of the picked rows from `first` on, and the largest of each, to the workspace.
    fn project(
        &self,
        device: &mut dyn Device,
        s: &Workspace,
        first: usize,
        rows: usize,
    ) -> Result<(), BackendError> {
        let picks = s.picks.of::<i32>(first);
        self.norm(device, s, (s.change, picks), self.norm, rows)?;
        let input = Input {
            x: s.normed,
            factors: Address::NULL,
            rows,
        };
        self.output.forward(device, input, s.logits)?;
        let arguments = [s.logits.into(), s.largest.into(), self.config.vocab.into()];
        device.launch(Kernel::Argmax, [rows, 1, 1], &arguments)
    }
}
