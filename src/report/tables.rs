//! The tables of one condition by policy: success, ends, parsing, calls, time.
//!
//! Not contrasts and not the paper's numbers (`beside`). Policies stand in the study's order.

use super::figures::Condition;
use super::maker::Maker;
use super::overview::Overview;
use super::table::{Cell, Table};
use std::collections::BTreeMap;

/// Calls with a column of their own in "Wins by call".
const CALL_COLUMNS: u32 = 8;

/// All of them.
pub fn of(condition: &Condition, overview: &Overview) -> Vec<Table> {
    let maker = Maker { condition, overview };
    let mut tables = vec![maker.success(), maker.wins_by_call()];
    if condition.repeated() {
        tables.push(maker.wins_by_seed());
    }
    tables.extend([
        maker.ends(),
        maker.parsing(),
        maker.calls(),
        maker.tokens(),
        maker.time(),
    ]);
    tables
}

impl Maker<'_> {
    fn success(&self) -> Table {
        let header = [
            "Policy",
            "Ended",
            "Success",
            "Rate, %",
            "95 % interval",
            "First call",
            "Calls/row",
        ];
        let rows = self.by_policy(|f| {
            vec![
                Cell::Share {
                    part: f.ended,
                    whole: f.planned,
                },
                Cell::Share {
                    part: f.wins,
                    whole: f.counted,
                },
                Cell::number(f.rate().map(|rate| 100.0 * rate), 1),
                Cell::interval(f.interval.map(points), 1),
                Cell::Count(f.first_call_wins()),
                Cell::number(f.calls_per_row(), 2),
            ]
        });
        let method = if self.condition.repeated() {
            "from games resampled with all their repeats"
        } else {
            "Wilson's"
        };
        let note = format!("Success: accepted rows of those that count; its interval, in %, is {method}.");
        self.table("success", "Success", &header, rows, note)
    }

    fn wins_by_call(&self) -> Table {
        let budget = self.condition.budget;
        let shown = budget.min(CALL_COLUMNS) as usize;
        let mut header = vec!["Policy".to_owned()];
        header.extend((1..=shown).map(|call| format!("Call {call}")));
        if budget > CALL_COLUMNS {
            header.push("Later".into());
        }
        let rows = self.by_policy(|f| {
            let wins = |index: usize| f.wins_by_call.get(index).copied().unwrap_or(0);
            let mut cells: Vec<Cell> = (0..shown).map(|index| Cell::Count(wins(index))).collect();
            if budget > CALL_COLUMNS {
                cells.push(Cell::Count(f.wins_by_call.iter().skip(shown).sum()));
            }
            cells
        });
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let note = "Rows won by their first, second, … call.";
        self.table("wins_by_call", "Wins by call", &header, rows, note)
    }

    fn wins_by_seed(&self) -> Table {
        let mut header = vec!["Policy".to_owned()];
        header.extend(self.condition.seeds.iter().map(|seed| format!("Seed {seed}")));
        let rows = self.by_policy(|f| {
            let seeds = self.condition.seeds.iter();
            seeds
                .map(|seed| {
                    let (part, whole) = f.by_seed.get(seed).copied().unwrap_or_default();
                    Cell::Share { part, whole }
                })
                .collect()
        });
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        self.table("wins_by_seed", "Success by inference seed", &header, rows, "")
    }

    fn ends(&self) -> Table {
        let first = ["accepted"];
        let last = [
            "context full",
            "engine_error",
            "gate_error",
            "cancelled",
            "not ended",
        ];
        let mut rows = self.across(&first, |f| f.ends.clone());
        rows.sort_by_key(|(name, _)| last.iter().position(|l| l == name).map_or(0, |at| at + 1));
        let rows = rows.into_iter().map(named).collect();
        let header: Vec<&str> = ["How the row ended"]
            .into_iter()
            .chain(self.policy_names())
            .collect();
        let note = "A row that spent its budget is named by the first failure of its last call. Context full: the \
                    next prompt would not fit the model. Errors and rows not ended give no other figure.";
        self.table("ends", "How rows ended", &header, rows, note)
    }

    fn parsing(&self) -> Table {
        let owned =
            |counts: &BTreeMap<&str, u64>| counts.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        let strict = self.across(&["ok"], |f| owned(&f.strict));
        let lenient = self.across(&["ok"], |f| owned(&f.lenient));
        let rows = [("strict", strict), ("fence off", lenient)];
        let rows = rows.into_iter().flat_map(|(rule, rows)| {
            rows.into_iter().map(move |(name, cells)| {
                let mut row = vec![Cell::text(rule), Cell::text(name)];
                row.extend(cells);
                row
            })
        });
        let header: Vec<&str> = ["Parsed", "Category"]
            .into_iter()
            .chain(self.policy_names())
            .collect();
        let note =
            "Calls by what parsing says of the reply: as it stands, and once a code fence is taken off it.";
        self.table("parsing", "Parsing", &header, rows.collect(), note)
    }

    fn calls(&self) -> Table {
        let header = [
            "Policy",
            "Calls",
            "Reused",
            "Retries",
            "Same plan again",
            "Words/retry",
            "All words",
        ];
        let rows = self.by_policy(|f| {
            vec![
                Cell::Count(f.calls),
                Cell::Count(f.reused),
                Cell::Count(f.retries),
                Cell::Share {
                    part: f.same_plan,
                    whole: f.retries,
                },
                Cell::number(f.mean_retry_words(), 1),
                Cell::Count(f.prompt_words),
            ]
        });
        let note = "Reused: the prompt was one of the row's earlier prompts byte for byte, so its reply stands. Words \
                    are whitespace-separated words of the user messages, a proxy of prompt size.";
        self.table("calls", "Calls and prompt words", &header, rows, note)
    }

    fn tokens(&self) -> Table {
        let header = ["Policy", "Prompt tokens", "Of them cached", "New tokens"];
        let rows = self.by_policy(|f| {
            vec![
                Cell::count(f.tokens_in),
                Cell::count(f.tokens_cached),
                Cell::count(f.tokens_out),
            ]
        });
        let note =
            "Tokens by the model's tokenizer, of calls that the engine answered; reused calls have none.";
        self.table("tokens", "Tokens", &header, rows, note)
    }

    fn time(&self) -> Table {
        let header = ["Policy", "Queued, s", "Prefill, s", "Decode, s", "Gates, s"];
        let rows = self.by_policy(|f| {
            let seconds = f.micros.iter().map(|&us| Cell::number(Some(us as f64 / 1e6), 3));
            seconds.collect()
        });
        let note = "Added over calls; calls in one batch overlap, so this is more than the wall time.";
        self.table("time", "Time by phase", &header, rows, note)
    }
}

fn named((name, cells): (String, Vec<Cell>)) -> Vec<Cell> {
    let mut row = vec![Cell::text(name)];
    row.extend(cells);
    row
}

/// A fraction's interval in percent.
fn points(interval: crate::stats::Interval) -> crate::stats::Interval {
    crate::stats::Interval {
        low: 100.0 * interval.low,
        high: 100.0 * interval.high,
    }
}
