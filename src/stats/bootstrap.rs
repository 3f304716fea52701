//! Percentile bootstrap of a mean of paired differences, over pairs or over clusters of them.
//!
//! Not bias-corrected and not studentised: the paper reports plain percentiles, and these are its order statistics.
//! Source: section 3 of the paper (10,000 draws; sampled lane: games resampled with all their repeats).

use super::Interval;
use crate::rng;

/// Draws behind a published interval.
pub const DRAWS: usize = 10_000;

/// Random stream of draw 0, apart from those of `sign_flip`.
const STREAM: u64 = 1 << 32;

/// The 95 % interval of the mean of `differences` (one per pair, treatment minus baseline), in their unit.
///
/// Value `i` of draw `d` is chosen by `rng(seed, STREAM + d, i)` from the sorted differences, so the interval
/// depends on the observations and the seed, not on the order of the pairs. `None` when there is nothing to
/// resample: fewer than two pairs, all differences equal, a non-finite one, or no draws.
pub fn paired(differences: &[f64], draws: usize, seed: u64) -> Option<Interval> {
    let clusters: Vec<[f64; 1]> = differences.iter().map(|&difference| [difference]).collect();
    clustered(&clusters, draws, seed)
}

/// The 95 % interval of the mean of all differences, when whole clusters are resampled with all their repeats.
///
/// A draw's mean is over its repeats, so that clusters of unequal size weigh by size. `None` when there is
/// nothing to resample: fewer than two non-empty clusters, all of the same mean, a non-finite difference, or no
/// draws. Empty clusters drop out.
pub fn clustered<C: AsRef<[f64]>>(clusters: &[C], draws: usize, seed: u64) -> Option<Interval> {
    let mut sums: Vec<(f64, f64)> = clusters
        .iter()
        .map(AsRef::as_ref)
        .filter(|repeats| !repeats.is_empty())
        .map(|repeats| (sum(repeats), repeats.len() as f64))
        .collect();
    if draws == 0 || sums.iter().any(|(sum, _)| !sum.is_finite()) || !varies(&sums) {
        return None;
    }
    sums.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut means: Vec<f64> = (0..draws as u64)
        .map(|draw| {
            let (mut total, mut repeats) = (0.0, 0.0);
            for i in 0..sums.len() as u64 {
                let (sum, count) = sums[rng::below(sums.len() as u64, seed, STREAM + draw, i) as usize];
                total += sum;
                repeats += count;
            }
            total / repeats
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let order_statistic = |share: f64| means[(share * (draws - 1) as f64) as usize];
    let interval = Interval {
        low: order_statistic(0.025),
        high: order_statistic(0.975),
    };
    (interval.low.is_finite() && interval.high.is_finite()).then_some(interval)
}

/// The sum, in sorted order so that it does not depend on the order of the repeats.
fn sum(repeats: &[f64]) -> f64 {
    let mut sorted = repeats.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.iter().sum()
}

/// Whether two clusters differ in their means by more than rounding.
fn varies(sums: &[(f64, f64)]) -> bool {
    let means = sums.iter().map(|(sum, count)| sum / count);
    let (low, high) = means.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), mean| {
        (low.min(mean), high.max(mean))
    });
    high - low > 1e-12 * low.abs().max(high.abs())
}
