//! What is kept of the inputs that a layer was seen to get: sizes, and how the inputs of a group go together.
//!
//! Not where they are seen (`backend::cpu::Site`) and not what follows from them (`search`, `clip`).

use candle_core::{Device, Tensor};

/// Statistics of a site's inputs over all rows seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Inputs of a group.
    pub group: usize,
    rows: usize,
    /// Sum of sizes per input `(cols,)`.
    sums: Vec<f64>,
    /// Sums of products of two inputs of the same group `(cols / group, group, group)`, symmetric.
    products: Vec<f32>,
}

impl Seen {
    /// Nothing yet, of `cols` inputs in groups of `group`.
    pub fn nothing(cols: usize, group: usize) -> Self {
        Self {
            group,
            rows: 0,
            sums: vec![0.0; cols],
            products: vec![0.0; cols * group],
        }
    }

    /// Takes in rows `(rows, cols)`.
    ///
    /// # Errors
    /// The library that multiplies matrices failed.
    pub fn add(&mut self, rows: &[f32]) -> candle_core::Result<()> {
        let (cols, group) = (self.cols(), self.group);
        let count = rows.len() / cols;
        self.rows += count;
        for row in rows.chunks_exact(cols) {
            for (sum, x) in self.sums.iter_mut().zip(row) {
                *sum += f64::from(x.abs());
            }
        }
        let rows = Tensor::from_slice(rows, (count, cols / group, group), &Device::Cpu)?;
        let by_group = rows.transpose(0, 1)?.contiguous()?;
        let new = by_group.transpose(1, 2)?.contiguous()?.matmul(&by_group)?;
        let new: Vec<f32> = new.flatten_all()?.to_vec1()?;
        for (product, new) in self.products.iter_mut().zip(new) {
            *product += new;
        }
        Ok(())
    }

    /// Inputs of a row.
    pub fn cols(&self) -> usize {
        self.sums.len()
    }

    /// Mean size of each input `(cols,)`.
    pub fn sizes(&self) -> Vec<f64> {
        let rows = self.rows.max(1) as f64;
        self.sums.iter().map(|sum| sum / rows).collect()
    }

    /// Gives inputs that must have one scale the mean of their sizes: `heads` heads of `dim` that follow one another
    /// share a value head.
    pub fn tie(&mut self, heads: usize, dim: usize) {
        for shared in self.sums.chunks_exact_mut(heads * dim) {
            for channel in 0..dim {
                let places = (0..heads).map(|head| head * dim + channel);
                let mean = places.clone().map(|place| shared[place]).sum::<f64>() / heads as f64;
                places.for_each(|place| shared[place] = mean);
            }
        }
    }

    /// What changes of a weight do to its outputs: for each group of inputs of each output, the sum over all rows of the
    /// square by which its products with the inputs change, when the inputs are divided by `scales` `(cols,)`. Groups
    /// count by themselves: they are rounded independently, so their squares add up. `changes` `(cols / group, rows,
    /// group)` to squares `(cols / group, rows)`.
    ///
    /// # Errors
    /// The library that multiplies matrices failed.
    pub fn squares(&self, changes: Vec<f32>, scales: &[f32]) -> candle_core::Result<Vec<f32>> {
        let (group, groups) = (self.group, self.cols() / self.group);
        let shape = (groups, changes.len() / self.cols(), group);
        let changes = Tensor::from_vec(changes, shape, &Device::Cpu)?;
        let products = Tensor::from_vec(self.scaled(scales), (groups, group, group), &Device::Cpu)?;
        let squares = changes.matmul(&products)?.mul(&changes)?.sum(2)?;
        squares.flatten_all()?.to_vec1()
    }

    fn scaled(&self, scales: &[f32]) -> Vec<f32> {
        let group = self.group;
        let mut products = self.products.clone();
        for (products, scales) in products
            .chunks_exact_mut(group * group)
            .zip(scales.chunks_exact(group))
        {
            for (products, a) in products.chunks_exact_mut(group).zip(scales) {
                for (product, b) in products.iter_mut().zip(scales) {
                    *product /= a * b;
                }
            }
        }
        products
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        (0..count)
            .map(|i| (rng::unit(seed, 1, i as u64) * 2.0 - 1.0) as f32)
            .collect()
    }

    #[test]
    fn squares_are_those_of_the_changed_outputs() {
        let (rows, cols, group, outputs) = (7, 64, 32, 5);
        let (inputs, changes) = (numbers(rows * cols, 1), numbers(outputs * cols, 2));
        let scales: Vec<f32> = numbers(cols, 3).iter().map(|x| x.abs() + 0.5).collect();
        let mut seen = Seen::nothing(cols, group);
        seen.add(&inputs[..3 * cols]).unwrap();
        seen.add(&inputs[3 * cols..]).unwrap();
        let found = seen.squares(changes.clone(), &scales).unwrap();
        for index in 0..cols / group {
            for output in 0..outputs {
                let change = &changes[(index * outputs + output) * group..][..group];
                let product = |row: &[f32]| -> f32 {
                    let places = index * group..(index + 1) * group;
                    places.map(|i| row[i] / scales[i] * change[i % group]).sum()
                };
                let right: f32 = inputs.chunks(cols).map(|row| product(row).powi(2)).sum();
                let found = found[index * outputs + output];
                assert!((found - right).abs() < 1e-4 * right.max(1.0), "{found} {right}");
            }
        }
        let mean = |i: usize| {
            inputs
                .chunks(cols)
                .map(|row| f64::from(row[i].abs()))
                .sum::<f64>()
                / 7.0
        };
        for (i, size) in seen.sizes().into_iter().enumerate() {
            assert!((size - mean(i)).abs() < 1e-12);
        }
    }

    #[test]
    fn tied_inputs_have_one_size() {
        let mut seen = Seen::nothing(32, 32);
        seen.add(&(0..32).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        // Two value heads of four numbers, each for four heads.
        seen.tie(4, 4);
        let sizes = seen.sizes();
        assert_eq!(sizes[..5], [6.0, 7.0, 8.0, 9.0, 6.0]);
        assert_eq!(sizes[16..18], [22.0, 23.0]);
    }
}
