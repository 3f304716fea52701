//! The dot products of a tile on AVX2: 8 outputs per vector, each tile in two halves.
//!
//! Not another result than `plain`: the integer sums are exact and the float operations are the same, in the same order.

use std::arch::x86_64::*;

use super::super::quantize::{GROUP, Quantized};
use super::format::{Format, Record, STEPS, TILE, VECTOR};

/// Most rows of activations per pass over the weights.
const ROWS: usize = 4;
/// Outputs of a vector.
const LANES: usize = TILE / 2;

/// As [`super::plain::tile`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn tile<F: Format>(
    quants: &[u8],
    records: &[u8],
    x: &Quantized,
    first: usize,
    out: &mut [[f32; TILE]],
) {
    let groups = x.columns / GROUP;
    // What the loops below read through pointers.
    assert!(quants.len() >= groups * F::QUANTS && records.len() >= groups * GROUP / F::SPAN * F::BYTES);
    assert!(x.quants.len() >= (first + out.len()) * groups * GROUP);
    assert!(x.halves.len() >= (first + out.len()) * groups * 2);
    assert!(x.scales.len().min(x.totals.len()).min(x.wholes.len()) >= (first + out.len()) * groups);
    for (index, out) in out.chunks_mut(ROWS).enumerate() {
        let first = first + index * ROWS;
        for half in 0..2 {
            // SAFETY: the lengths were checked, and the features are those of this function.
            unsafe {
                match out.len() {
                    1 => rows::<F, 1>(quants, records, x, first, half, out),
                    2 => rows::<F, 2>(quants, records, x, first, half, out),
                    3 => rows::<F, 3>(quants, records, x, first, half, out),
                    _ => rows::<F, ROWS>(quants, records, x, first, half, out),
                }
            }
        }
    }
}

/// Safety: all slices are as long as [`tile`] checks.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<F: Format, const T: usize>(
    quants: &[u8],
    records: &[u8],
    x: &Quantized,
    first: usize,
    half: usize,
    out: &mut [[f32; TILE]],
) {
    let groups = x.columns / GROUP;
    let mut sums = [_mm256_setzero_ps(); T];
    for group in 0..groups {
        // SAFETY: `group` is one of the groups whose bytes were checked to be there.
        let (weights, scales) = unsafe {
            (
                unpack::<F>(quants.as_ptr().add(group * F::QUANTS), half),
                Scales::read::<F>(records.as_ptr(), group, half),
            )
        };
        for (t, sum) in sums.iter_mut().enumerate() {
            let at = (first + t) * groups + group;
            // SAFETY: `at` is a group of a row that was checked to be there.
            unsafe {
                let a = x.quants.as_ptr().add(at * GROUP).cast::<i32>();
                let halves = [*x.halves.as_ptr().add(2 * at), *x.halves.as_ptr().add(2 * at + 1)];
                let scale = _mm256_set1_ps(*x.scales.as_ptr().add(at));
                if F::HALVES {
                    for (part, (half, total)) in scales.halves.into_iter().zip(halves).enumerate() {
                        let steps = &weights[part * STEPS / 2..][..STEPS / 2];
                        let dot = dot::<F>(steps, a.add(part * STEPS / 2), total);
                        let scale = _mm256_mul_ps(half, scale);
                        *sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, *sum);
                    }
                } else {
                    let dot = dot::<F>(&weights, a, *x.wholes.as_ptr().add(at));
                    let scale = _mm256_mul_ps(scales.halves[0], scale);
                    *sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, *sum);
                }
                if F::MINS {
                    let total = _mm256_set1_ps(*x.totals.as_ptr().add(at));
                    *sum = _mm256_fnmadd_ps(scales.min, total, *sum);
                }
            }
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        // SAFETY: half a row of `out` is one vector.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(half * LANES), sum) };
    }
}

/// Exact dot products of some steps, the offset's share taken off; `minus_sum` is minus that of the activations.
///
/// Safety: as many steps of activations lie at `a`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot<F: Format>(weights: &[__m256i], a: *const i32, minus_sum: i32) -> __m256i {
    // How many products of pairs a 16-bit sum holds: quants are under 2^BITS, activations at most 127.
    let hold = match F::BITS {
        4 => 8,
        5 => 4,
        6 => 2,
        _ => 1,
    };
    let ones = _mm256_set1_epi16(1);
    let mut dot = match F::BITS {
        8 => _mm256_setzero_si256(),
        _ => _mm256_set1_epi32(F::OFFSET * minus_sum),
    };
    for (index, weights) in weights.chunks(hold).enumerate() {
        let mut pairs = _mm256_setzero_si256();
        for (step, weights) in weights.iter().enumerate() {
            // SAFETY: there are as many steps at `a` as weights.
            let four = unsafe { _mm256_set1_epi32(a.add(index * hold + step).read_unaligned()) };
            let products = match F::BITS {
                8 => {
                    // A product of two pairs of 8-bit numbers would overflow with the offset in: signed it does not.
                    let signed = _mm256_xor_si256(*weights, _mm256_set1_epi8(i8::MIN));
                    _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(four, signed))
                }
                _ => _mm256_maddubs_epi16(*weights, four),
            };
            pairs = _mm256_add_epi16(pairs, products);
        }
        dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, ones));
    }
    dot
}

