//! Candidate to verdict. A gate alone accepts; a model's opinion of its own work counts for nothing.
//!
//! Not feedback: a gate states complete findings ([`Failure`]), and a policy decides what of them is shown.
//! A rejected candidate is data; a broken harness is a [`GateError`].

pub mod chain;
pub mod textworld;

use serde::{Deserialize, Serialize};

/// What a gate knows to be right at the failed place. Complete: caps, cuts and stringifying are the policy's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Any one of these, in the gate's own order; all alternatives.
    OneOf(Vec<String>),
    /// This value, or this description of it.
    Value(String),
    /// The gate does not know.
    Unknown,
}

/// One finding of one gate, before any policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The gate: `schema`, `artifact`, `textworld`, …
    pub gate: String,
    /// What kind of failure, within the gate: `action_invalid`, `quest_incomplete`, …
    pub code: String,
    /// Where in the reply: `LeafOutput.answer.commands[1]`.
    pub location: String,
    /// What stood there.
    pub observed: String,
    /// What should have stood there.
    pub expected: Expected,
    /// The raw diagnostic, one sentence.
    pub message: String,
}

impl Failure {
    /// The stable label `<gate>.<code>`.
    pub fn label(&self) -> String {
        format!("{}.{}", self.gate, self.code)
    }
}

/// The result of one gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateResult {
    /// The gate.
    pub gate: String,
    /// Its finding; `None` when the candidate passed it.
    pub failure: Option<Failure>,
}

/// A gate that broke: the harness failed, not the candidate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{label}: {reason}")]
pub struct GateError {
    /// `<gate>.<code>`.
    pub label: String,
    /// What it says.
    pub reason: String,
}

/// All gates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every gate passed.
    Accepted,
    /// At least one did not.
    Rejected,
}

/// What a prompt may know of a task. It holds no solution and nothing post-hoc.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// The task's id: a game's name.
    pub id: String,
    /// The task family: `textworld`.
    pub family: String,
    /// What is to be reached.
    pub objective: String,
    /// The room at the start.
    pub description: String,
    /// The inventory at the start.
    pub inventory: String,
    /// Most commands in a plan.
    pub max_steps: usize,
}
