//! Which scales to give the inputs of a layer before rounding, and which grids then: those of the AWQ paper (Lin et al.
//! 2023, section 3).
//!
//! Not the rounding. An input channel is multiplied by `s` in the weights and divided by it where it comes from, so that
//! the exact product stays and rounding hurts the channels that matter less. `s` is a power of the channel's mean size;
//! the exponent is the one that loses least on the activations that were seen. A grid that leaves a group's largest
//! numbers out is finer for all others.

use rayon::prelude::*;

use super::QuantizeError;
use super::grid::{Grid, whole};
use super::seen::Seen;

/// Exponents that are tried: 0, 1/20, .. 19/20. The first leaves the weights alone.
const EXPONENTS: usize = 20;

/// Shares of a group's range that are tried, on either side of 0.
const SHARES: [f32; 6] = [1.0, 0.92, 0.84, 0.76, 0.68, 0.6];

/// The best scales, and the error of the outputs with them and without: its square as a share of theirs, summed over
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
pub fn search(weights: &[&[f32]], seen: &Seen) -> Result<Found, QuantizeError> {
    let even = vec![1.0; seen.cols()];
    let mut wholes = Vec::new();
    for weight in weights {
        let itself = by_group(weight, seen, |_, number| number);
        wholes.push(total(&seen.squares(itself, &even)?).max(f64::MIN_POSITIVE));
    }
    let mut best: Option<Found> = None;
    let mut plain = 0.0;
    for index in 0..EXPONENTS {
        let scales = scales(&seen.sizes(), index as f64 / EXPONENTS as f64);
        let mut error = 0.0;
        for (weight, whole_square) in weights.iter().zip(&wholes) {
            let weight = scaled(weight, &scales);
            let squares = lost(&weight, seen, &scales, &whole(&weight, seen.group))?;
            error += total(&squares) / whole_square;
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

/// The scales `(cols,)` for sizes and an exponent, their largest and smallest as far above 1 as below.
fn scales(sizes: &[f64], exponent: f64) -> Vec<f32> {
    let powers: Vec<f64> = sizes.iter().map(|size| size.max(1e-4).powf(exponent)).collect();
    let most = powers.iter().copied().fold(0.0, f64::max);
    let least = powers.iter().copied().fold(f64::MAX, f64::min);
    let middle = (most * least).sqrt();
    powers.iter().map(|power| (power / middle) as f32).collect()
}

/// The grids `(rows, cols / group)` that lose least for a scaled weight `(rows, cols)`, each with its error.
///
/// # Errors
/// The library that multiplies matrices failed.
pub fn clip(weight: &[f32], seen: &Seen, scales: &[f32]) -> Result<Vec<Grid>, QuantizeError> {
    let per_row = seen.cols() / seen.group;
    let rows = weight.len() / seen.cols();
    let mut best = whole(weight, seen.group);
    let mut least = lost(weight, seen, scales, &best)?;
    let pairs = SHARES
        .iter()
        .flat_map(|below| SHARES.map(|above| [*below, above]));
    for shares in pairs.skip(1) {
        let tried: Vec<Grid> = weight
            .par_chunks(seen.group)
            .map(|numbers| Grid::over(numbers, shares))
            .collect();
        let squares = lost(weight, seen, scales, &tried)?;
        for (place, (square, least)) in squares.into_iter().zip(&mut least).enumerate() {
            if square < *least {
                *least = square;
                let place = place % rows * per_row + place / rows;
                best[place] = tried[place];
            }
        }
    }
    Ok(best)
}

/// What rounding a scaled weight to grids changes in the products with what was seen, squared `(cols / group, rows)`.
fn lost(weight: &[f32], seen: &Seen, scales: &[f32], grids: &[Grid]) -> candle_core::Result<Vec<f32>> {
    let changes = by_group(weight, seen, |place, number| {
        grids[place].nearest(number) - number
    });
    seen.squares(changes, scales)
}

/// A weight `(rows, cols)` by groups `(cols / group, rows, group)`, each number as `change` makes it from the place of its
/// group in `(rows, cols / group)` and the number.
fn by_group(weight: &[f32], seen: &Seen, change: impl Fn(usize, f32) -> f32 + Sync) -> Vec<f32> {
    let (cols, group) = (seen.cols(), seen.group);
    let rows = weight.len() / cols;
    let mut changed = vec![0.0; weight.len()];
    changed
        .par_chunks_mut(rows * group)
        .enumerate()
        .for_each(|(index, changed)| {
            for (row, changed) in changed.chunks_exact_mut(group).enumerate() {
                let place = row * (cols / group) + index;
                for (changed, number) in changed.iter_mut().zip(&weight[place * group..]) {
                    *changed = change(place, *number);
                }
            }
        });
    changed
}

fn total(squares: &[f32]) -> f64 {
    squares.iter().map(|square| f64::from(*square)).sum()
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
    use super::super::grid::round;
    use super::*;
    use crate::rng;

    const COLS: usize = 128;

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        (0..count)
            .map(|i| (rng::unit(seed, 1, i as u64) * 2.0 - 1.0) as f32)
            .collect()
    }

    /// Inputs of which one channel is fifty times as large as the others.
    fn inputs(rows: usize) -> Vec<f32> {
        let mut x = numbers(rows * COLS, 3);
        x.chunks_exact_mut(COLS).for_each(|row| row[5] *= 50.0);
        x
    }

    fn seen(inputs: &[f32]) -> Seen {
        let mut seen = Seen::nothing(COLS, 64);
        seen.add(inputs).unwrap();
        seen
    }

    /// Mean square by which the products of `inputs` with `weight` change when it becomes `rounded`.
    fn error(inputs: &[f32], weight: &[f32], rounded: &[f32]) -> f64 {
        let change = |row: &[f32], (w, r): (&[f32], &[f32])| -> f64 {
            let terms = row.iter().zip(w.iter().zip(r));
            terms.map(|(x, (w, r))| f64::from(x * (r - w))).sum()
        };
        let mut sum = 0.0;
        for row in inputs.chunks_exact(COLS) {
            let pairs = weight.chunks_exact(COLS).zip(rounded.chunks_exact(COLS));
            sum += pairs.map(|pair| change(row, pair).powi(2)).sum::<f64>();
        }
        sum / (inputs.len() / COLS) as f64
    }

    #[test]
    fn scales_lose_less_than_rounding_alone_and_never_more() {
        let weight = numbers(48 * COLS, 4);
        let inputs = inputs(64);
        let seen = seen(&inputs);
        let found = search(&[&weight, &weight[..8 * COLS]], &seen).unwrap();
        assert!(found.error < 0.7 * found.plain, "{found:?}");
        assert!(
            found.scales[5] > 2.0 * found.scales[6],
            "{:?}",
            &found.scales[4..8]
        );
        let product = found.scales.iter().copied().fold(0.0, f32::max)
            * found.scales.iter().copied().fold(f32::MAX, f32::min);
        assert!((product - 1.0).abs() < 1e-3);
        // On the products themselves.
        let plain = round(&weight, COLS, 64, &whole(&weight, 64)).decode();
        let heavy = scaled(&weight, &found.scales);
        let back: Vec<f32> = found.scales.iter().map(|scale| 1.0 / scale).collect();
        let better = scaled(&round(&heavy, COLS, 64, &whole(&heavy, 64)).decode(), &back);
        let (plain, better) = (error(&inputs, &weight, &plain), error(&inputs, &weight, &better));
        assert!(better < 0.7 * plain, "{better} {plain}");
        // Inputs that are all alike leave nothing to choose.
        let mut even = Seen::nothing(COLS, 64);
        even.add(&vec![1.0; 8 * COLS]).unwrap();
        let found = search(&[&weight], &even).unwrap();
        assert!(found.error <= found.plain);
        assert!(found.scales.iter().all(|s| (s - 1.0).abs() < 1e-6));
    }

    #[test]
    fn clipped_grids_lose_less() {
        // A number in each group that the inputs hardly ask for.
        let mut weight = numbers(16 * COLS, 5);
        weight.chunks_exact_mut(64).for_each(|group| group[9] = 2.0);
        let mut inputs = numbers(64 * COLS, 6);
        inputs.chunks_exact_mut(64).for_each(|group| group[9] *= 0.01);
        let seen = seen(&inputs);
        let even = vec![1.0; COLS];
        let clipped = clip(&weight, &seen, &even).unwrap();
        let loss = |grids: &[Grid]| error(&inputs, &weight, &round(&weight, COLS, 64, grids).decode());
        let (plain, better) = (loss(&whole(&weight, 64)), loss(&clipped));
        assert!(better < 0.7 * plain, "{better} {plain}");
    }
}
