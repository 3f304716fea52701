//! What a stored call says, in plain words and numbers: for tables and transcripts.
//!
//! Not a judgement of its own and not a summary over calls; a reader of the trace needs no type of another stage.

use super::CallRecord;
use crate::gate::{Expected, Verdict};
use crate::model::chat::Role;

/// One gate's result in plain words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The gate.
    pub gate: String,
    /// What it found; `None` when the candidate passed it.
    pub failure: Option<FailureText>,
}

/// A failure in plain words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureText {
    /// `<gate>.<code>`.
    pub label: String,
    /// Where in the reply.
    pub location: String,
    /// What stood there.
    pub observed: String,
    /// What should have stood there, all of it; empty when the gate does not know.
    pub expected: Vec<String>,
    /// The raw diagnostic.
    pub message: String,
}

impl CallRecord {
    /// Whether every gate passed.
    pub fn accepted(&self) -> bool {
        self.judgement.verdict == Verdict::Accepted
    }

    /// Label of the first failure, in the gates' order.
    pub fn first_label(&self) -> Option<String> {
        self.judgement.failures().first().map(|failure| failure.label())
    }

    /// Every gate's result, in order.
    pub fn findings(&self) -> Vec<Finding> {
        let gates = self.judgement.gates.iter();
        gates
            .map(|result| Finding {
                gate: result.gate.clone(),
                failure: result.failure.as_ref().map(|failure| FailureText {
                    label: failure.label(),
                    location: failure.location.clone(),
                    observed: failure.observed.clone(),
                    expected: match &failure.expected {
                        Expected::OneOf(all) => all.clone(),
                        Expected::Value(value) => vec![value.clone()],
                        Expected::Unknown => Vec::new(),
                    },
                    message: failure.message.clone(),
                }),
            })
            .collect()
    }

    /// The messages of one kind of speaker, as one text: `user` for the task, else the standing instructions.
    pub fn said(&self, user: bool) -> String {
        let role = if user { Role::User } else { Role::System };
        let texts: Vec<&str> = self
            .messages
            .iter()
            .filter(|message| message.role == role)
            .map(|message| message.content.as_str())
            .collect();
        texts.join("\n")
    }
}
