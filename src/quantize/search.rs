//! Which scales to give the inputs of a layer before rounding: those of the AWQ paper (Lin et al. 2023, section 3).
//!
//! Not the rounding. An input channel is multiplied by `s` in the weights and divided by it where it comes from, so that
//! the exact product stays and rounding hurts the channels that matter less. `s` is a power of the channel's mean size;
//! the exponent is the one that loses least on activations that were seen.

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use super::QuantizeError;
use super::round::round_in_place;

/// Exponents that are tried: 0, 1/20, .. 19/20. The first leaves the weights alone.
const GRID: usize = 20;

/// What was seen of a layer's inputs.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Sum of sizes per channel `(cols,)`, and over how many rows.
    sums: Vec<f64>,
    rows: usize,
    /// Some of the rows `(rows, cols)`.
    sample: Vec<f32>,
}

impl Seen {
    /// Takes in rows `(rows, cols)`, of which every `stride`-th goes to the sample.
    pub fn add(&mut self, rows: &[f32], cols: usize, stride: usize) {
        self.sums.resize(cols, 0.0);
        for row in rows.chunks_exact(cols) {
            for (sum, x) in self.sums.iter_mut().zip(row) {
                *sum += f64::from(x.abs());
            }
            if self.rows.is_multiple_of(stride) {
                self.sample.extend_from_slice(row);
            }
            self.rows += 1;
        }
    }

    /// The scales `(cols,)` for an exponent, their largest and smallest as far above 1 as below.
    fn scales(&self, exponent: f64) -> Vec<f32> {
        let size = |sum: &f64| (sum / self.rows.max(1) as f64).max(1e-4).powf(exponent);
        let sizes: Vec<f64> = self.sums.iter().map(size).collect();
        let most = sizes.iter().copied().fold(0.0, f64::max);
        let least = sizes.iter().copied().fold(f64::MAX, f64::min);
        let middle = (most * least).sqrt();
        sizes.iter().map(|size| (size / middle) as f32).collect()
    }
}

/// The best scales, and the error of the outputs with them and without: its mean square as a share of theirs, summed over
/// the weights, so that none counts for more because its outputs are larger.
#[derive(Clone, Debug)]
pub struct Found {
    /// `(cols,)`.
    pub scales: Vec<f32>,
    /// With the scales.
    pub error: f64,
    /// With rounding alone.
    pub plain: f64,
}

/// Searches the scales for weights `(rows, cols)` that share their inputs.
///
/// # Errors
/// The library that multiplies matrices failed.
pub fn search(weights: &[&[f32]], cols: usize, group: usize, seen: &Seen) -> Result<Found, QuantizeError> {
    let sample = Tensor::from_slice(&seen.sample, (seen.sample.len() / cols, cols), &Device::Cpu)?;
    let mut sizes = Vec::new();
    for weight in weights {
        sizes.push(size(weight.to_vec(), cols, &sample)?.max(f64::MIN_POSITIVE));
    }
    let mut best: Option<Found> = None;
    let mut plain = 0.0;
    for index in 0..GRID {
        let scales = seen.scales(index as f64 / GRID as f64);
        let mut error = 0.0;
        for (weight, size) in weights.iter().zip(&sizes) {
            error += loss(weight, &scales, group, &sample)? / size;
        }
        if index == 0 {
            plain = error;
        }
        if best.as_ref().is_none_or(|best| error < best.error) {
            best = Some(Found { scales, error, plain });
        }
    }
    best.ok_or_else(|| QuantizeError::Calibration("nothing was tried".into()))
}

/// Mean square of what rounding the scaled weight changes in the products with the sample.
fn loss(weight: &[f32], scales: &[f32], group: usize, sample: &Tensor) -> Result<f64, QuantizeError> {
    let cols = scales.len();
    let mut change = scaled(weight, scales);
    round_in_place(&mut change, group);
    change
        .par_chunks_mut(cols)
        .zip(weight.par_chunks(cols))
        .for_each(|(change, weight)| {
            for ((change, weight), scale) in change.iter_mut().zip(weight).zip(scales) {
                *change = *change / scale - weight;
            }
        });
    size(change, cols, sample)
}

/// Mean square of the products of a weight `(rows, cols)` with the sample.
fn size(weight: Vec<f32>, cols: usize, sample: &Tensor) -> Result<f64, QuantizeError> {
    let shape = (weight.len() / cols, cols);
    let weight = Tensor::from_vec(weight, shape, &Device::Cpu)?;
    let outputs = sample.matmul(&weight.t()?)?;
    Ok(f64::from(outputs.sqr()?.mean_all()?.to_scalar::<f32>()?))
}

/// A weight `(rows, cols)` with its columns multiplied by `scales` `(cols,)`.
pub fn scaled(weight: &[f32], scales: &[f32]) -> Vec<f32> {
    let mut out = weight.to_vec();
    out.par_chunks_mut(scales.len()).for_each(|row| {
        for (x, scale) in row.iter_mut().zip(scales) {
            *x *= scale;
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    /// Inputs of which one channel is fifty times as large as the others.
    fn inputs(rows: usize, cols: usize) -> Vec<f32> {
        let x = |i: usize| (rng::unit(3, 1, i as u64) * 2.0 - 1.0) as f32;
        (0..rows * cols)
            .map(|i| x(i) * if i % cols == 5 { 50.0 } else { 1.0 })
            .collect()
    }

    #[test]
    fn scales_lose_less_than_rounding_alone_and_never_more() {
        let (rows, cols) = (48, 128);
        let weight: Vec<f32> = (0..rows * cols)
            .map(|i| (rng::unit(4, 1, i as u64) * 2.0 - 1.0) as f32)
            .collect();
        let mut seen = Seen::default();
        seen.add(&inputs(64, cols), cols, 2);
        assert_eq!(seen.sample.len(), 32 * cols);
        let found = search(&[&weight, &weight[..8 * cols]], cols, 64, &seen).unwrap();
        assert!(found.error < 0.7 * found.plain, "{found:?}");
        assert!(
            found.scales[5] > 2.0 * found.scales[6],
            "{:?}",
            &found.scales[4..8]
        );
        let product = found.scales.iter().copied().fold(0.0, f32::max)
            * found.scales.iter().copied().fold(f32::MAX, f32::min);
        assert!((product - 1.0).abs() < 1e-3);
        // Inputs that are all alike leave nothing to choose.
        let mut even = Seen::default();
        even.add(&vec![1.0; 8 * cols], cols, 1);
        let found = search(&[&weight], cols, 64, &even).unwrap();
        assert!(found.error <= found.plain);
        assert!(found.scales.iter().all(|s| (s - 1.0).abs() < 1e-6));
    }
}