/// The quants of half of a group's outputs as bytes, a vector per step.
///
/// Safety: `F::QUANTS` bytes lie at `group`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpack<F: Format>(group: *const u8, half: usize) -> [__m256i; STEPS] {
    let low = _mm256_set1_epi8(15);
    let mut steps = [_mm256_setzero_si256(); STEPS];
    // SAFETY: all offsets stay under F::QUANTS.
    unsafe {
        let vector = |i: usize| _mm256_loadu_si256(group.add(i * VECTOR + half * VECTOR / 2).cast());
        if F::BITS == 8 {
            for (i, step) in steps.iter_mut().enumerate() {
                *step = vector(i);
            }
            return steps;
        }
        for i in 0..STEPS / 2 {
            let both = vector(i);
            steps[i] = _mm256_and_si256(both, low);
            steps[i + STEPS / 2] = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
        }
        if F::BITS == 5 {
            // Byte i of a vector takes bit i of the word: its byte is brought to each place, its bit picked out.
            let spread = _mm256_setr_epi64x(
                0,
                0x0101_0101_0101_0101,
                0x0202_0202_0202_0202,
                0x0303_0303_0303_0303,
            );
            let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let words = group.add(4 * VECTOR).cast::<i32>();
            for (i, step) in steps.iter_mut().enumerate() {
                let word = _mm256_set1_epi32(words.add(2 * i + half).read_unaligned());
                let bytes = _mm256_and_si256(_mm256_shuffle_epi8(word, spread), bits);
                let fifth = _mm256_and_si256(_mm256_cmpeq_epi8(bytes, bits), _mm256_set1_epi8(16));
                *step = _mm256_or_si256(*step, fifth);
            }
        }
        if F::BITS == 6 {
            let pair = _mm256_set1_epi8(48);
            for part in 0..2 {
                let high = vector(4 + part);
                let parts = [
                    _mm256_slli_epi16::<4>(high),
                    _mm256_slli_epi16::<2>(high),
                    high,
                    _mm256_srli_epi16::<2>(high),
                ];
                for (i, bits) in parts.into_iter().enumerate() {
                    let step = &mut steps[part * 4 + i];
                    *step = _mm256_or_si256(*step, _mm256_and_si256(bits, pair));
                }
            }
        }
    }
    steps
}

/// Scales and minimums of 8 outputs in a group.
struct Scales {
    halves: [__m256; 2],
    min: __m256,
}

impl Scales {
    /// Safety: the record of `group` lies in `records`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn read<F: Format>(records: *const u8, group: usize, outputs: usize) -> Self {
        let per_record = F::SPAN / GROUP;
        let within = group % per_record;
        // SAFETY: all offsets stay under F::BYTES.
        unsafe {
            let record = records.add(group / per_record * F::BYTES);
            let half =
                |at: usize| _mm256_cvtph_ps(_mm_loadu_si128(record.add(at + outputs * 2 * LANES).cast()));
            let byte = |at: usize| {
                let bytes = _mm_loadl_epi64(record.add(at + outputs * LANES).cast());
                _mm256_cvtepi32_ps(match F::RECORD {
                    Record::SuperHalves => _mm256_cvtepi8_epi32(bytes),
                    _ => _mm256_cvtepu8_epi32(bytes),
                })
            };
            let scale = half(0);
            let zero = _mm256_setzero_ps();
            match F::RECORD {
                Record::Scale => Self {
                    halves: [scale; 2],
                    min: zero,
                },
                Record::ScaleAdd => Self {
                    halves: [scale; 2],
                    min: _mm256_xor_ps(half(2 * TILE), _mm256_set1_ps(-0.0)),
                },
                Record::ScaleZero => Self {
                    halves: [scale; 2],
                    min: _mm256_mul_ps(scale, byte(2 * TILE)),
                },
                Record::Super => {
                    let at = 4 * TILE + within * 2 * TILE;
                    Self {
                        halves: [_mm256_mul_ps(scale, byte(at)); 2],
                        min: _mm256_mul_ps(half(2 * TILE), byte(at + TILE)),
                    }
                }
                Record::SuperHalves => {
                    let at = 2 * TILE + 2 * within * TILE;
                    Self {
                        halves: [
                            _mm256_mul_ps(scale, byte(at)),
                            _mm256_mul_ps(scale, byte(at + TILE)),
                        ],
                        min: zero,
                    }
                }
            }
        }
    }
}
