//! Activations to 8 bits: per group of 32 columns one scale and 32 integers from -127 to 127.
//!
//! Not weights: those come quantised. Rounding is to the nearest, ties to even; a group with a NaN or an infinity
//! gets a NaN as its scale, so that it shows in the logits.

use super::isa::for_each_isa;

/// Columns that share a scale.
pub(super) const GROUP: usize = 32;

/// Quantised rows `(rows, columns)`.
#[derive(Debug, Default)]
pub(super) struct Quantized {
    /// Columns; a multiple of [`GROUP`].
    pub(super) columns: usize,
    /// `(rows, columns)`.
    pub(super) quants: Vec<i8>,
    /// `(rows, columns / GROUP)`.
    pub(super) scales: Vec<f32>,
    /// Sums of the quants over the two halves of each group, `(rows, columns / GROUP, 2)`.
    pub(super) sums: Vec<i32>,
    /// Scale times sum of the quants of each group, `(rows, columns / GROUP)`.
    pub(super) totals: Vec<f32>,
}

impl Quantized {
    /// Makes room for `rows` rows of `columns`.
    pub(super) fn resize(&mut self, rows: usize, columns: usize) {
        let groups = rows * columns / GROUP;
        self.columns = columns;
        self.quants.resize(groups * GROUP, 0);
        self.scales.resize(groups, 0.0);
        self.sums.resize(2 * groups, 0);
        self.totals.resize(groups, 0.0);
    }
}

for_each_isa! {
    /// Quantises `x`, a whole number of groups.
    pub(super) fn quantize(x: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i32], totals: &mut [f32]) {
        let groups = x.chunks_exact(GROUP).zip(quants.chunks_exact_mut(GROUP)).zip(sums.chunks_exact_mut(2));
        for (((x, quants), sums), (scale, total)) in groups.zip(scales.iter_mut().zip(totals)) {
            // The bits of positive floats are ordered as the floats are, NaN above all.
            let mut most = 0;
            for x in x {
                most = most.max(x.to_bits() & 0x7fff_ffff);
            }
            let largest = f32::from_bits(most);
            let (inverse, step) = match largest {
                0.0 => (0.0, 0.0),
                x if x.is_finite() => (127.0 / x, x / 127.0),
                _ => (0.0, f32::NAN),
            };
            // 127 / x overflows for subnormal x; such a group is zero for all purposes.
            let (inverse, step) = if inverse.is_finite() { (inverse, step) } else { (0.0, 0.0) };
            for (q, x) in quants.iter_mut().zip(x) {
                *q = round(x * inverse);
            }
            for (sum, half) in sums.iter_mut().zip(quants.chunks_exact(GROUP / 2)) {
                *sum = half.iter().map(|&q| i32::from(q)).sum();
            }
            *scale = step;
            *total = step * (sums[0] + sums[1]) as f32;
        }
    }
}

/// Nearest integer of a number from -127 to 127, ties to even; anything of a NaN.
#[inline(always)]
fn round(x: f32) -> i8 {
    // 1.5 * 2^23 pushes the fraction out; the integer is then in the low bits.
    (x + 12_582_912.0).to_bits() as i8
}
