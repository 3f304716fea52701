//! The four planned contrasts of the paper (section 3, "Analysis"), within one condition.
//!
//! Not every pair of policies: testing more would change what Holm's correction corrects. Games are paired by name;
//! one without a counted row for every repeat under both policies leaves the contrast, and is counted.

use super::figures::{Condition, SEED};
use super::rows::RowFigures;
use crate::stats::paired::{Counts, Pair, cluster_means};
use crate::stats::{Interval, bootstrap, holm, mcnemar, sign_flip};

/// Baseline and treatment.
pub const PLANNED: [(&str, &str); 4] = [
    ("RawDiag", "SameNL"),
    ("RawDiag", "TypedFields"),
    ("SameNL", "TypedFields"),
    ("LocObs", "TypedFields"),
];

/// One contrast. What cannot be estimated is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    /// The policy that is compared with.
    pub baseline: &'static str,
    /// The policy that is compared.
    pub treatment: &'static str,
    /// Games that entered.
    pub games: u64,
    /// Games that left because a row of theirs ended in an error.
    pub left_error: u64,
    /// Games that left because a row of theirs has not ended or was not planned.
    pub left_missing: u64,
    /// Pairs of rows by who succeeded; one pair a game and inference seed.
    pub counts: Counts,
    /// Treatment minus baseline in percentage points.
    pub points: Option<f64>,
    /// Its 95 % bootstrap interval, in points.
    pub interval: Option<Interval>,
    /// Exact McNemar, or sign flips over games when they repeat.
    pub p: Option<f64>,
    /// The same, adjusted by Holm over the condition's contrasts.
    pub holm_p: Option<f64>,
    /// Treatment minus baseline in calls per row, the paired mean.
    pub calls: Option<f64>,
    /// Its 95 % bootstrap interval, in calls.
    pub calls_interval: Option<Interval>,
}

/// The planned contrasts whose two policies the condition has.
pub fn of(condition: &Condition) -> Vec<Contrast> {
    let has = |name: &str| condition.policies.iter().any(|figures| figures.policy == name);
    let mut contrasts: Vec<Contrast> = PLANNED
        .into_iter()
        .filter(|(baseline, treatment)| has(baseline) && has(treatment))
        .map(|(baseline, treatment)| one(condition, baseline, treatment))
        .collect();
    let p: Vec<Option<f64>> = contrasts.iter().map(|contrast| contrast.p).collect();
    for (contrast, adjusted) in contrasts.iter_mut().zip(holm::adjust(&p)) {
        contrast.holm_p = adjusted;
    }
    contrasts
}

/// A game's repeats under both policies, by inference seed.
#[derive(Default)]
struct Game {
    pairs: Vec<Pair>,
    success: Vec<f64>,
    calls: Vec<f64>,
}

fn one(condition: &Condition, baseline: &'static str, treatment: &'static str) -> Contrast {
    let mut tasks: Vec<&str> = Vec::new();
    for row in &condition.rows {
        let touched = [baseline, treatment].contains(&row.planned.policy.as_str());
        if touched && !tasks.contains(&row.planned.task.as_str()) {
            tasks.push(&row.planned.task);
        }
    }
    let (mut games, mut left_error, mut left_missing) = (Vec::new(), 0, 0);
    for task in tasks {
        match game(condition, task, baseline, treatment) {
            Entry::Whole(game) => games.push(game),
            Entry::Error => left_error += 1,
            Entry::Missing => left_missing += 1,
        }
    }
    let pairs: Vec<Pair> = games.iter().flat_map(|game| game.pairs.clone()).collect();
    let success: Vec<&[f64]> = games.iter().map(|game| game.success.as_slice()).collect();
    let calls: Vec<&[f64]> = games.iter().map(|game| game.calls.as_slice()).collect();
    let counts = Counts::of(&pairs);
    let p = if condition.repeated() {
        sign_flip::p_value(&cluster_means(&success), sign_flip::DRAWS, SEED)
    } else {
        (!pairs.is_empty()).then(|| mcnemar::p_value(counts.treatment_only, counts.baseline_only))
    };
    // With one repeat a game, resampling clusters is the paired bootstrap.
    let interval = |differences: &[&[f64]]| bootstrap::clustered(differences, bootstrap::DRAWS, SEED);
    Contrast {
        baseline,
        treatment,
        games: games.len() as u64,
        left_error,
        left_missing,
        points: counts.difference().map(|difference| 100.0 * difference),
        interval: interval(&success).map(|i| Interval {
            low: 100.0 * i.low,
            high: 100.0 * i.high,
        }),
        p,
        holm_p: None,
        calls: mean(&calls),
        calls_interval: interval(&calls),
        counts,
    }
}

enum Entry {
    Whole(Game),
    Error,
    Missing,
}

fn game(condition: &Condition, task: &str, baseline: &str, treatment: &str) -> Entry {
    let find = |policy: &str, seed: u64| {
        condition
            .rows
            .iter()
            .find(|row| row.planned.task == task && row.planned.policy == policy && row.planned.seed == seed)
    };
    let rows: Vec<[Option<&RowFigures>; 2]> = condition
        .seeds
        .iter()
        .map(|&seed| [find(baseline, seed), find(treatment, seed)])
        .collect();
    let broken = |row: &Option<&RowFigures>| row.is_some_and(|r| r.outcome.is_some() && !r.counts());
    if rows.iter().flatten().any(broken) {
        return Entry::Error;
    }
    let mut game = Game::default();
    for pair in rows {
        let [Some(b), Some(t)] = pair.map(|row| row.filter(|row| row.counts())) else {
            return Entry::Missing;
        };
        let pair = Pair {
            baseline: b.won_at.is_some(),
            treatment: t.won_at.is_some(),
        };
        game.success
            .push(f64::from(u8::from(pair.treatment)) - f64::from(u8::from(pair.baseline)));
        game.calls.push(t.calls.len() as f64 - b.calls.len() as f64);
        game.pairs.push(pair);
    }
    Entry::Whole(game)
}

fn mean(clusters: &[&[f64]]) -> Option<f64> {
    let all: Vec<f64> = clusters
        .iter()
        .flat_map(|cluster| cluster.iter().copied())
        .collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}
