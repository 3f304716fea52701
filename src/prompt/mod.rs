//! Task view and feedback to messages: one file per profile.
//!
//! Not tokens (the engine renders) and no judgement: a prompt knows of a task only its [`TaskView`], and of a
//! failure only what the policy rendered.

pub mod compact;
pub mod paper;

use crate::candidate::{Format, Plan};
use crate::feedback::{Caps, Feedback, Policy};
use crate::gate::TaskView;
use crate::model::chat::Message;
use serde::{Deserialize, Serialize};

/// How prompts are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The paper's state pack and LeafOutput, in our wording.
    Paper,
    /// A short prompt for small models; the reply is the bare plan.
    Compact,
}

impl Profile {
    /// The form of reply that the profile asks for.
    pub fn format(self) -> Format {
        match self {
            Profile::Paper => Format::LeafOutput,
            Profile::Compact => Format::Commands,
        }
    }

    /// How much of a failure the profile's policies show, unless the study says otherwise.
    pub fn caps(self) -> Caps {
        match self {
            Profile::Paper => Caps {
                field_chars: Some(paper::FIELD_CHARS),
                ..Caps::default()
            },
            Profile::Compact => Caps::default(),
        }
    }

    /// The messages of one call.
    pub fn messages(self, task: &TaskView, attempt: &Attempt<'_>) -> Vec<Message> {
        match self {
            Profile::Paper => paper::messages(task, attempt),
            Profile::Compact => compact::messages(task, attempt),
        }
    }
}

/// One call of a row, as its prompt knows it.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Which call, from 1.
    pub number: u32,
    /// Most calls of the row.
    pub budget: u32,
    /// Named in every prompt, the first one included.
    pub policy: Policy,
    /// The last candidate and what the policy says of it; `None` on the first call.
    pub rejected: Option<Rejected<'a>>,
}

/// The last candidate, rejected.
#[derive(Clone, Copy, Debug)]
pub struct Rejected<'a> {
    /// Its plan, when it had one.
    pub plan: Option<&'a Plan>,
    /// The text of its `answer`, empty when the reply had none.
    pub answer: &'a str,
    /// The whole reply.
    pub reply: &'a str,
    /// The rendered failures.
    pub feedback: &'a Feedback,
}
