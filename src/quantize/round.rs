//! Weights to 4 bits: for each group of inputs of an output a step and a zero point, numbers to the nearest step.
//!
//! Not the choice of what is rounded (`search` scales it first), and not files.

use half::f16;
use rayon::prelude::*;

use crate::model::weights::Awq;

/// Largest number of a quant.
const MOST: f32 = 15.0;

/// Step and zero point of a group of numbers, whose range is widened to hold 0.
fn steps(numbers: &[f32]) -> (f16, f32) {
    let low = numbers.iter().copied().fold(0.0, f32::min);
    let high = numbers.iter().copied().fold(0.0, f32::max);
    let step = f16::from_f32(((high - low) / MOST).max(1e-5));
    (step, (-low / step.to_f32()).round().clamp(0.0, MOST))
}

fn quant(number: f32, step: f32, zero: f32) -> f32 {
    ((number / step).round() + zero).clamp(0.0, MOST)
}

/// What rounding makes of the rows of `weight` `(rows, cols)`, in place. `cols` is a multiple of `group`.
pub fn round_in_place(weight: &mut [f32], group: usize) {
    weight.par_chunks_mut(group).for_each(|numbers| {
        let (step, zero) = steps(numbers);
        let step = step.to_f32();
        for number in numbers {
            *number = (quant(*number, step, zero) - zero) * step;
        }
    });
}

/// Rounds a weight `(rows, cols)`; `rows` is a multiple of 8 and `cols` one of `group`.
pub fn round(weight: &[f32], cols: usize, group: usize) -> Awq {
    let rows = weight.len() / cols;
    let mut awq = Awq::zeroed(rows, cols, group);
    let steps: Vec<(f16, f32)> = weight.par_chunks(group).map(steps).collect();
    let per_row = cols / group;
    awq.scales
        .par_chunks_mut(rows)
        .zip(awq.qzeros.par_chunks_mut(rows / 8))
        .enumerate()
        .for_each(|(index, (scales, zeros))| {
            for (row, scale) in scales.iter_mut().enumerate() {
                let (step, zero) = steps[row * per_row + index];
                *scale = step.to_bits();
                Awq::put(zeros, row, zero as u8);
            }
        });
    awq.qweight
        .par_chunks_mut(rows / 8)
        .enumerate()
        .for_each(|(col, words)| {
            for row in 0..rows {
                let (step, zero) = steps[row * per_row + col / group];
                let quant = quant(weight[row * cols + col], step.to_f32(), zero);
                Awq::put(words, row, quant as u8);
            }
        });
    awq
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    fn weight(rows: usize, cols: usize, seed: u64) -> Vec<f32> {
        (0..rows * cols)
            .map(|i| (rng::unit(seed, 1, i as u64) * 2.0 - 1.0) as f32 * if i % 97 == 0 { 6.0 } else { 1.0 })
            .collect()
    }

    #[test]
    fn packed_numbers_are_the_rounded_ones_and_within_half_a_step() {
        for (seed, (rows, cols, group)) in [(8, 32, 32), (24, 256, 64), (40, 384, 128)]
            .into_iter()
            .enumerate()
        {
            let weight = weight(rows, cols, seed as u64);
            let awq = round(&weight, cols, group);
            let mut rounded = weight.clone();
            round_in_place(&mut rounded, group);
            assert_eq!(awq.decode(), rounded);
            for (index, (x, y)) in weight.iter().zip(&rounded).enumerate() {
                let scale = f16::from_bits(awq.scale(index / cols, index % cols / group)).to_f32();
                // The zero point is rounded too, and so is the step, to float16.
                assert!((x - y).abs() <= 1.01 * scale, "{x} {y} {scale}");
            }
        }
    }

    #[test]
    fn groups_of_one_sign_and_of_nothing_keep_their_range() {
        for numbers in [[3.0; 32], [-3.0; 32], [0.0; 32]] {
            let mut rounded = numbers;
            round_in_place(&mut rounded, 32);
            let close = |(a, b): (&f32, &f32)| (a - b).abs() < 2e-3;
            assert!(numbers.iter().zip(&rounded).all(close), "{rounded:?}");
        }
    }
}
