//! An interval for one success rate, for tables.
//!
//! Not a comparison: two overlapping intervals say little about a paired difference, which has its own bootstrap.
//! Source: E. B. Wilson (1927), the score interval without continuity correction.

use super::Interval;

/// The 97.5 % point of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % interval for a rate of `successes` in `trials`, as fractions in `[0, 1]`.
///
/// `None` without trials, and when there are more successes than trials.
pub fn wilson(successes: u64, trials: u64) -> Option<Interval> {
    if trials == 0 || successes > trials {
        return None;
    }
    let n = trials as f64;
    let rate = successes as f64 / n;
    let scale = 1.0 + Z * Z / n;
    let centre = (rate + Z * Z / (2.0 * n)) / scale;
    let half = Z * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt() / scale;
    // At the edges the formula gives 0 and 1 but for rounding.
    let low = if successes == 0 {
        0.0
    } else {
        (centre - half).max(0.0)
    };
    let high = if successes == trials {
        1.0
    } else {
        (centre + half).min(1.0)
    };
    Some(Interval { low, high })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R. G. Newcombe (1998), table I, method 3.
    #[test]
    fn published_values() {
        for (successes, trials, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let found = wilson(successes, trials).unwrap();
            assert!(
                (found.low - low).abs() < 5.1e-5 && (found.high - high).abs() < 5.1e-5,
                "{successes}/{trials}: expected {low} to {high}, found {found:?}"
            );
        }
    }

    #[test]
    fn edges() {
        assert_eq!(wilson(0, 0), None);
        assert_eq!(wilson(3, 2), None);
        assert_eq!(wilson(10, 10).unwrap().high, 1.0);
        assert_eq!(wilson(0, 10).unwrap().low, 0.0);
    }
}
