//! Rotary position embedding: turns pairs of a head's dimensions by an angle that grows with the position.
//!
//! Not scaling rules: those are the divisors in the configuration. Source: Su et al. 2021, in the half-split pairing
//! of Hugging Face's Llama and Qwen2: dimension `i` goes with `i + head_dim / 2`.

use super::isa::for_each_isa;
use crate::model::config::Config;

/// Cosines and sines per position, computed as far as they were needed.
#[derive(Debug, Default)]
pub(super) struct Rope {
    /// Per position `head_dim / 2` cosines, then as many sines.
    table: Vec<f32>,
    half: usize,
}

impl Rope {
    /// Makes sure that positions under `positions` are in the table.
    pub(super) fn extend(&mut self, config: &Config, positions: usize) {
        self.half = config.head_dim / 2;
        let known = self.table.len() / config.head_dim;
        self.table.extend(config.rope_angles(known..positions.max(known)));
    }

    /// `head_dim / 2` cosines and as many sines of a position that [`Self::extend`] has covered.
    pub(super) fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let half = self.half;
        self.table[2 * half * position..2 * half * (position + 1)].split_at(half)
    }
}

for_each_isa! {
    /// Turns every head of `x` `(heads, head_dim)` by the angles of one position and multiplies by `scale`.
    pub(super) fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32], scale: f32) {
        let half = cos.len();
        for head in x.chunks_exact_mut(2 * half) {
            let (a, b) = head.split_at_mut(half);
            for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                let (x, y) = (*a, *b);
                *a = (x * cos - y * sin) * scale;
                *b = (y * cos + x * sin) * scale;
            }
        }
    }
}
