//! The exponential function, in operations that give the same bits on every processor.
//!
//! Not correctly rounded: within 2 units in the last place over the range that softmax and SiLU use.

/// Below this the result would be subnormal, above the other one infinite; both ends are held.
const LOWEST: f32 = -87.3;
const HIGHEST: f32 = 88.3;
/// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts: the first has few enough bits that its product with a small integer is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// e^x for x held to -87.3 to 88.3; NaN gives NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Comparisons instead of min and max, which would drop a NaN.
    let x = if x < LOWEST { LOWEST } else { x };
    let x = if x > HIGHEST { HIGHEST } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(-LN2_LOW, r);
    // Taylor's polynomial of degree 7 on |r| <= ln 2 / 2: its error is under 6e-9.
    let mut p = 1.0f32 / 5040.0;
    p = p.mul_add(r, 1.0 / 720.0);
    p = p.mul_add(r, 1.0 / 120.0);
    p = p.mul_add(r, 1.0 / 24.0);
    p = p.mul_add(r, 1.0 / 6.0);
    p = p.mul_add(r, 0.5);
    p = p.mul_add(r, 1.0);
    p = p.mul_add(r, 1.0);
    let power = (shifted.to_bits() << 23).wrapping_add(127 << 23);
    p * f32::from_bits(power)
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn it_is_the_exponential() {
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::NEG_INFINITY) > 0.0 && exp(f32::NEG_INFINITY) < 2e-38);
        assert!(exp(f32::INFINITY).is_finite());
        for i in -87_000..88_000 {
            let x = i as f32 / 1000.0 + 0.000_37;
            let right = f64::from(x).exp();
            assert!((f64::from(exp(x)) / right - 1.0).abs() < 2.5e-7, "{x}");
        }
    }
}
