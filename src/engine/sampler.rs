//! Logits to a token.
//!
//! Not a stateful sampler: a draw is a function of the logits, the settings and its coordinates
//! (seed, row, call, position) and the tokens before it, so a resumed row draws what an uninterrupted one would have.

use super::grammar::Mask;
use super::{EngineError, Sampling};
use crate::backend::Largest;
use crate::rng;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashSet;

/// The random stream of one call of one row.
pub fn stream(row: &str, call: u32) -> u64 {
    let hash = Sha256::new_with_prefix(row)
        .chain_update([0])
        .chain_update(call.to_le_bytes())
        .finalize();
    let mut head = [0; 8];
    head.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(head)
}

/// Chooses the token behind `tokens`, a prompt and its completion so far, from `logits` `(vocab,)`. Ties go to the
/// lowest id.
///
/// # Errors
/// [`EngineError::NonFinite`] when any logit is NaN or infinite.
pub fn sample(
    logits: &[f32],
    sampling: &Sampling,
    tokens: &[u32],
    seed: u64,
    stream: u64,
) -> Result<u32, EngineError> {
    sample_allowed(logits, sampling, tokens, (seed, stream), None)
}

/// The token of the largest logit, behind `position` tokens.
///
/// # Errors
/// As [`sample`].
pub(super) fn likeliest(largest: Largest, position: usize) -> Result<u32, EngineError> {
    match largest.non_finite > 0 || largest.of == 0 {
        true => Err(EngineError::NonFinite {
            count: largest.non_finite,
            vocab: largest.of,
            position,
        }),
        false => Ok(largest.id),
    }
}

/// As [`sample`], of those tokens that `mask` allows; it allows one at least.
///
/// # Errors
/// As [`sample`].
pub(super) fn sample_allowed(
    logits: &[f32],
    sampling: &Sampling,
    tokens: &[u32],
    (seed, stream): (u64, u64),
    mask: Option<&Mask>,
) -> Result<u32, EngineError> {
    let position = tokens.len();
    let largest = likeliest(Largest::among(logits), position)?;
    if sampling.only_largest() && mask.is_none() {
        return Ok(largest);
    }
    let mut logits = penalised(logits, sampling.repetition_penalty, tokens);
    if let Some(mask) = mask {
        for (id, logit) in logits.to_mut().iter_mut().enumerate() {
            if !mask.allows(id) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
    if sampling.is_greedy() {
        return Ok(argmax(&logits));
    }
    let candidates = nucleus(&logits, sampling);
    let total: f64 = candidates.iter().map(|(_, p)| p).sum();
    let mut left = rng::unit(seed, stream, position as u64) * total;
    for &(id, p) in &candidates {
        left -= p;
        if left < 0.0 {
            return Ok(id);
        }
    }
    // Rounding can leave a sliver above the last weight.
    Ok(candidates.last().map_or_else(|| argmax(&logits), |&(id, _)| id))
}

/// The logits with each distinct token of `tokens` made less likely (above a penalty of 1), and still finite.
fn penalised<'a>(logits: &'a [f32], penalty: f64, tokens: &[u32]) -> Cow<'a, [f32]> {
    if penalty == 1.0 {
        return Cow::Borrowed(logits);
    }
    let mut logits = logits.to_vec();
    for id in tokens.iter().copied().collect::<HashSet<u32>>() {
        if let Some(logit) = logits.get_mut(id as usize) {
            let x = f64::from(*logit);
            let changed = if x > 0.0 { x / penalty } else { x * penalty };
            *logit = changed.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
        }
    }
    Cow::Owned(logits)
}

fn argmax(logits: &[f32]) -> u32 {
    Largest::among(logits).id
}

