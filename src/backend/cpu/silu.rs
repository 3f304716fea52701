//! The feed-forward gate: SiLU of one projection times the other.
//!
//! Not the projections. SiLU(x) = x / (1 + e^-x).

use super::exp::exp;
use super::isa::for_each_isa;

for_each_isa! {
    /// Replaces each of `gate` by SiLU(gate) * up; both have one shape.
    pub(super) fn silu_mul(gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = *gate / (1.0 + exp(-*gate)) * up;
        }
    }
}
