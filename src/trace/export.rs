//! The canonical form of a call: one JSON line with a fixed order of fields, and the hash chain over such lines.
//!
//! Not the measurements: two runs of the same study, however they were scheduled, interrupted or cached, export the
//! same bytes. The lines are ordered by row and call, and they are what `scripted:FILE` plays back.

use super::{CallRecord, PlannedRow, RunReader, TraceError};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::Write;

/// One call as it is hashed and exported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallLine {
    /// Key of the row.
    pub row: String,
    /// Which call, from 1.
    pub call: u32,
    /// What was asked.
    pub messages: Value,
    /// The rendered prompt.
    pub prompt_text: String,
    /// Its tokens.
    pub prompt_tokens: Value,
    /// The completion's text.
    pub reply: String,
    /// Its tokens.
    pub reply_tokens: Value,
    /// Why it ended.
    pub stop: String,
    /// The call whose reply this is.
    pub reused_from: Option<u32>,
    /// The parsed reply.
    pub candidate: Value,
    /// Every gate's result.
    pub judgement: Value,
    /// What the policy made of it.
    pub feedback: Option<Value>,
    /// Whether the plan is the one of the call before.
    pub repeats_plan: bool,
    /// Model and backend.
    pub identity: Value,
    /// How tokens were chosen.
    pub sampling: Value,
    /// Inference seed.
    pub seed: u64,
    /// Whitespace words asked.
    pub prompt_words: u64,
    /// Whitespace words answered.
    pub reply_words: u64,
}

impl CallLine {
    /// The line of a call about to be committed.
    pub(super) fn new(row: &PlannedRow, record: &CallRecord, identity_json: &str) -> Self {
        let stop = json!(record.stop);
        Self {
            row: row.key.clone(),
            call: record.call,
            messages: json!(record.messages),
            prompt_text: record.prompt_text.clone(),
            prompt_tokens: json!(record.prompt_tokens),
            reply: record.reply.clone(),
            reply_tokens: json!(record.reply_tokens),
            stop: stop.as_str().unwrap_or_default().to_owned(),
            reused_from: record.reused_from,
            candidate: json!(record.candidate),
            judgement: json!(record.judgement),
            feedback: record.feedback.as_ref().map(|feedback| json!(feedback)),
            repeats_plan: record.repeats_plan,
            identity: serde_json::from_str(identity_json).unwrap_or_default(),
            sampling: json!(record.sampling),
            seed: row.seed,
            prompt_words: record.prompt_words,
            reply_words: record.reply_words,
        }
    }

    /// The bytes that are hashed.
    pub fn canonical(&self) -> String {
        json!(self).to_string()
    }
}

/// The start of a row's chain.
pub fn row_seed(key: &str) -> String {
    format!("{:x}", Sha256::digest(key))
}

/// The next link: sha256 over the previous one and the canonical bytes, in hex.
pub fn chain_hash(previous: &str, canonical: &str) -> String {
    format!(
        "{:x}",
        Sha256::new_with_prefix(previous)
            .chain_update(canonical)
            .finalize()
    )
}

/// What stops an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The output cannot be written; the caller knows its name.
    #[error("cannot write the export")]
    Write(#[source] std::io::Error),
}

/// Writes the canonical export: per row a line with how it ended, after the lines of its last attempt's calls.
///
/// # Errors
/// What reading the trace or writing to `out` says.
pub fn export(run: &RunReader, out: &mut dyn Write) -> Result<(), ExportError> {
    let io = ExportError::Write;
    for row in run.rows()? {
        for line in run.lines(&row)? {
            writeln!(out, "{}", line.canonical()).map_err(io)?;
        }
        let end = json!({ "row": row.planned.key, "outcome": row.outcome, "last_hash": row.last_hash });
        writeln!(out, "{end}").map_err(io)?;
    }
    out.flush().map_err(io)
}
