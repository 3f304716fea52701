//! The dot products of a tile on AVX-512 VNNI: 16 outputs per vector.
//!
//! Not another result than `plain`: the integer sums are exact and the float operations are the same, in the same order.
//! Few rows take each group as it is unpacked. Many rows share a panel: some groups unpacked once into the first-level
//! cache, over which all rows pass, their float sums waiting in `out` between panels.

mod unpack;

use std::arch::x86_64::*;

use self::unpack::{Scales, unpack};
use super::super::quantize::{GROUP, Quantized};
use super::format::{Format, STEPS, TILE};

/// Rows of activations whose sums stay in registers in a single pass over the weights.
const ROWS: usize = 16;
/// The same over a panel.
const SHARE: usize = 8;
/// Rows whose integer sums are computed side by side: enough chains to hide the latency of the instruction.
const CHAINS: usize = 4;
/// How many groups ahead a single pass over the weights asks for them.
const AHEAD: usize = 12;
/// Groups of a panel: 8 KiB of quants.
const PANEL: usize = 16;

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
    assert!(x.halves.len() >= (first + out.len()) * groups * 2);
    let each = x.scales.len().min(x.totals.len()).min(x.wholes.len());
    assert!(each >= (first + out.len()) * groups);
    let x = Activations {
        quants: x.quants.as_ptr(),
        scales: x.scales.as_ptr(),
        halves: x.halves.as_ptr(),
        wholes: x.wholes.as_ptr(),
        totals: x.totals.as_ptr(),
        groups,
    };
    // SAFETY: the lengths were checked, and the features are those of this function.
    unsafe {
        if out.len() <= ROWS {
            let weights = Packed {
                quants: quants.as_ptr(),
                records: records.as_ptr(),
            };
            return some_rows::<F>(&weights, &x, first, 0..groups, out);
        }
        out.fill([0.0; TILE]);
        let mut panel = Panel::new();
        for start in (0..groups).step_by(PANEL) {
            let end = groups.min(start + PANEL);
            panel.fill::<F>(quants.as_ptr(), records.as_ptr(), start..end);
            let (head, rest) = out.split_at_mut(SHARE);
            let next = quants.as_ptr().wrapping_add(end * F::QUANTS);
            some_rows::<F>(&Fetching(&panel, next), &x, first, start..end, head);
            for (index, out) in rest.chunks_mut(SHARE).enumerate() {
                some_rows::<F>(&panel, &x, first + (index + 1) * SHARE, start..end, out);
            }
        }
    }
}

/// Quantised rows, by pointers whose ends were checked.
struct Activations {
    quants: *const i8,
    scales: *const f32,
    halves: *const i32,
    wholes: *const i32,
    totals: *const f32,
    /// Groups of a row.
    groups: usize,
}

/// Where a group's weights come from.
trait Weights<F: Format> {
    /// Whether what is in `out` is to be added to.
    const ADDS: bool;
    /// Quants and scales of a group.
    ///
    /// Safety: the group is there, and so are the instructions.
    unsafe fn group(&self, group: usize) -> ([__m512i; STEPS], Scales);
}

/// A tile as it lies in memory.
struct Packed {
    quants: *const u8,
    records: *const u8,
}

impl<F: Format> Weights<F> for Packed {
    const ADDS: bool = false;
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn group(&self, group: usize) -> ([__m512i; STEPS], Scales) {
        fetch::<F>(self.quants.wrapping_add((group + AHEAD) * F::QUANTS));
        // SAFETY: the group is there.
        unsafe {
            (
                unpack::<F>(self.quants.add(group * F::QUANTS)),
                Scales::read::<F>(self.records, group),
            )
        }
    }
}

/// Some groups of a tile, unpacked.
struct Panel {
    first: usize,
    quants: [[__m512i; STEPS]; PANEL],
    scales: [Scales; PANEL],
}

