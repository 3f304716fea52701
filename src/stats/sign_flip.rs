//! Sign-flip permutation test of a mean difference of zero, on one difference per cluster.
//!
//! Not an enumeration: the published figure is the sampled one, (extreme + 1) / (draws + 1), even where 2^n is
//! small; the tests compare it with the enumeration. Source: section 3 of the paper (100,000 game-level flips).

use crate::rng;

/// Draws behind a published p-value.
pub const DRAWS: u64 = 100_000;

/// Random stream of draw 0, apart from those of `bootstrap`.
const STREAM: u64 = 2 << 32;

/// Sums within this share of the sum of magnitudes are ties: thirds do not add up exactly.
const TIE: f64 = 1e-9;

/// Two-sided p-value in `(0, 1]` from `differences`, one per cluster (the mean over its repeats).
///
/// A draw flips each difference by a fair bit of `rng(seed, STREAM + draw, word)` and is extreme when the sum is
/// at least as far from zero as the observed one; ties count. The magnitudes are sorted first, so the value does
/// not depend on the order of the clusters or on which condition is the baseline. 1 when every difference is
/// zero, and for one cluster; `None` for no clusters, a non-finite difference or sum of magnitudes, or no draws.
pub fn p_value(differences: &[f64], draws: u64, seed: u64) -> Option<f64> {
    let mut magnitudes: Vec<f64> = differences.iter().map(|d| d.abs()).collect();
    magnitudes.sort_by(f64::total_cmp);
    let total: f64 = magnitudes.iter().sum();
    if draws == 0 || magnitudes.is_empty() || !total.is_finite() {
        return None;
    }
    let observed = differences.iter().sum::<f64>().abs();
    let threshold = observed - TIE * total;
    let extreme = (0..draws)
        .filter(|&draw| flipped(&magnitudes, seed, STREAM + draw).abs() >= threshold)
        .count();
    Some((extreme as f64 + 1.0) / (draws as f64 + 1.0))
}

/// The sum of `magnitudes`, each with a random sign; 64 signs a word.
fn flipped(magnitudes: &[f64], seed: u64, stream: u64) -> f64 {
    let mut sum = 0.0;
    for (index, chunk) in magnitudes.chunks(64).enumerate() {
        let signs = rng::value(seed, stream, index as u64);
        for (bit, magnitude) in chunk.iter().enumerate() {
            sum += if signs >> bit & 1 == 1 {
                *magnitude
            } else {
                -magnitude
            };
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degenerate_inputs() {
        assert_eq!(p_value(&[], DRAWS, 1), None);
        assert_eq!(p_value(&[1.0], 0, 1), None);
        assert_eq!(p_value(&[1.0, f64::NAN], 100, 1), None);
        assert_eq!(p_value(&[f64::MAX, f64::MAX], 100, 1), None);
        assert_eq!(p_value(&[0.0, 0.0, -0.0], 100, 1), Some(1.0));
        assert_eq!(p_value(&[0.7], 100, 1), Some(1.0));
    }

    /// Beyond 64 clusters a second word supplies the signs.
    #[test]
    fn more_clusters_than_bits_in_a_word() {
        let p = p_value(&[1.0; 70], 10_000, 3).unwrap();
        assert_eq!(p, 1.0 / 10_001.0);
        let balanced: Vec<f64> = (0..70).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        assert_eq!(p_value(&balanced, 10_000, 3), Some(1.0));
    }
}
