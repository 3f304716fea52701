//! The contrasts of one condition, and the paper's numbers beside the run's own.
//!
//! Not a verdict: the paper's models are larger, and a small model's numbers need not agree with theirs.

use super::contrasts::{self, Contrast};
use super::figures::Condition;
use super::maker::Maker;
use super::overview::Overview;
use super::paper::{self, ContrastResult, PolicyResult};
use super::table::{Cell, Table};
use crate::stats::Interval;

const OURS: &str = "this run";
/// The label whose rows the paper counts as invalid actions at the end.
const INVALID_ACTION: &str = "textworld.action_invalid";

/// Contrasts and, where the paper has numbers for the condition, both beside each other.
pub fn of(condition: &Condition, overview: &Overview) -> Vec<Table> {
    let maker = Maker { condition, overview };
    let found = contrasts::of(condition);
    let mut tables = Vec::new();
    if !found.is_empty() {
        tables.extend([maker.contrasts(&found), maker.contrast_calls(&found)]);
    }
    let beside = paper::beside(&condition.lane, condition.budget);
    if !beside.is_empty() {
        tables.push(maker.policies_beside());
    }
    if !found.is_empty() && beside.iter().any(|(_, lane)| !lane.contrasts.is_empty()) {
        tables.push(maker.contrasts_beside(&found));
    }
    tables
}

fn name(baseline: &str, treatment: &str) -> Cell {
    Cell::text(format!("{baseline}→{treatment}"))
}

impl Maker<'_> {
    fn contrasts(&self, found: &[Contrast]) -> Table {
        let header = [
            "Contrast",
            "Treatm. only",
            "Basel. only",
            "Points",
            "95 % interval",
            "p",
            "Holm p",
        ];
        let rows = found.iter().map(|c| {
            vec![
                name(c.baseline, c.treatment),
                Cell::Count(c.counts.treatment_only),
                Cell::Count(c.counts.baseline_only),
                Cell::difference(c.points, 1),
                Cell::interval(c.interval, 1),
                Cell::p(c.p),
                Cell::p(c.holm_p),
            ]
        });
        let method = if self.condition.repeated() {
            "Games are resampled with all their repeats (10,000 draws); p is from 100,000 sign flips of game means"
        } else {
            "Intervals are from 10,000 paired bootstrap draws; p is McNemar's exact two-sided one"
        };
        let note = format!(
            "Baseline→treatment: rows that only the treatment or only the baseline won, and the difference in \
             percentage points. {method}; Holm p is corrected over these {} contrasts.",
            found.len()
        );
        self.table("contrasts", "Planned contrasts", &header, rows.collect(), note)
    }

    fn contrast_calls(&self, found: &[Contrast]) -> Table {
        let header = [
            "Contrast",
            "Games",
            "Pairs",
            "Left: error",
            "Left: open",
            "Calls/row",
            "95 % interval",
        ];
        let rows = found.iter().map(|c| {
            vec![
                name(c.baseline, c.treatment),
                Cell::Count(c.games),
                Cell::Count(c.counts.pairs()),
                Cell::Count(c.left_error),
                Cell::Count(c.left_missing),
                Cell::difference(c.calls, 2),
                Cell::interval(c.calls_interval, 2),
            ]
        });
        let note = "Pairs: games times inference seeds. Calls/row: treatment minus baseline, the paired mean. A game \
                    leaves the contrast for a row that ended in an error, or is still open, under either policy.";
        self.table(
            "contrast_calls",
            "Games and calls in contrasts",
            &header,
            rows.collect(),
            note,
        )
    }

    fn policies_beside(&self) -> Table {
        let header = [
            "Policy",
            "Of",
            "Success",
            "First call",
            "Invalid action",
            "Calls",
            "Words/retry",
            "All words",
        ];
        let mut rows = Vec::new();
        for f in &self.condition.policies {
            rows.push(vec![
                Cell::text(&f.policy),
                Cell::text(OURS),
                Cell::Share {
                    part: f.wins,
                    whole: f.counted,
                },
                Cell::Count(f.first_call_wins()),
                Cell::Count(f.ends.get(INVALID_ACTION).copied().unwrap_or(0)),
                Cell::Count(f.calls),
                Cell::number(f.mean_retry_words(), 0),
                Cell::Count(f.prompt_words),
            ]);
            for (model, lane) in self.published() {
                let theirs = lane.policies.iter().filter(|result| result.policy == f.policy);
                rows.extend(theirs.map(|result| policy_row(&model.short, result)));
            }
        }
        let note = self.other_models();
        self.table("paper_policies", "Beside the paper", &header, rows, note)
    }

    fn contrasts_beside(&self, found: &[Contrast]) -> Table {
        let header = [
            "Contrast",
            "Of",
            "Treatm. only",
            "Basel. only",
            "Points",
            "95 % interval",
            "Holm p",
        ];
        let mut rows = Vec::new();
        for c in found {
            rows.push(vec![
                name(c.baseline, c.treatment),
                Cell::text(OURS),
                Cell::Count(c.counts.treatment_only),
                Cell::Count(c.counts.baseline_only),
                Cell::difference(c.points, 1),
                Cell::interval(c.interval, 1),
                Cell::p(c.holm_p),
            ]);
            for (model, lane) in self.published() {
                let same = |r: &&ContrastResult| r.baseline == c.baseline && r.treatment == c.treatment;
                let theirs = lane.contrasts.iter().filter(same);
                rows.extend(theirs.map(|result| contrast_row(&model.short, result)));
            }
        }
        let note = self.other_models();
        self.table(
            "paper_contrasts",
            "Contrasts beside the paper",
            &header,
            rows,
            note,
        )
    }

    fn published(&self) -> Vec<(&'static paper::Model, &'static paper::Lane)> {
        paper::beside(&self.condition.lane, self.condition.budget)
    }

    /// The line that keeps a reader from taking the paper's numbers for a target.
    fn other_models(&self) -> String {
        let published = self.published();
        let models: Vec<String> = published
            .iter()
            .map(|(model, _)| format!("{} ({})", model.short, model.name))
            .collect();
        let rows = published
            .first()
            .and_then(|(_, lane)| lane.policies.first())
            .map_or(0, |policy| policy.rows);
        format!(
            "The paper's numbers are of other, larger models on {rows} rows a policy: {}.",
            models.join(" and ")
        )
    }
}

fn policy_row(model: &str, result: &PolicyResult) -> Vec<Cell> {
    vec![
        Cell::text(&result.policy),
        Cell::text(model),
        Cell::Share {
            part: result.wins,
            whole: result.rows,
        },
        Cell::count(result.first_call_wins),
        Cell::count(result.invalid_action_rows),
        Cell::count(result.calls),
        Cell::number(result.retry_words, 0),
        Cell::count(result.prompt_words),
    ]
}

fn contrast_row(model: &str, result: &ContrastResult) -> Vec<Cell> {
    let interval = Interval {
        low: result.low,
        high: result.high,
    };
    vec![
        name(&result.baseline, &result.treatment),
        Cell::text(model),
        Cell::count(result.treatment_only),
        Cell::count(result.baseline_only),
        Cell::difference(Some(result.points), 1),
        Cell::interval(Some(interval), 1),
        Cell::p(Some(result.holm_p)),
    ]
}
