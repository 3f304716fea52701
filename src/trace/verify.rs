//! The check of a stored run: hash chains, order, budgets, orphans, ends.
//!
//! Not a repair: it reads, and says what does not hold and where.

use super::export::{chain_hash, row_seed};
use super::read::StoredRow;
use super::{Outcome, RunReader, TraceError};
use crate::gate::Verdict;

/// What a check found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Rows looked at.
    pub rows: usize,
    /// Calls whose hash was recomputed.
    pub calls: usize,
    /// What does not hold, one sentence each.
    pub problems: Vec<String>,
}

/// Checks the whole run.
///
/// # Errors
/// When the trace cannot be read at all.
pub fn verify(run: &RunReader) -> Result<Findings, TraceError> {
    let mut findings = Findings::default();
    let integrity = run.integrity()?;
    if integrity != "ok" {
        findings
            .problems
            .push(format!("the database file is damaged: {integrity}"));
    }
    let orphans = run.orphans()?;
    if orphans > 0 {
        findings
            .problems
            .push(format!("{orphans} calls belong to no row"));
    }
    for row in run.rows()? {
        findings.rows += 1;
        check_row(run, &row, &mut findings)?;
    }
    Ok(findings)
}

fn check_row(run: &RunReader, row: &StoredRow, findings: &mut Findings) -> Result<(), TraceError> {
    let key = &row.planned.key;
    let mut hash = row_seed(key);
    let mut problem = |text: String| findings.problems.push(format!("row {key}{text}"));
    for (line, stored) in run.chain(row)? {
        findings.calls += 1;
        hash = chain_hash(&hash, &line.canonical());
        if hash != stored {
            problem(format!(
                ", call {}: expected hash {hash}, found {stored}",
                line.call
            ));
            hash = stored;
        }
    }
    if hash != row.last_hash {
        problem(format!(
            ": expected its chain to end in {}, found {hash}",
            row.last_hash
        ));
    }
    let calls = match run.calls(row) {
        Ok(calls) => calls,
        Err(error) => {
            problem(format!(": {error}"));
            return Ok(());
        }
    };
    for (index, call) in calls.iter().enumerate() {
        if call.call as usize != index + 1 {
            problem(format!(": expected call {}, found call {}", index + 1, call.call));
        }
        let last = index + 1 == calls.len();
        if call.judgement.verdict == Verdict::Accepted && !(last && row.outcome == Some(Outcome::Accepted)) {
            problem(format!(
                ", call {}: accepted, but the row goes on or did not end so",
                call.call
            ));
        }
    }
    if calls.len() > row.planned.budget as usize {
        problem(format!(
            ": {} calls, but its budget is {}",
            calls.len(),
            row.planned.budget
        ));
    }
    if row.outcome == Some(Outcome::Accepted)
        && calls.last().map(|call| call.judgement.verdict) != Some(Verdict::Accepted)
    {
        problem(": it ended as accepted, but no gate accepted its last call".into());
    }
    Ok(())
}
