//! Products with float32 activations: float weights always, quantised ones where exactness is asked for.
//!
//! Not rounding of activations. One accumulator per output and row, over the inputs in order.

use super::super::isa::{Isa, for_each_isa};
use super::super::quantize::GROUP;
use super::format::{Format, TILE, quant, scales, with_format};
use super::pack::{FloatKind, Floats, Packed};

/// Rows of activations per pass over a group of weights.
const ROWS: usize = 8;

/// Inputs whose weights are made float32 at once.
const SPAN: usize = 128;

/// Writes to `out` `(rows, TILE)` the products of a tile of `weight` with rows of `x` `(rows, columns)`.
pub(super) fn floats(isa: Isa, weight: &Floats, tile: usize, x: &[f32], out: &mut [[f32; TILE]]) {
    let (bytes, size) = (weight.tile(tile), weight.kind.bytes());
    let mut numbers = [0.0; SPAN * TILE];
    out.fill([0.0; TILE]);
    for (index, chunk) in bytes.chunks(SPAN * TILE * size).enumerate() {
        let numbers = &mut numbers[..chunk.len() / size];
        match weight.kind {
            FloatKind::F32 => widen_f32(isa, chunk, numbers),
            FloatKind::F16 => widen_f16(isa, chunk, numbers),
            FloatKind::Bf16 => widen_bf16(isa, chunk, numbers),
        }
        accumulate(isa, numbers, &x[index * SPAN..], weight.columns, out);
    }
}

/// The same for a packed weight.
pub(super) fn packed(isa: Isa, weight: &Packed, tile: usize, x: &[f32], out: &mut [[f32; TILE]]) {
    out.fill([0.0; TILE]);
    with_format!(weight.kind, F => {
        let (quants, records) = weight.tile::<F>(tile);
        let mut numbers = [0.0; GROUP * TILE];
        for (group, bytes) in quants.chunks_exact(F::QUANTS).enumerate() {
            group_numbers::<F>(bytes, records, group, &mut numbers);
            accumulate(isa, &numbers, &x[group * GROUP..], weight.columns, out);
        }
    });
}

/// The weights of a group as `(GROUP, TILE)` numbers.
fn group_numbers<F: Format>(bytes: &[u8], records: &[u8], group: usize, numbers: &mut [f32; GROUP * TILE]) {
    for lane in 0..TILE {
        let scales = scales::<F>(records, group, lane);
        for input in 0..GROUP {
            let q = i32::from(quant::<F>(bytes, lane, input)) - F::OFFSET;
            numbers[input * TILE + lane] =
                (q as f32).mul_add(scales.halves[input / (GROUP / 2)], -scales.min);
        }
    }
}

for_each_isa! {
    fn widen_f32(bytes: &[u8], numbers: &mut [f32]) {
        for (number, b) in numbers.iter_mut().zip(bytes.chunks_exact(4)) {
            *number = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        }
    }
}

for_each_isa! {
    fn widen_bf16(bytes: &[u8], numbers: &mut [f32]) {
        for (number, b) in numbers.iter_mut().zip(bytes.chunks_exact(2)) {
            *number = f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
        }
    }
}

for_each_isa! {
    fn widen_f16(bytes: &[u8], numbers: &mut [f32]) {
        for (number, b) in numbers.iter_mut().zip(bytes.chunks_exact(2)) {
            let bits = u32::from(u16::from_le_bytes([b[0], b[1]]));
            let magnitude = (bits & 0x7fff) << 13;
            // The exponent's bias grows by 112; multiplying does that for subnormal numbers too.
            let value = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
            let special = f32::from_bits(magnitude | 0x7f80_0000);
            let value = if bits & 0x7c00 == 0x7c00 { special } else { value };
            *number = f32::from_bits(value.to_bits() | (bits & 0x8000) << 16);
        }
    }
}

for_each_isa! {
    /// Adds to `out` `(rows, TILE)` the products of `numbers` `(inputs, TILE)` with the first inputs of each row of `x`,
    /// whose rows lie `stride` apart.
    fn accumulate(numbers: &[f32], x: &[f32], stride: usize, out: &mut [[f32; TILE]]) {
        for (chunk, sums) in out.chunks_mut(ROWS).enumerate() {
            let x = &x[chunk * ROWS * stride..];
            match sums {
                [a, b, c, d, e, f, g, h] => {
                    let mut local = [*a, *b, *c, *d, *e, *f, *g, *h];
                    for (input, weights) in numbers.as_chunks::<TILE>().0.iter().enumerate() {
                        for (row, sums) in local.iter_mut().enumerate() {
                            let x = x[row * stride + input];
                            for (sum, w) in sums.iter_mut().zip(weights) {
                                *sum = w.mul_add(x, *sum);
                            }
                        }
                    }
                    [*a, *b, *c, *d, *e, *f, *g, *h] = local;
                }
                few => {
                    for (row, sums) in few.iter_mut().enumerate() {
                        let mut local = *sums;
                        for (input, weights) in numbers.as_chunks::<TILE>().0.iter().enumerate() {
                            let x = x[row * stride + input];
                            for (sum, w) in local.iter_mut().zip(weights) {
                                *sum = w.mul_add(x, *sum);
                            }
                        }
                        *sums = local;
                    }
                }
            }
        }
    }
}