impl Panel {
    #[target_feature(enable = "avx512f")]
    fn new() -> Self {
        let zero = _mm512_setzero_ps();
        Self {
            first: 0,
            quants: [[_mm512_setzero_si512(); STEPS]; PANEL],
            scales: [Scales {
                halves: [zero; 2],
                min: zero,
            }; PANEL],
        }
    }

    /// Safety: the groups lie at `quants` and `records`.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn fill<F: Format>(
        &mut self,
        quants: *const u8,
        records: *const u8,
        groups: std::ops::Range<usize>,
    ) {
        self.first = groups.start;
        let weights = Packed { quants, records };
        for ((group, quants), scales) in groups.zip(&mut self.quants).zip(&mut self.scales) {
            // SAFETY: the caller's word.
            (*quants, *scales) = unsafe { Weights::<F>::group(&weights, group) };
        }
    }
}

impl<F: Format> Weights<F> for Panel {
    const ADDS: bool = true;
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn group(&self, group: usize) -> ([__m512i; STEPS], Scales) {
        // SAFETY: the group is in the panel.
        unsafe {
            (
                *self.quants.get_unchecked(group - self.first),
                *self.scales.get_unchecked(group - self.first),
            )
        }
    }
}

/// A panel whose groups, while they are computed with, let a group each be fetched from behind the pointer on: those
/// of the next panel, so that memory is read while the processor computes.
struct Fetching<'a>(&'a Panel, *const u8);

impl<F: Format> Weights<F> for Fetching<'_> {
    const ADDS: bool = true;
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn group(&self, group: usize) -> ([__m512i; STEPS], Scales) {
        fetch::<F>(self.1.wrapping_add((group - self.0.first) * F::QUANTS));
        // SAFETY: the caller's word.
        unsafe { Weights::<F>::group(self.0, group) }
    }
}

/// Asks for the quants of a group; where there are none, nothing happens.
#[inline]
#[target_feature(enable = "avx512f")]
fn fetch<F: Format>(quants: *const u8) {
    for line in 0..F::QUANTS / 64 {
        _mm_prefetch::<_MM_HINT_T0>(quants.wrapping_add(64 * line).cast());
    }
}

/// Sums of at most [`ROWS`] rows.
///
/// Safety: all groups and rows are there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn some_rows<F: Format>(
    weights: &impl Weights<F>,
    x: &Activations,
    first: usize,
    groups: std::ops::Range<usize>,
    out: &mut [[f32; TILE]],
) {
    // SAFETY: the caller's word.
    unsafe {
        match out.len() {
            1 => rows::<F, 1>(weights, x, first, groups, out),
            2 => rows::<F, 2>(weights, x, first, groups, out),
            3 => rows::<F, 3>(weights, x, first, groups, out),
            4 => rows::<F, 4>(weights, x, first, groups, out),
            5 => rows::<F, 5>(weights, x, first, groups, out),
            6 => rows::<F, 6>(weights, x, first, groups, out),
            7 => rows::<F, 7>(weights, x, first, groups, out),
            8 => rows::<F, 8>(weights, x, first, groups, out),
            9 => rows::<F, 9>(weights, x, first, groups, out),
            10 => rows::<F, 10>(weights, x, first, groups, out),
            11 => rows::<F, 11>(weights, x, first, groups, out),
            12 => rows::<F, 12>(weights, x, first, groups, out),
            13 => rows::<F, 13>(weights, x, first, groups, out),
            14 => rows::<F, 14>(weights, x, first, groups, out),
            15 => rows::<F, 15>(weights, x, first, groups, out),
            _ => rows::<F, ROWS>(weights, x, first, groups, out),
        }
    }
}

