//! What this processor can do at most: bytes read and products of bytes made per second, measured.
//!
//! Not a model's speed: `bench` sets that beside these, which no kernel can beat.

use std::time::Instant;

use super::isa::{Isa, Level, for_each_isa};
use super::pool::{Parts, Pool};

/// Bytes that a thread reads: more than caches hold.
const BYTES: usize = 256 << 20;
/// Rounds, of which the best counts.
const ROUNDS: usize = 4;
/// Times that the products of [`products`] are made per round.
const REPEATS: usize = 1 << 22;

/// Bytes per second that all threads read from memory together.
pub(super) fn read(pool: &Pool, isa: Isa) -> f64 {
    let words = vec![1u64; pool.threads() * BYTES / 8];
    best(pool, BYTES as f64, |thread| {
        let mut total = 0;
        sum(isa, &words[thread * BYTES / 8..][..BYTES / 8], &mut total);
        total
    })
}

/// Products of 8-bit numbers per second, sums included, that all threads make together.
pub(super) fn multiply(pool: &Pool, isa: Isa) -> f64 {
    best(pool, (REPEATS * PRODUCTS) as f64, |_| products(isa))
}

/// The most that all threads together did per second, each of them `work` per call.
fn best(pool: &Pool, work: f64, task: impl Fn(usize) -> u64 + Sync) -> f64 {
    let threads = pool.threads();
    let mut results = vec![0; threads];
    let rounds = (0..ROUNDS).map(|_| {
        let started = Instant::now();
        let parts = Parts::of(&mut results);
        pool.each(threads, |thread| {
            // SAFETY: each task has its own number.
            unsafe { parts.part(thread, 1) }.fill(std::hint::black_box(task(thread)));
        });
        work * threads as f64 / started.elapsed().as_secs_f64()
    });
    rounds.fold(0.0, f64::max)
}

for_each_isa! {
    /// Adds up words.
    fn sum(words: &[u64], total: &mut u64) {
        *total = words.iter().fold(0, |all, word| all.wrapping_add(*word));
    }
}

/// Products of one repeat: ten vectors of 64.
const PRODUCTS: usize = 640;

fn products(isa: Isa) -> u64 {
    match isa.level() {
        // SAFETY: an `Isa` of this level exists only on a processor that has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512() },
        _ => {
            let mut total = 0;
            by_number(isa, &mut total);
            total
        }
    }
}

for_each_isa! {
    /// As the kernels without VNNI do it: 16-bit products, added in 32 bits.
    fn by_number(total: &mut u64) {
        let mut sums = [0i32; 32];
        let x: [i16; 640] = std::hint::black_box([3; 640]);
        for repeat in 0..REPEATS / 8 {
            let y = std::hint::black_box(repeat as i16);
            for _ in 0..8 {
                for x in x.as_chunks::<64>().0 {
                    for (sum, x) in sums.iter_mut().zip(x.as_chunks::<2>().0) {
                        let pair = i32::from(x[0]) * i32::from(y) + i32::from(x[1]) * i32::from(y);
                        *sum = sum.wrapping_add(pair);
                    }
                }
            }
        }
        *total = sums.iter().fold(0, |all, sum| all.wrapping_add(*sum as u64));
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
fn avx512() -> u64 {
    use std::arch::x86_64::*;
    let (x, y) = (_mm512_set1_epi8(3), _mm512_set1_epi8(5));
    let mut sums = [_mm512_setzero_si512(); PRODUCTS / 64];
    for _ in 0..REPEATS {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, x, y);
        }
        // Without this the loop is worked out in advance.
        std::hint::black_box(());
    }
    let sums = sums.map(|sum| _mm512_reduce_add_epi32(sum) as u64);
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}
