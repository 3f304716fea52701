//! Rows added up: one set of figures per policy within a condition (a lane at one budget).
//!
//! Not a comparison of policies (`contrasts`) and not a layout (`tables`). Only rows that count enter, and only their
//! calls: a row that has not ended or ended in an error is counted as such and gives nothing else.

use super::rows::{CallFigures, RowFigures};
use crate::stats::{Interval, bootstrap, proportion};
use std::collections::BTreeMap;

/// Seed of every resampling in a report, so that the same trace gives the same report.
pub const SEED: u64 = 1;

/// A lane at one budget.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The lane.
    pub lane: String,
    /// Most calls of a row.
    pub budget: u32,
    /// Inference seeds, ascending.
    pub seeds: Vec<u64>,
    /// Its rows in the study's order.
    pub rows: Vec<RowFigures>,
    /// Figures by policy, in the study's order.
    pub policies: Vec<PolicyFigures>,
}

impl Condition {
    /// Whether games were run more than once under a policy.
    pub fn repeated(&self) -> bool {
        self.seeds.len() > 1
    }

    /// Groups rows into conditions, in the study's order.
    pub fn all(rows: Vec<RowFigures>) -> Vec<Condition> {
        let mut conditions: Vec<Condition> = Vec::new();
        for row in rows {
            let (lane, budget) = (&row.planned.lane, row.planned.budget);
            match conditions
                .iter_mut()
                .find(|c| c.lane == *lane && c.budget == budget)
            {
                Some(condition) => condition.rows.push(row),
                None => conditions.push(Condition {
                    lane: lane.clone(),
                    budget,
                    seeds: Vec::new(),
                    rows: vec![row],
                    policies: Vec::new(),
                }),
            }
        }
        for condition in &mut conditions {
            let mut seeds: Vec<u64> = condition.rows.iter().map(|row| row.planned.seed).collect();
            seeds.sort_unstable();
            seeds.dedup();
            condition.seeds = seeds;
            let mut names: Vec<&str> = Vec::new();
            for row in &condition.rows {
                if !names.contains(&row.planned.policy.as_str()) {
                    names.push(&row.planned.policy);
                }
            }
            let policies = names
                .into_iter()
                .map(|name| PolicyFigures::of(name, condition))
                .collect();
            condition.policies = policies;
        }
        conditions
    }
}

/// What one policy did in a condition.
#[derive(Clone, Debug, Default)]
pub struct PolicyFigures {
    /// The policy.
    pub policy: String,
    /// Rows in the study.
    pub planned: u64,
    /// Rows that have ended, errors included.
    pub ended: u64,
    /// Rows that count: accepted or budget spent.
    pub counted: u64,
    /// Accepted rows.
    pub wins: u64,
    /// 95 % interval of the success rate, as fractions: Wilson's, or over resampled games when they repeat.
    pub interval: Option<Interval>,
    /// Wins by the call that won, call 1 first; as long as the last call that won.
    pub wins_by_call: Vec<u64>,
    /// Wins and counted rows by inference seed.
    pub by_seed: BTreeMap<u64, (u64, u64)>,
    /// All rows by how they ended.
    pub ends: BTreeMap<String, u64>,
    /// Calls by strict parse category.
    pub strict: BTreeMap<&'static str, u64>,
    /// Calls by parse category once a fence is taken off.
    pub lenient: BTreeMap<&'static str, u64>,
    /// Calls of counted rows, reused ones included.
    pub calls: u64,
    /// Calls answered by the reply of an earlier one.
    pub reused: u64,
    /// Calls after the first of a row.
    pub retries: u64,
    /// Retries whose plan was that of the call before.
    pub same_plan: u64,
    /// Whitespace words of all prompts, reused ones included.
    pub prompt_words: u64,
    /// Whitespace words of the prompts of retries.
    pub retry_words: u64,
    /// Prompt tokens through the engine; `None` without a tokenizer.
    pub tokens_in: Option<u64>,
    /// Of these, tokens that the prefix cache held.
    pub tokens_cached: Option<u64>,
    /// New tokens; `None` without a tokenizer.
    pub tokens_out: Option<u64>,
    /// Microseconds queued, in prefill, in decoding, in parser and gates, added over calls.
    pub micros: [u64; 4],
}

impl PolicyFigures {
    fn of(policy: &str, condition: &Condition) -> Self {
        let mut sum = Self {
            policy: policy.to_owned(),
            ..Self::default()
        };
        let mut games: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for row in condition.rows.iter().filter(|row| row.planned.policy == policy) {
            sum.row(row);
            if row.counts() {
                let win = f64::from(u8::from(row.won_at.is_some()));
                games.entry(&row.planned.task).or_default().push(win);
            }
        }
        sum.interval = if condition.repeated() {
            let clusters: Vec<Vec<f64>> = games.into_values().collect();
            bootstrap::clustered(&clusters, bootstrap::DRAWS, SEED)
        } else {
            proportion::wilson(sum.wins, sum.counted)
        };
        sum
    }

    fn row(&mut self, row: &RowFigures) {
        self.planned += 1;
        self.ended += u64::from(row.outcome.is_some());
        *self.ends.entry(row.end.clone()).or_default() += 1;
        if !row.counts() {
            return;
        }
        self.counted += 1;
        let seed = self.by_seed.entry(row.planned.seed).or_default();
        seed.1 += 1;
        if let Some(call) = row.won_at {
            self.wins += 1;
            seed.0 += 1;
            let index = call.saturating_sub(1) as usize;
            if self.wins_by_call.len() <= index {
                self.wins_by_call.resize(index + 1, 0);
            }
            self.wins_by_call[index] += 1;
        }
        for (index, call) in row.calls.iter().enumerate() {
            self.call(call, index > 0);
        }
    }

    fn call(&mut self, call: &CallFigures, retry: bool) {
        self.calls += 1;
        self.prompt_words += call.prompt_words;
        *self.strict.entry(call.strict).or_default() += 1;
        *self.lenient.entry(call.lenient).or_default() += 1;
        if retry {
            self.retries += 1;
            self.retry_words += call.prompt_words;
            self.same_plan += u64::from(call.same_plan);
        }
        for (sum, micros) in self.micros.iter_mut().zip(call.micros) {
            *sum += micros;
        }
        if call.reused {
            self.reused += 1;
        } else if call.tokens_in > 0 {
            *self.tokens_in.get_or_insert(0) += call.tokens_in;
            *self.tokens_cached.get_or_insert(0) += call.tokens_cached;
            *self.tokens_out.get_or_insert(0) += call.tokens_out;
        }
    }

    /// Success rate, a fraction.
    pub fn rate(&self) -> Option<f64> {
        mean(self.wins, self.counted)
    }

    /// Rows won by their first call.
    pub fn first_call_wins(&self) -> u64 {
        self.wins_by_call.first().copied().unwrap_or(0)
    }

    /// Calls per counted row.
    pub fn calls_per_row(&self) -> Option<f64> {
        mean(self.calls, self.counted)
    }

    /// Whitespace words of a retry's prompt, the mean.
    pub fn mean_retry_words(&self) -> Option<f64> {
        mean(self.retry_words, self.retries)
    }
}

fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}