/// Safety: all groups and `T` rows are there.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn rows<F: Format, const T: usize>(
    weights: &impl Weights<F>,
    x: &Activations,
    first: usize,
    groups: std::ops::Range<usize>,
    out: &mut [[f32; TILE]],
) {
    // SAFETY: the caller's word; a row of `out` is one vector.
    unsafe {
        let mut sums = [_mm512_setzero_ps(); T];
        if adds::<F, _>(weights) {
            for (sum, out) in sums.iter_mut().zip(out.iter()) {
                *sum = _mm512_loadu_ps(out.as_ptr());
            }
        }
        for group in groups {
            let (quants, scales) = weights.group(group);
            let mut start = 0;
            while start < T {
                let count = if T - start < CHAINS { T - start } else { CHAINS };
                let at = (first + start) * x.groups + group;
                let sums = &mut sums[start..start + count];
                match count {
                    1 => chains::<F, 1>(&quants, &scales, x, at, sums),
                    2 => chains::<F, 2>(&quants, &scales, x, at, sums),
                    3 => chains::<F, 3>(&quants, &scales, x, at, sums),
                    _ => chains::<F, CHAINS>(&quants, &scales, x, at, sums),
                }
                start += CHAINS;
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            _mm512_storeu_ps(out.as_mut_ptr(), sum);
        }
    }
}

fn adds<F: Format, W: Weights<F>>(_: &W) -> bool {
    W::ADDS
}

/// Adds what one group gives to the sums of `N` rows; `at` is the number of the group in the first of them.
///
/// Safety: the rows are there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn chains<F: Format, const N: usize>(
    quants: &[__m512i; STEPS],
    scales: &Scales,
    x: &Activations,
    at: usize,
    sums: &mut [__m512],
) {
    // SAFETY: the caller's word.
    unsafe {
        let at = |t: usize| at + t * x.groups;
        // Quants are stored with an offset, a power of two; its share of the dot product is taken off in advance.
        let share = |minus_sum: *const i32| match F::OFFSET {
            0 => _mm512_setzero_si512(),
            8 => _mm512_slli_epi32::<3>(_mm512_set1_epi32(*minus_sum)),
            16 => _mm512_slli_epi32::<4>(_mm512_set1_epi32(*minus_sum)),
            32 => _mm512_slli_epi32::<5>(_mm512_set1_epi32(*minus_sum)),
            _ => _mm512_slli_epi32::<7>(_mm512_set1_epi32(*minus_sum)),
        };
        let four = |t: usize, step: usize| {
            _mm512_set1_epi32(
                x.quants
                    .add(at(t) * GROUP)
                    .cast::<i32>()
                    .add(step)
                    .read_unaligned(),
            )
        };
        let add = |sum: &mut __m512, dot: __m512i, half: __m512, t: usize| {
            let scale = _mm512_mul_ps(half, _mm512_set1_ps(*x.scales.add(at(t))));
            *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, *sum);
        };
        if F::HALVES {
            let mut dots = [[_mm512_setzero_si512(); 2]; N];
            for (t, dots) in dots.iter_mut().enumerate() {
                *dots = [share(x.halves.add(2 * at(t))), share(x.halves.add(2 * at(t) + 1))];
            }
            for step in 0..STEPS / 2 {
                for (t, dots) in dots.iter_mut().enumerate() {
                    dots[0] = _mm512_dpbusd_epi32(dots[0], quants[step], four(t, step));
                    let step = step + STEPS / 2;
                    dots[1] = _mm512_dpbusd_epi32(dots[1], quants[step], four(t, step));
                }
            }
            for (t, (sum, dots)) in sums.iter_mut().zip(dots).enumerate() {
                add(sum, dots[0], scales.halves[0], t);
                add(sum, dots[1], scales.halves[1], t);
            }
        } else {
            let mut dots = [_mm512_setzero_si512(); N];
            for (t, dot) in dots.iter_mut().enumerate() {
                *dot = share(x.wholes.add(at(t)));
            }
            for (step, quants) in quants.iter().enumerate() {
                for (t, dot) in dots.iter_mut().enumerate() {
                    *dot = _mm512_dpbusd_epi32(*dot, *quants, four(t, step));
                }
            }
            for (t, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
                add(sum, dot, scales.halves[0], t);
                if F::MINS {
                    let total = _mm512_set1_ps(*x.totals.add(at(t)));
                    *sum = _mm512_fnmadd_ps(scales.min, total, *sum);
                }
            }
        }
    }
}
