//! The plain dot products of a tile with quantised activations: what the fast versions must equal, bit for bit.
//!
//! Not fast. Integer sums over a group (or half group) are exact; their float sums go group after group.

use super::super::quantize::{GROUP, Quantized};
use super::format::{Format, TILE, quant, scales};

/// Writes to `out` `(rows, TILE)` the products of a tile with `out.len()` rows of `x` from row `first` on.
pub(super) fn tile<F: Format>(
    quants: &[u8],
    records: &[u8],
    x: &Quantized,
    first: usize,
    out: &mut [[f32; TILE]],
) {
    let groups = x.columns / GROUP;
    out.fill([0.0; TILE]);
    for group in 0..groups {
        let bytes = &quants[group * F::QUANTS..][..F::QUANTS];
        let weights: [[i32; GROUP]; TILE] = std::array::from_fn(|lane| {
            std::array::from_fn(|input| i32::from(quant::<F>(bytes, lane, input)) - F::OFFSET)
        });
        let scales: [_; TILE] = std::array::from_fn(|lane| scales::<F>(records, group, lane));
        for (row, out) in (first..).zip(out.iter_mut()) {
            let at = row * groups + group;
            let activations = &x.quants[at * GROUP..][..GROUP];
            for ((sum, weights), scales) in out.iter_mut().zip(&weights).zip(&scales) {
                let products = weights.iter().zip(activations).map(|(w, &a)| w * i32::from(a));
                if F::HALVES {
                    let dots = [
                        products.clone().take(GROUP / 2).sum::<i32>(),
                        products.skip(GROUP / 2).sum(),
                    ];
                    for (dot, scale) in dots.into_iter().zip(scales.halves) {
                        *sum = (dot as f32).mul_add(scale * x.scales[at], *sum);
                    }
                } else {
                    let dot: i32 = products.sum();
                    *sum = (dot as f32).mul_add(scales.halves[0] * x.scales[at], *sum);
                }
                if F::MINS {
                    *sum = (-scales.min).mul_add(x.totals[at], *sum);
                }
            }
        }
    }
}
