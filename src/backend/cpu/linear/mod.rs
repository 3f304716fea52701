//! Products of activations with weights, `y = x W^T + b`: the bulk of a model's arithmetic.
//!
//! Not the layout of files. `plain` says what a quantised product is; `avx2` and `avx512` compute the same bits; `float`
//! keeps activations in float32.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod float;
mod format;
mod pack;
mod plain;
mod source;

use self::format::{Format, TILE, with_format};
use self::pack::{Packed, Weight};
use super::isa::{Isa, Level};
use super::pool::{Parts, Pool};
use super::quantize::{GROUP, Quantized, Rows, quantize};
use crate::model::weights::Stored;

/// How products with quantised weights are computed. Both are reproducible to the bit, and differ from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Activations rounded to 8 bits per group of 32.
    Fast,
    /// Activations in float32.
    Exact,
}

/// A linear layer `(outputs, inputs)`, its bias `(outputs,)` included.
#[derive(Debug)]
pub(super) struct Linear {
    weight: Weight,
    bias: Option<Vec<f32>>,
}

/// Rows of activations `(rows, columns)`, in the forms that the arithmetic needs.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pub(super) floats: &'a [f32],
    pub(super) columns: usize,
    /// The same rows, quantised; not looked at by exact arithmetic.
    pub(super) quantized: &'a Quantized,
}

/// What is needed to compute besides numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) isa: Isa,
    pub(super) arithmetic: Arithmetic,
    pub(super) pool: &'a Pool,
}

/// Rows that a tile is computed for before its results are written: they stay in the first-level cache.
const ROWS: usize = 256;

impl Linear {
    /// Packs a weight `(outputs, inputs)`.
    ///
    /// # Errors
    /// In words: a format that this backend does not compute with, or no memory.
    pub(super) fn new(stored: &Stored, bias: Option<Vec<f32>>, pool: &Pool) -> Result<Self, String> {
        Ok(Self {
            weight: Weight::pack(stored, pool)?,
            bias,
        })
    }

    pub(super) fn outputs(&self) -> usize {
        self.weight.shape().0
    }

    pub(super) fn inputs(&self) -> usize {
        self.weight.shape().1
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.weight.bytes() + self.bias.as_ref().map_or(0, |bias| 4 * bias.len())
    }

    /// The weights of output `row` `(inputs,)`: a token's embedding.
    pub(super) fn row(&self, row: usize, out: &mut [f32]) {
        self.weight.row(row, out);
    }

    /// The products of one tile with rows `first ..` of `x`.
    fn tile(&self, context: Context<'_>, x: &Input<'_>, tile: usize, first: usize, out: &mut [[f32; TILE]]) {
        let floats = &x.floats[first * x.columns..];
        match (&self.weight, context.arithmetic) {
            (Weight::Floats(weight), _) => float::floats(context.isa, weight, tile, floats, out),
            (Weight::Packed(weight), Arithmetic::Exact) => {
                float::packed(context.isa, weight, tile, floats, out);
            }
            (Weight::Packed(weight), Arithmetic::Fast) => with_format!(weight.kind, F => {
                quantized_tile::<F>(context.isa, weight, tile, x.quantized, first, out);
            }),
        }
    }
}

fn quantized_tile<F: Format>(
    isa: Isa,
    weight: &Packed,
    tile: usize,
    x: &Quantized,
    first: usize,
    out: &mut [[f32; TILE]],
) {
    let (quants, records) = weight.tile::<F>(tile);
    match isa.level() {
        Level::Plain => plain::tile::<F>(quants, records, x, first, out),
        // SAFETY: an `Isa` of this level exists only on a processor that has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2::tile::<F>(quants, records, x, first, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512::tile::<F>(quants, records, x, first, out) },
    }
}

/// Readies rows `(rows, columns)` for products: `fill` makes each of them in place, then it is quantised, if the
/// arithmetic wants that, while it is still in the cache.
pub(super) fn prepare<'a>(
    context: Context<'_>,
    floats: &'a mut [f32],
    columns: usize,
    quantized: &'a mut Quantized,
    fill: impl Fn(usize, &mut [f32]) + Sync,
) -> Input<'a> {
    let rows = floats.len() / columns;
    // Float weights take rows of any width; quantised ones come in whole groups.
    let quantizes = context.arithmetic == Arithmetic::Fast && columns.is_multiple_of(GROUP);
    if quantizes {
        quantized.resize(rows, columns);
    }
    let (parts, out) = (Parts::of(floats), Rows::of(quantized));
    context.pool.each(rows, |row| {
        // SAFETY: each row belongs to one task.
        let x = unsafe { parts.part(row * columns, columns) };
        fill(row, x);
        if quantizes {
            // SAFETY: as above.
            quantize(context.isa, x, unsafe { out.row(row) });
        }
    });
    Input {
        floats,
        columns,
        quantized,
    }
}

/// Computes several layers on the same rows: each layer's output `(rows, outputs)`.
pub(super) fn forward(context: Context<'_>, x: &Input<'_>, layers: &mut [(&Linear, &mut [f32])]) {
    let rows = x.floats.len() / x.columns;
    let jobs: Vec<_> = layers
        .iter_mut()
        .map(|(layer, out)| (*layer, layer.outputs(), Parts::of(out)))
        .collect();
    let tiles: usize = jobs.iter().map(|(_, outputs, _)| outputs.div_ceil(TILE)).sum();
    // Some tasks per thread even out their speeds; more would cost hand-overs.
    let per_task = tiles.div_ceil(context.pool.threads() * 4).max(1);
    context.pool.each(tiles.div_ceil(per_task), |task| {
        let mut sums = vec![[0.0; TILE]; ROWS.min(rows)];
        for tile in task * per_task..tiles.min((task + 1) * per_task) {
            let mut tile = tile;
            for (layer, outputs, out) in &jobs {
                if tile < outputs.div_ceil(TILE) {
                    compute_tile(context, layer, x, tile, &mut sums, *out);
                    break;
                }
                tile -= outputs.div_ceil(TILE);
            }
        }
    });
}

/// Computes one tile for all rows; `sums` is scratch.
fn compute_tile(
    context: Context<'_>,
    layer: &Linear,
    x: &Input<'_>,
    tile: usize,
    sums: &mut [[f32; TILE]],
    out: Parts<'_, f32>,
) {
    let (rows, outputs) = (x.floats.len() / x.columns, layer.outputs());
    let (first, width) = (tile * TILE, TILE.min(outputs - tile * TILE));
    for start in (0..rows).step_by(ROWS) {
        let sums = &mut sums[..ROWS.min(rows - start)];
        layer.tile(context, x, tile, start, sums);
        for (row, sums) in (start..).zip(sums) {
            // SAFETY: a tile's outputs of a row are written by this task alone.
            let out = unsafe { out.part(row * outputs + first, width) };
            match &layer.bias {
                Some(bias) => {
                    for ((out, sum), bias) in out.iter_mut().zip(sums).zip(&bias[first..]) {
                        *out = *sum + bias;
                    }
                }
                // A whole tile is one vector; a copy of unknown length would be a call.
                None => match <&mut [f32; TILE]>::try_from(&mut *out) {
                    Ok(out) => *out = *sums,
                    Err(_) => out.copy_from_slice(&sums[..width]),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
