//! The rows of a run as plain numbers: what one pass over the trace keeps of each row and call.
//!
//! Not a summary: nothing is added up here, and no text of a prompt or reply is kept.

use crate::trace::read::StoredRow;
use crate::trace::{CallRecord, Outcome, PlannedRow, RunReader, TraceError};

/// A row and its calls.
#[derive(Clone, Debug)]
pub struct RowFigures {
    /// The plan of it.
    pub planned: PlannedRow,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
    /// How it ended, in the words of the table "How rows ended".
    pub end: String,
    /// The call whose candidate was accepted, from 1.
    pub won_at: Option<u32>,
    /// Its calls in order; those of the current attempt.
    pub calls: Vec<CallFigures>,
}

/// What is counted of one call.
#[derive(Clone, Debug)]
pub struct CallFigures {
    /// Its reply is that of an earlier call with the same prompt.
    pub reused: bool,
    /// The plan of the call before came again.
    pub same_plan: bool,
    /// Parse category, as strict parsing has it.
    pub strict: &'static str,
    /// Parse category once a code fence is taken off.
    pub lenient: &'static str,
    /// Whitespace words of the user messages.
    pub prompt_words: u64,
    /// Prompt tokens; 0 when the engine has no tokenizer.
    pub tokens_in: u64,
    /// Prompt tokens that the prefix cache held.
    pub tokens_cached: u64,
    /// New tokens.
    pub tokens_out: u64,
    /// Microseconds queued, in prefill, in decoding, in parser and gates.
    pub micros: [u64; 4],
}

impl RowFigures {
    /// Whether the row enters the statistics.
    pub fn counts(&self) -> bool {
        self.outcome.is_some_and(Outcome::counts)
    }

    fn new(row: StoredRow, calls: &[CallRecord]) -> Self {
        let accepted = calls.iter().find(|call| call.accepted());
        Self {
            end: end(&row, calls.last()),
            won_at: accepted
                .filter(|_| row.outcome == Some(Outcome::Accepted))
                .map(|call| call.call),
            outcome: row.outcome,
            planned: row.planned,
            calls: calls.iter().map(CallFigures::new).collect(),
        }
    }
}

impl CallFigures {
    fn new(call: &CallRecord) -> Self {
        let cost = &call.cost;
        Self {
            reused: call.reused_from.is_some(),
            same_plan: call.repeats_plan,
            strict: call.candidate.strict.name(),
            lenient: call.candidate.lenient.name(),
            prompt_words: call.prompt_words,
            tokens_in: call.prompt_tokens.len() as u64,
            tokens_cached: cost.cached_tokens as u64,
            tokens_out: call.reply_tokens.len() as u64,
            micros: [cost.queued_us, cost.prefill_us, cost.decode_us, call.gate_us],
        }
    }
}

/// All rows in the study's order.
///
/// # Errors
/// What reading the trace says.
pub fn read(run: &RunReader) -> Result<Vec<RowFigures>, TraceError> {
    let rows = run.rows()?;
    rows.into_iter()
        .map(|row| {
            let calls = run.calls(&row)?;
            Ok(RowFigures::new(row, &calls))
        })
        .collect()
}

/// A row that spent its budget is named by the first failure of its last call; one that no call ended and that
/// counts all the same ran out of context, and its detail says so.
fn end(row: &StoredRow, last: Option<&CallRecord>) -> String {
    match row.outcome {
        None => "not ended".into(),
        Some(Outcome::BudgetExhausted) if row.detail.is_some() => "context full".into(),
        Some(Outcome::BudgetExhausted) => last
            .and_then(CallRecord::first_label)
            .unwrap_or_else(|| "no failure stored".into()),
        Some(outcome) => outcome.name().to_owned(),
    }
}
