//! Single operations on made-up numbers, for `benches/` and tests.
//!
//! Not used by the program: a bench times what the decoder calls, on the shapes of a model, without the model.

use half::f16;

use super::attention::{Heads, Span, attend};
use super::isa::Isa;
use super::kv::KvCache;
use super::linear::{Arithmetic, Context, Linear, forward, prepare};
use super::pool::Pool;
use super::quantize::Quantized;
use crate::backend::{BLOCK, BackendError, BlockId};
use crate::model::weights::{BlockType, Stored};
use crate::rng;

/// A weight `(rows, cols)` of random bytes whose scales are small and finite.
pub(super) fn weight(block: BlockType, rows: usize, cols: usize, seed: u64) -> Stored {
    let count = rows * cols / block.numbers();
    let mut bytes: Vec<u8> = (0..count * block.bytes())
        .map(|i| rng::value(seed, 1, i as u64) as u8)
        .collect();
    let halves: &[usize] = match block {
        BlockType::Q6K => &[208],
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K => &[0, 2],
        BlockType::F16 => &[0],
        _ => &[0][..usize::from(!matches!(block, BlockType::F32 | BlockType::Bf16))],
    };
    for (index, one) in bytes.chunks_exact_mut(block.bytes()).enumerate() {
        for &at in halves {
            let x = rng::unit(seed, 2 + at as u64, index as u64) * 0.02 - 0.01;
            one[at..at + 2].copy_from_slice(&f16::from_f64(x).to_le_bytes());
        }
        if matches!(block, BlockType::F32 | BlockType::Bf16) {
            // An exponent that is neither huge nor special.
            let top = block.bytes() - 1;
            one[top] = one[top] & 0x80 | 0x3d;
        }
    }
    Stored::Blocks {
        block,
        rows,
        cols,
        bytes,
    }
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    (0..count)
        .map(|i| (rng::unit(seed, 9, i as u64) * 4.0 - 2.0) as f32)
        .collect()
}

/// A linear layer and rows for it.
#[derive(Debug)]
pub struct LinearCase {
    pool: Pool,
    isa: Isa,
    layer: Linear,
    x: Vec<f32>,
    columns: usize,
    quantized: Quantized,
    out: Vec<f32>,
}

impl LinearCase {
    /// `rows` rows of `inputs` numbers through a weight `(outputs, inputs)`; `threads` as for the backend.
    ///
    /// # Errors
    /// The backend does not compute with the format, or there are no threads or no memory.
    pub fn new(
        block: BlockType,
        (rows, outputs, inputs): (usize, usize, usize),
        threads: usize,
        isa: Isa,
    ) -> Result<Self, BackendError> {
        let pool = Pool::new(threads)?;
        let stored = weight(block, outputs, inputs, 1);
        let layer = Linear::new(&stored, None, &pool).map_err(|reason| BackendError::Compute {
            op: "packing",
            reason,
        })?;
        Ok(Self {
            pool,
            isa,
            layer,
            x: numbers(rows * inputs, 2),
            columns: inputs,
            quantized: Quantized::default(),
            out: vec![0.0; rows * outputs],
        })
    }

    /// Computes once, rounding of the rows included; the first result.
    pub fn run(&mut self) -> f32 {
        let context = Context {
            isa: self.isa,
            arithmetic: Arithmetic::Fast,
            pool: &self.pool,
        };
        let input = prepare(context, &mut self.x, self.columns, &mut self.quantized, |_, _| ());
        forward(context, &input, &mut [(&self.layer, &mut self.out)]);
        self.out[0]
    }
}

/// Attention of new positions at the end of a sequence.
#[derive(Debug)]
pub struct AttentionCase {
    pool: Pool,
    isa: Isa,
    heads: Heads,
    cache: KvCache,
    blocks: Vec<BlockId>,
    start: usize,
    queries: Vec<f32>,
    out: Vec<f32>,
}

impl AttentionCase {
    /// `new` positions behind `start` others, with `(query heads, KV heads, width of a head)`.
    ///
    /// # Errors
    /// There are no threads or no memory.
    pub fn new(
        (new, start): (usize, usize),
        (query, kv, dim): (usize, usize, usize),
        threads: usize,
        isa: Isa,
    ) -> Result<Self, BackendError> {
        let count = (start + new).div_ceil(BLOCK);
        let mut cache = KvCache::sized(1, kv, dim, count)?;
        for position in 0..start + new {
            let at = |seed| numbers(kv * dim, seed + 2 * position as u64);
            let block = BlockId((position / BLOCK) as u32);
            cache.write(block, 0, position % BLOCK, &at(100), &at(101));
        }
        Ok(Self {
            pool: Pool::new(threads)?,
            isa,
            heads: Heads { query, kv, dim },
            cache,
            blocks: (0..count as u32).map(BlockId).collect(),
            start,
            queries: numbers(new * query * dim, 3),
            out: vec![0.0; new * query * dim],
        })
    }

    /// Computes once; the first result.
    pub fn run(&mut self) -> f32 {
        let span = Span {
            row: 0,
            count: self.out.len() / (self.heads.query * self.heads.dim),
            start: self.start,
            blocks: &self.blocks,
        };
        let cache = (&self.cache, 0);
        attend(
            self.isa,
            &self.pool,
            self.heads,
            &self.queries,
            cache,
            &[span],
            &mut self.out,
        );
        self.out[0]
    }
}
