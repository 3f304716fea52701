//! Activations to 8 bits: per group of 32 columns one scale and 32 integers from -127 to 127.
//!
//! Not weights: those come quantised. Rounding is to the nearest, ties to even; a group with a NaN or an infinity
//! gets a NaN as its scale, so that it shows in the logits.

use super::isa::{Isa, Level, for_each_isa};
use super::pool::Parts;

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
    /// Minus the sums of the quants over the two halves of each group, `(rows, columns / GROUP, 2)`: times the offset of
    /// a weight's quants it is what the offset adds to the products.
    pub(super) halves: Vec<i32>,
    /// Minus the sums over whole groups, `(rows, columns / GROUP)`.
    pub(super) wholes: Vec<i32>,
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
        self.halves.resize(2 * groups, 0);
        self.wholes.resize(groups, 0);
        self.totals.resize(groups, 0.0);
    }
}

/// What one row, or some groups of it, is quantised to: slices of [`Quantized`]'s fields.
pub(super) struct Row<'a> {
    pub(super) quants: &'a mut [i8],
    pub(super) scales: &'a mut [f32],
    pub(super) halves: &'a mut [i32],
    pub(super) wholes: &'a mut [i32],
    pub(super) totals: &'a mut [f32],
}

/// [`Quantized`], handed out by rows.
pub(super) struct Rows<'a> {
    columns: usize,
    quants: Parts<'a, i8>,
    scales: Parts<'a, f32>,
    halves: Parts<'a, i32>,
    wholes: Parts<'a, i32>,
    totals: Parts<'a, f32>,
}

impl<'a> Rows<'a> {
    pub(super) fn of(quantized: &'a mut Quantized) -> Self {
        Self {
            columns: quantized.columns,
            quants: Parts::of(&mut quantized.quants),
            scales: Parts::of(&mut quantized.scales),
            halves: Parts::of(&mut quantized.halves),
            wholes: Parts::of(&mut quantized.wholes),
            totals: Parts::of(&mut quantized.totals),
        }
    }

    /// One row.
    ///
    /// # Safety
    /// No other borrow of this row may be alive.
    pub(super) unsafe fn row(&self, row: usize) -> Row<'a> {
        let groups = self.columns / GROUP;
        // SAFETY: the parts are this row's, by the caller's word.
        unsafe {
            Row {
                quants: self.quants.part(row * self.columns, self.columns),
                scales: self.scales.part(row * groups, groups),
                halves: self.halves.part(2 * row * groups, 2 * groups),
                wholes: self.wholes.part(row * groups, groups),
                totals: self.totals.part(row * groups, groups),
            }
        }
    }
}

/// Quantises `x`, a whole number of groups, to a row of as many.
pub(super) fn quantize(isa: Isa, x: &[f32], out: Row<'_>) {
    match isa.level() {
        // SAFETY: an `Isa` of this level exists only on a processor that has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(x, out) },
        _ => by_number(isa, x, out),
    }
}

for_each_isa! {
    /// As [`quantize`].
    fn by_number(x: &[f32], out: Row<'_>) {
        for (group, x) in x.chunks_exact(GROUP).enumerate() {
            // The bits of positive floats are ordered as the floats are, NaN above all.
            let mut most = 0;
            for x in x {
                most = most.max(x.to_bits() & 0x7fff_ffff);
            }
            let (inverse, step) = factors(f32::from_bits(most));
            let quants = &mut out.quants[group * GROUP..][..GROUP];
            for (q, x) in quants.iter_mut().zip(x) {
                *q = round(x * inverse);
            }
            let sums = [0, 1].map(|half| quants[half * GROUP / 2..][..GROUP / 2].iter().map(|&q| i32::from(q)).sum::<i32>());
            out.halves[2 * group] = -sums[0];
            out.halves[2 * group + 1] = -sums[1];
            out.wholes[group] = -(sums[0] + sums[1]);
            out.scales[group] = step;
            out.totals[group] = step * (sums[0] + sums[1]) as f32;
        }
    }
}

/// What a group whose largest magnitude is `largest` is multiplied by, and the scale that undoes it.
#[inline(always)]
fn factors(largest: f32) -> (f32, f32) {
    let (inverse, step) = match largest {
        0.0 => (0.0, 0.0),
        x if x.is_finite() => (127.0 / x, x / 127.0),
        _ => (0.0, f32::NAN),
    };
    // 127 / x overflows for subnormal x; such a group is zero for all purposes.
    if inverse.is_finite() {
        (inverse, step)
    } else {
        (0.0, 0.0)
    }
}

/// As [`by_number`], half a group per vector.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn avx512(x: &[f32], out: Row<'_>) {
    use std::arch::x86_64::*;
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    let push = _mm512_set1_ps(ROUND);
    let groups = x
        .as_chunks::<GROUP>()
        .0
        .iter()
        .zip(out.quants.as_chunks_mut::<GROUP>().0)
        .enumerate();
    for (group, (x, quants)) in groups {
        // SAFETY: a group is two vectors of floats and half a vector of bytes.
        let sums = unsafe {
            let [low, high] = [
                _mm512_loadu_ps(x.as_ptr()),
                _mm512_loadu_ps(x.as_ptr().add(GROUP / 2)),
            ];
            let bits = |x| _mm512_and_si512(_mm512_castps_si512(x), magnitude);
            let most = _mm512_reduce_max_epi32(_mm512_max_epi32(bits(low), bits(high)));
            let (inverse, step) = factors(f32::from_bits(most as u32));
            out.scales[group] = step;
            let inverse = _mm512_set1_ps(inverse);
            let byte = |x| {
                let shifted = _mm512_add_ps(_mm512_mul_ps(x, inverse), push);
                _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted))
            };
            let bytes = _mm256_set_m128i(byte(high), byte(low));
            _mm256_storeu_si256(quants.as_mut_ptr().cast(), bytes);
            let fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
            let pairs = _mm256_hadd_epi32(fours, fours);
            let sums = _mm256_hadd_epi32(pairs, pairs);
            [_mm256_extract_epi32::<0>(sums), _mm256_extract_epi32::<4>(sums)]
        };
        out.halves[2 * group] = -sums[0];
        out.halves[2 * group + 1] = -sums[1];
        out.wholes[group] = -(sums[0] + sums[1]);
        out.totals[group] = out.scales[group] * (sums[0] + sums[1]) as f32;
    }
}

/// Adding 1.5 * 2^23 pushes the fraction out; the integer is then in the low bits.
const ROUND: f32 = 12_582_912.0;

/// Nearest integer of a number from -127 to 127, ties to even; anything of a NaN.
#[inline(always)]
fn round(x: f32) -> i8 {
    (x + ROUND).to_bits() as i8
}
