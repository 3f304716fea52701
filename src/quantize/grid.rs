//! Weights to 4 bits: for each group of inputs of an output a step and a zero point, numbers to the nearest step.
//!
//! Not the choice of what is rounded (`search` scales it first) nor of how far a grid reaches (`clip`), and not files.

use half::f16;
use rayon::prelude::*;

use crate::model::weights::Awq;

/// Largest number of a quant.
const MOST: f32 = 15.0;

/// Step and zero point of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// A float16 number.
    step: f32,
    zero: f32,
}

impl Grid {
    /// A grid over shares, up to 1, of the range of the numbers below and above 0. Numbers beyond its ends go to them.
    pub fn over(numbers: &[f32], [below, above]: [f32; 2]) -> Self {
        let low = numbers.iter().copied().fold(0.0, f32::min);
        let high = numbers.iter().copied().fold(0.0, f32::max);
        let (low, high) = (below * low, above * high);
        let step = f16::from_f32(((high - low) / MOST).max(1e-5)).to_f32();
        let zero = (-low / step).round().clamp(0.0, MOST);
        Self { step, zero }
    }

    fn quant(self, number: f32) -> f32 {
        // Adding and taking away rounds to whole numbers, halves to even ones, without a call per number.
        const TO_WHOLE: f32 = 12_582_912.0;
        let steps = number / self.step + TO_WHOLE - TO_WHOLE;
        (steps + self.zero).clamp(0.0, MOST)
    }

    /// The place on the grid nearest to a number.
    pub fn nearest(self, number: f32) -> f32 {
        (self.quant(number) - self.zero) * self.step
    }
}

/// The grids `(rows, cols / group)` that leave no number of a weight `(rows, cols)` out.
pub fn whole(weight: &[f32], group: usize) -> Vec<Grid> {
    let grid = |numbers| Grid::over(numbers, [1.0; 2]);
    weight.par_chunks(group).map(grid).collect()
}

/// Rounds a weight `(rows, cols)` to its grids `(rows, cols / group)`; `rows` is a multiple of 8.
pub fn round(weight: &[f32], cols: usize, group: usize, grids: &[Grid]) -> Awq {
    let rows = weight.len() / cols;
    let mut awq = Awq::zeroed(rows, cols, group);
    let per_row = cols / group;
    awq.scales
        .par_chunks_mut(rows)
        .zip(awq.qzeros.par_chunks_mut(rows / 8))
        .enumerate()
        .for_each(|(index, (scales, zeros))| {
            for (row, scale) in scales.iter_mut().enumerate() {
                let Grid { step, zero } = grids[row * per_row + index];
                *scale = f16::from_f32(step).to_bits();
                Awq::put(zeros, row, zero as u8);
            }
        });
    awq.qweight
        .par_chunks_mut(rows / 8)
        .enumerate()
        .for_each(|(col, words)| {
            for row in 0..rows {
                let grid = grids[row * per_row + col / group];
                Awq::put(words, row, grid.quant(weight[row * cols + col]) as u8);
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
    fn packed_numbers_are_the_nearest_ones_and_within_a_step() {
        for (seed, (rows, cols, group)) in [(8, 32, 32), (24, 256, 64), (40, 384, 128)]
            .into_iter()
            .enumerate()
        {
            let weight = weight(rows, cols, seed as u64);
            let grids = whole(&weight, group);
            let decoded = round(&weight, cols, group, &grids).decode();
            for (index, (x, y)) in weight.iter().zip(&decoded).enumerate() {
                let grid = grids[index / group];
                assert_eq!(*y, grid.nearest(*x));
                // The zero point is rounded too, and so is the step, to float16.
                assert!((x - y).abs() <= 1.01 * grid.step, "{x} {y} {grid:?}");
            }
        }
    }

    #[test]
    fn groups_of_one_sign_and_of_nothing_keep_their_range() {
        for numbers in [[3.0; 32], [-3.0; 32], [0.0; 32]] {
            let grid = Grid::over(&numbers, [1.0; 2]);
            assert!((grid.nearest(numbers[0]) - numbers[0]).abs() < 2e-3, "{grid:?}");
        }
    }

    #[test]
    fn a_narrow_grid_is_finer_and_cuts() {
        let grid = Grid::over(&[-8.0, 0.0, 3.0], [0.5, 1.0]);
        assert!((grid.nearest(-8.0) + 4.0).abs() < 0.25 && (grid.nearest(3.0) - 3.0).abs() < 0.25);
        assert!((grid.step - 7.0 / 15.0).abs() < 1e-3, "{grid:?}");
    }
}
