//! How far the logits of one backend are from those of another.
//!
//! Not a judgement of either: numbers over the positions of some prompts.

use crate::backend::{BLOCK, Backend, BackendError, BlockId, Step};
use serde::Serialize;

/// Differences over all positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Losses {
    /// Positions compared.
    pub positions: usize,
    /// Mean over positions of the Kullback-Leibler divergence from the source's distribution, in nats.
    pub kl: f64,
    /// Mean size of a logit's difference.
    pub mean: f64,
    /// Largest size of a logit's difference.
    pub largest: f64,
    /// Positions at which both have the same likeliest token.
    pub agree: usize,
}

/// Compares the logits at every position of `prompts`, computed in pieces of [`BLOCK`].
///
/// # Errors
/// A backend fails, or the two have different vocabularies.
pub fn compare(
    source: &mut dyn Backend,
    other: &mut dyn Backend,
    prompts: &[Vec<u32>],
) -> Result<Losses, BackendError> {
    if source.vocab() != other.vocab() {
        return Err(BackendError::Step {
            what: "vocabulary",
            expected: source.vocab(),
            found: other.vocab(),
        });
    }
    let blocks = prompts
        .iter()
        .map(|prompt| prompt.len().div_ceil(BLOCK))
        .max()
        .unwrap_or(0);
    source.reserve(blocks)?;
    other.reserve(blocks)?;
    let ids: Vec<BlockId> = (0..blocks as u32).map(BlockId).collect();
    let (mut losses, mut sum) = (Losses::default(), 0.0);
    for prompt in prompts {
        for (index, tokens) in prompt.chunks(BLOCK).enumerate() {
            let step = [Step {
                tokens,
                start: index * BLOCK,
                blocks: &ids,
                logits: tokens.len(),
            }];
            let (a, b) = (source.forward(&step)?.concat(), other.forward(&step)?.concat());
            for (a, b) in a.chunks_exact(source.vocab()).zip(b.chunks_exact(source.vocab())) {
                let sizes = a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs()));
                let (mut total, mut most) = (0.0, 0.0f64);
                for size in sizes {
                    total += size;
                    most = most.max(size);
                }
                sum += total / a.len() as f64;
                losses.largest = losses.largest.max(most);
                losses.kl += divergence(a, b);
                losses.agree += usize::from(likeliest(a) == likeliest(b));
                losses.positions += 1;
            }
        }
    }
    let count = losses.positions.max(1) as f64;
    losses.kl /= count;
    losses.mean = sum / count;
    Ok(losses)
}

fn likeliest(logits: &[f32]) -> Option<usize> {
    let all = logits.iter().enumerate();
    all.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)))
        .map(|(id, _)| id)
}

/// KL(softmax(a) || softmax(b)).
fn divergence(a: &[f32], b: &[f32]) -> f64 {
    let norm = |x: &[f32]| {
        let top = f64::from(x.iter().copied().fold(f32::MIN, f32::max));
        top + x.iter().map(|x| (f64::from(*x) - top).exp()).sum::<f64>().ln()
    };
    let (of_a, of_b) = (norm(a), norm(b));
    let term = |(a, b): (&f32, &f32)| {
        let (a, b) = (f64::from(*a) - of_a, f64::from(*b) - of_b);
        a.exp() * (a - b)
    };
    a.iter().zip(b).map(term).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_is_that_of_the_distributions() {
        assert!(
            divergence(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]).abs() < 1e-12,
            "a shift is none"
        );
        // (1/2, 1/2) against (1/4, 3/4).
        let found = divergence(&[0.0, 0.0], &[0.0, 3f32.ln()]);
        let right = 0.5 * (0.5f64 / 0.25).ln() + 0.5 * (0.5f64 / 0.75).ln();
        assert!((found - right).abs() < 1e-7, "{found} {right}");
    }
}
