//! The residual stream between two blocks of the decoder: the sum, and the norm through which the next block sees it.
//!
//! Not the norm itself (`norm`), and not the linear layer behind it.

use super::isa::for_each_isa;
use super::linear::{Context, Input, prepare};
use super::norm::rms_norm;
use super::pool::Parts;
use super::quantize::Quantized;

/// The residual, what the last block adds to it, and the norm through which the next block sees the sum.
pub(super) struct Sum<'a> {
    /// `(rows, width)`; the sum afterwards.
    pub(super) residual: &'a mut [f32],
    /// As many; none before the first block.
    pub(super) change: Option<&'a [f32]>,
    /// `(width,)`.
    pub(super) norm: &'a [f32],
    pub(super) eps: f32,
}

impl Sum<'_> {
    /// Adds up, and writes the norm to `normed` `(rows, width)`.
    pub(super) fn normed<'b>(
        self,
        context: Context<'_>,
        normed: &'b mut [f32],
        quantized: &'b mut Quantized,
    ) -> Input<'b> {
        let width = self.norm.len();
        let residual = Parts::of(self.residual);
        prepare(context, normed, width, quantized, |row, normed| {
            // SAFETY: each row belongs to one task.
            let x = unsafe { residual.part(row * width, width) };
            if let Some(change) = self.change {
                add(context.isa, x, &change[row * width..][..width]);
            }
            rms_norm(context.isa, x, self.norm, self.eps, normed);
        })
    }
}

for_each_isa! {
    /// Adds `change` to `x`.
    fn add(x: &mut [f32], change: &[f32]) {
        for (x, change) in x.iter_mut().zip(change) {
            *x += change;
        }
    }
}
