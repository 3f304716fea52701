//! Holm's step-down correction of a family of p-values.
//!
//! Not Bonferroni (which multiplies every member by the size of the family) and not a false-discovery rate.
//! Sources: S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure" (1979); section 3 of the paper.

/// The adjusted p-values, in the order of `p`, each capped at 1.
///
/// With the members sorted upwards, the k-th of m is multiplied by m − k + 1 and raised to the largest product
/// before it; without that monotone rule a larger p-value could end up below a smaller one. A member that is
/// `None`, or no probability, is not estimable: it stays `None` and does not count in m (as in R's `p.adjust`).
pub fn adjust(p: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut members: Vec<(usize, f64)> = p
        .iter()
        .enumerate()
        .filter_map(|(i, p)| p.filter(|p| (0.0..=1.0).contains(p)).map(|p| (i, p)))
        .collect();
    members.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![None; p.len()];
    let mut floor = 0.0f64;
    for (rank, &(i, p)) in members.iter().enumerate() {
        floor = floor.max(p * (members.len() - rank) as f64).min(1.0);
        adjusted[i] = Some(floor);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of R's `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")`.
    #[test]
    fn keeps_the_order_and_is_monotone() {
        let found = adjust(&[Some(0.01), Some(0.04), Some(0.03), Some(0.005)]);
        for (found, expected) in found.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!(
                (found.unwrap() - expected).abs() < 1e-15,
                "{found:?}, expected {expected}"
            );
        }
    }

    #[test]
    fn members_not_estimable_leave_the_family() {
        let found = adjust(&[
            None,
            Some(0.02),
            Some(f64::NAN),
            Some(0.01),
            Some(1.5),
            Some(-0.1),
        ]);
        assert_eq!(found, [None, Some(0.02), None, Some(0.02), None, None]);
        assert_eq!(adjust(&[]), []);
        assert_eq!(adjust(&[None, None]), [None, None]);
        assert_eq!(adjust(&[Some(0.9), Some(0.8)]), [Some(1.0), Some(1.0)]);
    }
}
