//! Packed weights to the vectors that AVX-512 computes with: a byte per quant, a float per scale.
//!
//! Not the products. The numbers are those that `format` reads one by one.

use std::arch::x86_64::*;

use super::super::super::quantize::GROUP;
use super::super::format::{Format, Record, STEPS, TILE, VECTOR};

/// The quants of a group as bytes, a vector per step.
///
/// Safety: `F::QUANTS` bytes lie at `group`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn unpack<F: Format>(group: *const u8) -> [__m512i; STEPS] {
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
#[derive(Clone, Copy)]
pub(super) struct Scales {
    pub(super) halves: [__m512; 2],
    pub(super) min: __m512,
}

impl Scales {
    /// Safety: the record of `group` lies in `records`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) unsafe fn read<F: Format>(records: *const u8, group: usize) -> Self {
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
