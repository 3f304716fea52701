//! The check of a stored run: hash chains, order, budgets, orphans, ends.
//!
//! Not a repair: it reads, and says what does not hold and where. It finds edits of what a row was, did and came to;
//! someone who recomputes every hash can still forge a run.

use super::export::{chain_hash, row_seed};
use super::read::{Link, StoredRow};
use super::{Outcome, PlannedRow, RunReader, TraceError};
use std::collections::BTreeMap;

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
        let mut problems = Vec::new();
        match run.chain(&row) {
            Ok(chain) => {
                findings.calls += chain.len();
                check_chains(run, &row, &chain, &mut problems)?;
                check_end(run, &row, &mut problems);
            }
            Err(error) => problems.push(format!(": {error}")),
        }
        let key = &row.planned.key;
        findings
            .problems
            .extend(problems.into_iter().map(|problem| format!("row {key}{problem}")));
    }
    Ok(findings)
}

/// Every attempt's chain ends where the row, or its past attempt, says.
fn check_chains(
    run: &RunReader,
    row: &StoredRow,
    chain: &[Link],
    problems: &mut Vec<String>,
) -> Result<(), TraceError> {
    let mut ends: BTreeMap<i64, String> = run
        .past_attempts(row)?
        .into_iter()
        .map(|past| (past.attempt, past.last_hash))
        .collect();
    ends.insert(row.attempt, row.last_hash.clone());
    if !ends.keys().copied().eq(1..=row.attempt) {
        problems.push(format!(
            ": expected attempts 1 to {}, found {:?}",
            row.attempt,
            ends.keys()
        ));
    }
    for link in chain.iter().filter(|link| !ends.contains_key(&link.attempt)) {
        problems.push(format!(
            ", call {}: it is of attempt {}, which never was",
            link.line.call, link.attempt
        ));
    }
    for (attempt, end) in ends {
        let mut hash = row_seed(&row.planned.key);
        let links = chain.iter().filter(|link| link.attempt == attempt);
        for (index, link) in links.enumerate() {
            hash = chain_hash(&hash, &link.line.canonical());
            if hash != link.hash {
                problems.push(format!(
                    ", call {}: expected hash {hash}, found {}",
                    link.line.call, link.hash
                ));
                hash.clone_from(&link.hash);
            }
            if link.line.call as usize != index + 1 {
                problems.push(format!(
                    ": expected call {}, found call {}",
                    index + 1,
                    link.line.call
                ));
            }
            if link.line.seed != row.planned.seed {
                let (call, found, expected) = (link.line.call, link.line.seed, row.planned.seed);
                problems.push(format!(", call {call}: expected seed {expected}, found {found}"));
            }
        }
        if hash != end {
            problems.push(format!(
                ": expected the chain of attempt {attempt} to end in {end}, found {hash}"
            ));
        }
    }
    Ok(())
}

/// The row is what its key says, and its end follows from its calls.
fn check_end(run: &RunReader, row: &StoredRow, problems: &mut Vec<String>) {
    let PlannedRow {
        key,
        lane,
        task,
        policy,
        budget,
        seed,
    } = &row.planned;
    let named = PlannedRow::new(lane, task, policy, *budget, *seed).key;
    if named != *key {
        problems.push(format!(": its columns are those of row {named}"));
    }
    let calls = match run.calls(row) {
        Ok(calls) => calls,
        Err(error) => return problems.push(format!(": {error}")),
    };
    let budget = *budget as usize;
    if calls.len() > budget {
        problems.push(format!(": {} calls, but its budget is {budget}", calls.len()));
    }
    let (last, earlier) = match calls.split_last() {
        Some((last, earlier)) => (Some(last), earlier),
        None => (None, &[][..]),
    };
    for call in earlier.iter().filter(|call| call.accepted()) {
        problems.push(format!(", call {}: accepted, but the row goes on", call.call));
    }
    let accepted = last.is_some_and(|call| call.accepted());
    let spent = calls.len() == budget;
    let holds = match row.outcome {
        None => !accepted && !spent,
        Some(Outcome::Accepted) => accepted,
        // A context that is full ends a row early, and says so in its detail.
        Some(Outcome::BudgetExhausted) => !accepted && (spent || row.detail.is_some()),
        Some(_) => !accepted && !spent && row.detail.is_some(),
    };
    if !holds {
        let ended = row.outcome.map_or("open", Outcome::name);
        let of = if accepted {
            "the last accepted"
        } else {
            "none accepted"
        };
        problems.push(format!(
            ": {ended} does not follow from {} of {budget} calls, {of}",
            calls.len()
        ));
    }
}