/// The tokens that top-k, top-p and min-p leave, with unnormalised weights, likeliest first.
fn nucleus(logits: &[f32], sampling: &Sampling) -> Vec<(u32, f64)> {
    let top = f64::from(logits[argmax(logits) as usize]);
    let weight = |x: f32| ((f64::from(x) - top) / sampling.temperature).exp();
    let mut kept: Vec<(u32, f64)> = logits
        .iter()
        .enumerate()
        .map(|(id, &x)| (id as u32, weight(x)))
        .filter(|&(_, w)| w >= sampling.min_p && w > 0.0)
        .collect();
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if sampling.top_k > 0 {
        kept.truncate(sampling.top_k);
    }
    let goal = sampling.top_p * kept.iter().map(|(_, w)| w).sum::<f64>();
    let mut mass = 0.0;
    let enough = kept.iter().position(|(_, w)| {
        mass += w;
        mass >= goal
    });
    kept.truncate(enough.map_or(kept.len(), |i| i + 1));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn warm(top_p: f64, top_k: usize, min_p: f64) -> Sampling {
        Sampling {
            temperature: 0.7,
            top_p,
            top_k,
            min_p,
            max_tokens: 1,
            ..Sampling::default()
        }
    }

    fn before(position: usize) -> Vec<u32> {
        vec![0; position]
    }

    #[test]
    fn greedy_takes_the_first_of_equals() {
        assert_eq!(
            sample(&[0.0, 3.0, 3.0, -1.0], &Sampling::default(), &[], 0, 0).unwrap(),
            1
        );
    }

    #[test]
    fn non_finite_logits_are_an_error_and_counted() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = sample(&[0.0, bad, 1.0], &Sampling::default(), &before(7), 0, 0).unwrap_err();
            assert_eq!(error.to_string(), "non-finite logits: 1 of 3 at position 7");
        }
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let logits = [0.0f32, 0.7, 1.4];
        let sampling = warm(1.0, 0, 0.0);
        let mut seen = [0u32; 3];
        let tokens = before(20_000);
        for position in 0..20_000 {
            seen[sample(&logits, &sampling, &tokens[..position], 5, stream("row", 1)).unwrap() as usize] += 1;
        }
        let weights: Vec<f64> = logits.iter().map(|&x| (f64::from(x) / 0.7).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (n, w) in seen.iter().zip(&weights) {
            assert!((f64::from(*n) / 20_000.0 - w / total).abs() < 0.02, "{seen:?}");
        }
    }

    #[test]
    fn cuts_leave_only_what_they_allow() {
        let logits = [4.0f32, 3.0, 0.0, -5.0];
        let ids = |s: Sampling| {
            nucleus(&logits, &s)
                .into_iter()
                .map(|(id, _)| id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(warm(1.0, 2, 0.0)), [0, 1]);
        assert_eq!(ids(warm(0.5, 0, 0.0)), [0]);
        assert_eq!(ids(warm(1.0, 0, 0.1)), [0, 1]);
        assert_eq!(ids(warm(0.0, 0, 0.0)), [0], "the likeliest token always stays");
    }

    #[test]
    fn a_penalty_counts_each_token_once_and_works_greedily_too() {
        let logits = [4.0f32, 3.0, -1.0, 0.0];
        assert_eq!(
            penalised(&logits, 2.0, &[0, 2, 0, 3, 77]).as_ref(),
            [2.0, 3.0, -2.0, 0.0]
        );
        assert_eq!(penalised(&logits, 0.5, &[1, 2]).as_ref(), [4.0, 6.0, -0.5, 0.0]);
        assert!(matches!(penalised(&logits, 1.0, &[0]), Cow::Borrowed(_)));
        let greedy = |repetition_penalty| {
            let sampling = Sampling {
                repetition_penalty,
                ..Sampling::default()
            };
            sample(&logits, &sampling, &[0, 0], 0, 0).unwrap()
        };
        assert_eq!((greedy(1.0), greedy(1.3), greedy(1.4)), (0, 0, 1));
    }

    #[test]
    fn the_smallest_penalty_leaves_numbers() {
        let mut sampling = warm(1.0, 0, 0.0);
        sampling.repetition_penalty = f64::MIN_POSITIVE;
        assert_eq!(sample(&[1.0, 2.0, 3.0], &sampling, &[1], 0, 0).unwrap(), 1);
    }

    proptest! {
        #[test]
        fn a_draw_is_a_token_and_repeats(
            logits in prop::collection::vec(-30f32..30.0, 1..50),
            top_p in 0.0..=1.0f64, top_k in 0usize..5, min_p in 0.0..=1.0f64, seed: u64, position in 0usize..9,
        ) {
            let sampling = warm(top_p, top_k, min_p);
            let before = before(position);
            let a = sample(&logits, &sampling, &before, seed, 1).unwrap();
            prop_assert!((a as usize) < logits.len());
            prop_assert_eq!(a, sample(&logits, &sampling, &before, seed, 1).unwrap());
        }
    }
}
