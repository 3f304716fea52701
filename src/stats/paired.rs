//! Paired outcomes: the same task under two conditions.
//!
//! Not a test: it counts what `mcnemar` and `bootstrap` take. A task that lacks either outcome (an error, a row not
//! run) is no pair, and the caller leaves it out. Source: section 3 of the paper ("games are paired by seed").

/// One task under both conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// It succeeded under the baseline.
    pub baseline: bool,
    /// It succeeded under the treatment.
    pub treatment: bool,
}

/// How many pairs there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Success under both.
    pub both: u64,
    /// Success under the treatment alone: discordant.
    pub treatment_only: u64,
    /// Success under the baseline alone: discordant.
    pub baseline_only: u64,
    /// Success under neither.
    pub neither: u64,
}

impl Counts {
    /// Counts `pairs`.
    pub fn of(pairs: &[Pair]) -> Self {
        let mut counts = Self::default();
        for pair in pairs {
            *match (pair.baseline, pair.treatment) {
                (true, true) => &mut counts.both,
                (false, true) => &mut counts.treatment_only,
                (true, false) => &mut counts.baseline_only,
                (false, false) => &mut counts.neither,
            } += 1;
        }
        counts
    }

    /// Number of pairs.
    pub fn pairs(&self) -> u64 {
        self.both + self.treatment_only + self.baseline_only + self.neither
    }

    /// Success rate under the treatment minus that under the baseline, a fraction in `[-1, 1]` (times 100 for
    /// points); `None` without pairs.
    pub fn difference(&self) -> Option<f64> {
        let gain = self.treatment_only as f64 - self.baseline_only as f64;
        (self.pairs() > 0).then(|| gain / self.pairs() as f64)
    }
}

/// Treatment minus baseline for each pair, in order: 1, 0 or −1.
pub fn differences(pairs: &[Pair]) -> Vec<f64> {
    pairs
        .iter()
        .map(|pair| f64::from(u8::from(pair.treatment)) - f64::from(u8::from(pair.baseline)))
        .collect()
}

/// The mean of each cluster (a game's repeats), in order: what `sign_flip` takes. Empty clusters drop out.
pub fn cluster_means<C: AsRef<[f64]>>(clusters: &[C]) -> Vec<f64> {
    clusters
        .iter()
        .map(AsRef::as_ref)
        .filter(|repeats| !repeats.is_empty())
        .map(|repeats| repeats.iter().sum::<f64>() / repeats.len() as f64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_difference() {
        let pairs: Vec<Pair> = [
            (true, true),
            (false, true),
            (false, true),
            (true, false),
            (false, false),
        ]
        .map(|(baseline, treatment)| Pair { baseline, treatment })
        .to_vec();
        let counts = Counts::of(&pairs);
        assert_eq!((counts.both, counts.treatment_only), (1, 2));
        assert_eq!((counts.baseline_only, counts.neither), (1, 1));
        assert_eq!(counts.difference(), Some(0.2));
        assert_eq!(differences(&pairs), [0.0, 1.0, 1.0, -1.0, 0.0]);
        assert_eq!(Counts::of(&[]).difference(), None);
        assert_eq!(cluster_means(&[vec![1.0, 0.0], vec![], vec![-1.0]]), [0.5, -1.0]);
    }
}
