//! The dot products of a tile on AVX-512 VNNI: 16 outputs per vector.
//!
//! Not another result than `plain`: the integer sums are exact and the float operations are the same, in the same order.

use std::arch::x86_64::*;

use super::super::quantize::{GROUP, Quantized};
use super::format::{Format, Record, STEPS, TILE, VECTOR};

/// Most rows of activations per pass over the weights.
const ROWS: usize = 8;

/// As [`super::plain::tile`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
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
    assert!(x.sums.len() >= (first + out.len()) * groups * 2);
    assert!(x.scales.len().min(x.totals.len()) >= (first + out.len()) * groups);
    for (index, out) in out.chunks_mut(ROWS).enumerate() {
        let first = first + index * ROWS;
        // SAFETY: the lengths were checked, and the features are those of this function.
        unsafe {
            match out.len() {
                1 => rows::<F, 1>(quants, records, x, first, out),
                2 => rows::<F, 2>(quants, records, x, first, out),
                3 => rows::<F, 3>(quants, records, x, first, out),
                4 => rows::<F, 4>(quants, records, x, first, out),
                5 => rows::<F, 5>(quants, records, x, first, out),
                6 => rows::<F, 6>(quants, records, x, first, out),
                7 => rows::<F, 7>(quants, records, x, first, out),
                _ => rows::<F, ROWS>(quants, records, x, first, out),
            }
        }
    }
}

/// Safety: all slices are as long as [`tile`] checks.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn rows<F: Format, const T: usize>(
    quants: &[u8],
    records: &[u8],
    x: &Quantized,
    first: usize,
    out: &mut [[f32; TILE]],
) {
    let groups = x.columns / GROUP;
    let mut sums = [_mm512_setzero_ps(); T];
    for group in 0..groups {
        // SAFETY: `group` is one of the groups whose bytes were checked to be there.
        let (weights, scales) = unsafe {
            (
                unpack::<F>(quants.as_ptr().add(group * F::QUANTS)),
                Scales::read::<F>(records.as_ptr(), group),
            )
        };
        for (t, sum) in sums.iter_mut().enumerate() {
            let at = (first + t) * groups + group;
            // SAFETY: `at` is a group of a row that was checked to be there.
            unsafe {
                let a = x.quants.as_ptr().add(at * GROUP).cast::<i32>();
                let halves = x.sums.as_ptr().add(2 * at);
                let scale = _mm512_set1_ps(*x.scales.as_ptr().add(at));
                // Quants are stored with an offset; its share of the dot product is taken off in advance.
                let offset = |sum: i32| _mm512_set1_epi32(-F::OFFSET * sum);
                let step = |dot, i: usize| {
                    let four = _mm512_set1_epi32(a.add(i).read_unaligned());
                    _mm512_dpbusd_epi32(dot, weights[i], four)
                };
                if F::HALVES {
                    let mut dots = [offset(*halves), offset(*halves.add(1))];
                    for i in 0..STEPS / 2 {
                        dots[0] = step(dots[0], i);
                        dots[1] = step(dots[1], i + STEPS / 2);
                    }
                    for (dot, half) in dots.into_iter().zip(scales.halves) {
                        *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(half, scale), *sum);
                    }
                } else {
                    let mut dot = offset(*halves + *halves.add(1));
                    for i in 0..STEPS {
                        dot = step(dot, i);
                    }
                    let scale = _mm512_mul_ps(scales.halves[0], scale);
                    *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, *sum);
                }
                if F::MINS {
                    let total = _mm512_set1_ps(*x.totals.as_ptr().add(at));
                    *sum = _mm512_fnmadd_ps(scales.min, total, *sum);
                }
            }
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        // SAFETY: a row of `out` is one vector.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
    }
}

