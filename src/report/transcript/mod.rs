//! A row as a reader follows it: what was asked, answered, found and fed back, call by call.
//!
//! Not the trace (`trace export` gives every byte): what a prompt repeats of the one before is left out and said so,
//! and text is escaped and wrapped to 80 columns.

mod new_part;
mod page;

use super::page::{columns, escape};
use crate::trace::read::StoredRow;
use crate::trace::{RunReader, TraceError};
use page::{Page, plural};

/// One line a row: key, outcome, calls.
///
/// # Errors
/// What reading the trace says.
pub fn list(run: &RunReader) -> Result<String, TraceError> {
    let rows = run.rows()?;
    let widest = rows
        .iter()
        .map(|row| columns(&row.planned.key))
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for row in &rows {
        let calls = plural(run.calls(row)?.len(), "call");
        let line = format!("{:<widest$}  {:<16}  {calls}", row.planned.key, outcome(row));
        out.push_str(&escape(&line).replace('\n', "\\n"));
        out.push('\n');
    }
    Ok(out)
}

/// The rows that `name` may mean: the one of that key, else those whose key starts with it, else those whose key
/// contains it.
pub fn find<'a>(rows: &'a [StoredRow], name: &str) -> Vec<&'a StoredRow> {
    let matching = |keep: &dyn Fn(&str) -> bool| -> Vec<&'a StoredRow> {
        rows.iter().filter(|row| keep(&row.planned.key)).collect()
    };
    [
        matching(&|key| key == name),
        matching(&|key| key.starts_with(name)),
        matching(&|key| key.contains(name)),
    ]
    .into_iter()
    .find(|found| !found.is_empty())
    .unwrap_or_default()
}

/// The transcript of a row's current attempt.
///
/// # Errors
/// What reading the trace says.
pub fn of(run: &RunReader, row: &StoredRow) -> Result<String, TraceError> {
    let calls = run.calls(row)?;
    let mut page = Page::default();
    let planned = &row.planned;
    page.text("", &format!("Row {}", planned.key));
    let identity = &run.header.identity;
    let facts = [
        ("task", planned.task.clone()),
        (
            "policy",
            format!(
                "{}, budget {}, inference seed {}",
                planned.policy, planned.budget, planned.seed
            ),
        ),
        (
            "model",
            format!("{}, backend {}", identity.model, identity.backend),
        ),
        (
            "outcome",
            format!("{} after {}", outcome(row), plural(calls.len(), "call")),
        ),
    ];
    for (name, value) in facts {
        page.text(&format!("  {name:<8}"), &value);
    }
    if let Some(detail) = &row.detail {
        page.text("  because ", detail);
    }
    if row.attempt > 1 {
        page.text("  attempt ", &row.attempt.to_string());
    }
    for (index, call) in calls.iter().enumerate() {
        let previous = index.checked_sub(1).map(|i| &calls[i]);
        page.call(call, previous, planned.budget);
        page.feedback(call, index + 1 < calls.len(), row.outcome.is_none());
        page.post_hoc(call);
    }
    Ok(page.out)
}

fn outcome(row: &StoredRow) -> &'static str {
    row.outcome.map_or("not ended", |outcome| outcome.name())
}
