//! Rotary position embedding: turns pairs of a head's dimensions by an angle that grows with the position.
//!
//! Not scaling rules: those are the divisors in the configuration. Source: Su et al. 2021, in the half-split pairing
//! of Hugging Face's Llama and Qwen2: dimension `i` goes with `i + head_dim / 2`.

use super::isa::for_each_isa;
use crate::model::config::Config;

/// Cosines and sines per position, computed as far as they were needed.
#[derive(Debug)]
pub(super) struct Rope {
    /// Radians per position, `head_dim / 2`.
    frequencies: Vec<f32>,
    /// Per position `head_dim / 2` cosines, then as many sines.
    table: Vec<f32>,
}

impl Rope {
    pub(super) fn new(config: &Config) -> Self {
        let dim = config.head_dim as f64;
        let frequency = |(pair, factor): (usize, &f32)| {
            let plain = f64::from(config.rope_theta).powf(-2.0 * pair as f64 / dim);
            (plain / f64::from(*factor)) as f32
        };
        Self {
            frequencies: config.rope_factors.iter().enumerate().map(frequency).collect(),
            table: Vec::new(),
        }
    }

    /// Makes sure that positions under `positions` are in the table.
    pub(super) fn extend(&mut self, positions: usize) {
        let width = 2 * self.frequencies.len();
        for position in self.table.len() / width..positions {
            // The angle in float32 as the reference has it; its cosine by way of float64, so that the last bit does
            // not depend on whose mathematics library is linked.
            let angle = |f: &f32| f64::from(position as f32 * f);
            self.table
                .extend(self.frequencies.iter().map(|f| angle(f).cos() as f32));
            self.table
                .extend(self.frequencies.iter().map(|f| angle(f).sin() as f32));
        }
    }

    /// `head_dim / 2` cosines and as many sines of a position that [`Self::extend`] has covered.
    pub(super) fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let half = self.frequencies.len();
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