/// The quants of a group as bytes, a vector per step.
///
/// Safety: `F::QUANTS` bytes lie at `group`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn unpack<F: Format>(group: *const u8) -> [__m512i; STEPS] {
    let low = _mm512_set1_epi8(15);
    let mut steps = [_mm512_setzero_si512(); STEPS];
    // SAFETY: all offsets stay under F::QUANTS.
    unsafe {
        let vector = |i: usize| _mm512_loadu_si512(group.add(i * VECTOR).cast());
        if F::BITS == 8 {
            for (i, step) in steps.iter_mut().enumerate() {
                *step = vector(i);
            }
            return steps;
        }
        for i in 0..STEPS / 2 {
            let both = vector(i);
            steps[i] = _mm512_and_si512(both, low);
            steps[i + STEPS / 2] = _mm512_and_si512(_mm512_srli_epi16::<4>(both), low);
        }
        if F::BITS == 5 {
            let fifth = _mm512_set1_epi8(16);
            let masks = group.add(4 * VECTOR).cast::<u64>();
            for (i, step) in steps.iter_mut().enumerate() {
                *step = _mm512_mask_add_epi8(*step, masks.add(i).read_unaligned(), *step, fifth);
            }
        }
        if F::BITS == 6 {
            let pair = _mm512_set1_epi8(48);
            for half in 0..2 {
                let high = vector(4 + half);
                let parts = [
                    _mm512_slli_epi16::<4>(high),
                    _mm512_slli_epi16::<2>(high),
                    high,
                    _mm512_srli_epi16::<2>(high),
                ];
                for (i, part) in parts.into_iter().enumerate() {
                    let step = &mut steps[half * 4 + i];
                    *step = _mm512_or_si512(*step, _mm512_and_si512(part, pair));
                }
            }
        }
    }
    steps
}

/// Scales and minimums of the 16 outputs in a group.
struct Scales {
    halves: [__m512; 2],
    min: __m512,
}

impl Scales {
    /// Safety: the record of `group` lies in `records`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn read<F: Format>(records: *const u8, group: usize) -> Self {
        let per_record = F::SPAN / GROUP;
        let within = group % per_record;
        // SAFETY: all offsets stay under F::BYTES.
        unsafe {
            let record = records.add(group / per_record * F::BYTES);
            let half = |at: usize| _mm512_cvtph_ps(_mm256_loadu_si256(record.add(at).cast()));
            let byte = |at: usize| {
                let bytes = _mm_loadu_si128(record.add(at).cast());
                _mm512_cvtepi32_ps(match F::RECORD {
                    Record::SuperHalves => _mm512_cvtepi8_epi32(bytes),
                    _ => _mm512_cvtepu8_epi32(bytes),
                })
            };
            let scale = half(0);
            let zero = _mm512_setzero_ps();
            match F::RECORD {
                Record::Scale => Self {
                    halves: [scale; 2],
                    min: zero,
                },
                Record::ScaleAdd => Self {
                    halves: [scale; 2],
                    min: negated(half(2 * TILE)),
                },
                Record::ScaleZero => Self {
                    halves: [scale; 2],
                    min: _mm512_mul_ps(scale, byte(2 * TILE)),
                },
                Record::Super => {
                    let at = 4 * TILE + within * 2 * TILE;
                    Self {
                        halves: [_mm512_mul_ps(scale, byte(at)); 2],
                        min: _mm512_mul_ps(half(2 * TILE), byte(at + TILE)),
                    }
                }
                Record::SuperHalves => {
                    let at = 2 * TILE + 2 * within * TILE;
                    Self {
                        halves: [
                            _mm512_mul_ps(scale, byte(at)),
                            _mm512_mul_ps(scale, byte(at + TILE)),
                        ],
                        min: zero,
                    }
                }
            }
        }
    }
}

/// Flips the signs; AVX-512 F alone has no float xor.
#[inline]
#[target_feature(enable = "avx512f")]
fn negated(x: __m512) -> __m512 {
    let sign = _mm512_set1_epi32(i32::MIN);
    _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), sign))
}
