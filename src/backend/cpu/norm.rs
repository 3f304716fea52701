//! RMSNorm: each row divided by its root mean square, times a weight per column.
//!
//! Not the residual sum. Source: Zhang and Sennrich 2019, as Llama and Qwen2 use it.

use super::isa::for_each_isa;

/// Independent partial sums of squares; column `i` goes to sum `i % LANES`.
const LANES: usize = 16;

for_each_isa! {
    /// Writes to `out` `(rows, columns)` the norm of `x` `(rows, columns)`; `weight` `(columns,)`.
    pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let columns = weight.len();
        for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(columns)) {
            let mut sums = [0.0f32; LANES];
            let chunks = x.chunks_exact(LANES);
            let tail = chunks.remainder();
            for chunk in chunks {
                for (sum, x) in sums.iter_mut().zip(chunk) {
                    *sum = x.mul_add(*x, *sum);
                }
            }
            for (sum, x) in sums.iter_mut().zip(tail) {
                *sum = x.mul_add(*x, *sum);
            }
            let mut width = LANES / 2;
            while width > 0 {
                for i in 0..width {
                    sums[i] += sums[i + width];
                }
                width /= 2;
            }
            let scale = 1.0 / (sums[0] / columns as f32 + eps).sqrt();
            for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                *out = x * scale * weight;
            }
        }
    }
}
