//! The durable record of a run: every call, committed before the next prompt can exist.
//!
//! Not a log: the trace alone decides what a resumed run does next, and every table is derived from it. One call is
//! one transaction in SQLite (WAL, `synchronous = FULL`), so what can be lost is the call in flight.
//! Each row's calls form a hash chain; measurements (times, cache hits) stand in a table of their own, outside the
//! chain and outside the canonical export, because they may differ where nothing else may.

pub mod call;
pub mod export;
pub mod lock;
pub mod read;
pub mod schema;
mod start;
pub mod store;
mod tables;
pub mod verify;

pub use read::RunReader;
pub use store::{Committed, Trace};

use crate::candidate::Candidate;
use crate::engine::{Cost, Identity, Sampling, StopReason};
use crate::feedback::Feedback;
use crate::gate::chain::Judgement;
use crate::model::chat::Message;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version and commit of this program, noted with every session.
pub const PROGRAM: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("VERIHARNESS_GIT"), ")");

/// A row as the study plans it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRow {
    /// `lane/task/policy/bBUDGET/sSEED`; unique within a run and the row's name everywhere.
    pub key: String,
    /// The lane.
    pub lane: String,
    /// The task's id.
    pub task: String,
    /// The policy's name.
    pub policy: String,
    /// Most calls.
    pub budget: u32,
    /// Inference seed.
    pub seed: u64,
}

impl PlannedRow {
    /// A row with its key.
    pub fn new(lane: &str, task: &str, policy: &str, budget: u32, seed: u64) -> Self {
        Self {
            key: format!("{lane}/{task}/{policy}/b{budget}/s{seed}"),
            lane: lane.to_owned(),
            task: task.to_owned(),
            policy: policy.to_owned(),
            budget,
            seed,
        }
    }
}

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A candidate passed every gate.
    Accepted,
    /// The last call's candidate was rejected, or the next prompt would not fit the context.
    BudgetExhausted,
    /// The engine could not complete a prompt.
    EngineError,
    /// A gate broke.
    GateError,
    /// Given up by request.
    Cancelled,
}

impl Outcome {
    /// The name in tables and in the store.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Accepted => "accepted",
            Outcome::BudgetExhausted => "budget_exhausted",
            Outcome::EngineError => "engine_error",
            Outcome::GateError => "gate_error",
            Outcome::Cancelled => "cancelled",
        }
    }

    /// Whether the row says something about its policy; the others say something about the harness.
    pub fn counts(self) -> bool {
        matches!(self, Outcome::Accepted | Outcome::BudgetExhausted)
    }

    fn parse(name: &str) -> Option<Self> {
        use Outcome::{Accepted, BudgetExhausted, Cancelled, EngineError, GateError};
        [Accepted, BudgetExhausted, EngineError, GateError, Cancelled]
            .into_iter()
            .find(|o| o.name() == name)
    }
}

/// What a run is: compared on resume, and different in nothing from one session to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The study's name.
    pub study: String,
    /// sha256 of the study as it is run (file and overrides), in hex.
    pub study_sha256: String,
    /// The study as it is run, as TOML.
    pub study_toml: String,
    /// What completes the prompts.
    pub identity: Identity,
    /// Where the weights came from: revision and source, as the lock file beside them says; empty if unknown.
    pub model_source: String,
    /// sha256 of the schema that the program holds the replies of a constrained study to, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_sha256: Option<String>,
    /// sha256 of each task's file by task id, in hex.
    pub tasks: BTreeMap<String, String>,
}

/// One call, complete.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// Which call of the row, from 1.
    pub call: u32,
    /// What was asked.
    pub messages: Vec<Message>,
    /// The rendered prompt.
    pub prompt_text: String,
    /// Its tokens; empty when the engine has no tokenizer.
    pub prompt_tokens: Vec<u32>,
    /// The completion's text.
    pub reply: String,
    /// Its tokens.
    pub reply_tokens: Vec<u32>,
    /// Why it ended.
    pub stop: StopReason,
    /// The earlier call of this row whose byte-identical prompt gave this reply, at temperature 0.
    pub reused_from: Option<u32>,
    /// The parsed reply.
    pub candidate: Candidate,
    /// Every gate's result.
    pub judgement: Judgement,
    /// What the policy makes of the failures; `None` when the candidate was accepted.
    pub feedback: Option<Feedback>,
    /// Whether the plan is the one of the call before.
    pub repeats_plan: bool,
    /// How tokens were chosen.
    pub sampling: Sampling,
    /// Whitespace-separated words of the user messages, the paper's proxy of prompt size.
    pub prompt_words: u64,
    /// Whitespace-separated words of the reply.
    pub reply_words: u64,
    /// What it cost; outside the hash chain.
    pub cost: Cost,
    /// Time in gates and parser, in microseconds; outside the hash chain.
    pub gate_us: u64,
}

/// What can go wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Another process writes to the run.
    #[error("{run} is in use by process {pid}; wait for it, or stop it")]
    Locked {
        /// The run's folder.
        run: String,
        /// The other process, as it wrote itself into the lock file.
        pid: String,
    },
    /// The run was made of something else.
    #[error(
        "{run} was started with another {what}: it has {stored}, this is {found}; use --fresh to start over, or restore it"
    )]
    Changed {
        /// The run's folder.
        run: String,
        /// Study, task or model.
        what: String,
        /// The stored hash or value.
        stored: String,
        /// The hash or value now.
        found: String,
    },
    /// No room for another commit; everything committed before is intact.
    #[error(
        "no space left for {file}; every committed call is kept: free some space, then run the same command"
    )]
    DiskFull {
        /// The database.
        file: String,
    },
    /// A number that JSON cannot hold.
    #[error("row {row}, call {call}: {field} is {value}, which is not a finite number")]
    NonFinite {
        /// The row.
        row: String,
        /// The call.
        call: u32,
        /// The field.
        field: &'static str,
        /// The value.
        value: f64,
    },
    /// The stored data are not what this program writes.
    #[error("{file}: {place}: expected {expected}, found {found}")]
    Corrupt {
        /// The database.
        file: String,
        /// Table, row, call or column.
        place: String,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The store was asked for something out of order; a fault of the caller.
    #[error("row {row}: expected call {expected} to be committed next, found call {found}")]
    Order {
        /// The row.
        row: String,
        /// The next call.
        expected: u32,
        /// The call that came.
        found: u32,
    },
    /// SQLite failed.
    #[error("{file}")]
    Sqlite {
        /// The database.
        file: String,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A file could not be read or written.
    #[error("{file}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
}
