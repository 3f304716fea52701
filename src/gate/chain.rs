//! The gates of one study in their order: schema, artifact, then the task's own.
//!
//! Not one of them: it collects every finding, and only a candidate without any is accepted. A plan that wins still
//! fails when the envelope around it is wrong.

use super::textworld::{self, Game};
use super::{Expected, Failure, GateResult, TaskView, Verdict};
use crate::candidate::leaf::ARTIFACT;
use crate::candidate::{Candidate, Envelope, Format, Problem};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// A task: what a row is about.
#[derive(Clone)]
pub enum Task {
    /// A TextWorld game to be won by a plan of at most `max_steps` commands.
    TextWorld {
        /// The task's id.
        id: String,
        /// The game.
        game: Arc<Game>,
        /// Most commands in a plan.
        max_steps: usize,
    },
}

impl Task {
    /// What a prompt may know.
    pub fn view(&self) -> TaskView {
        match self {
            Task::TextWorld { id, game, max_steps } => textworld::view(game, id, *max_steps),
        }
    }
}

/// What all gates together found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// Accepted or rejected.
    pub verdict: Verdict,
    /// Each gate's result, in order.
    pub gates: Vec<GateResult>,
    /// Known only afterwards and never fed back.
    pub post_hoc: Value,
}

impl Judgement {
    /// The findings, in the gates' order.
    pub fn failures(&self) -> Vec<Failure> {
        self.gates
            .iter()
            .filter_map(|result| result.failure.clone())
            .collect()
    }
}

/// Runs the gates over a candidate. `reply` is the completion's text.
pub fn judge(task: &Task, candidate: &Candidate, reply: &str, format: Format) -> Judgement {
    let mut gates = vec![GateResult {
        gate: "schema".into(),
        failure: schema(candidate, reply, format),
    }];
    let view = task.view();
    if format == Format::LeafOutput {
        let failure = artifact(candidate.envelope.as_ref(), &view.id);
        gates.push(GateResult {
            gate: "artifact".into(),
            failure,
        });
    }
    let mut post_hoc = json!({});
    let Task::TextWorld { game, max_steps, .. } = task;
    // Under LeafOutput every gate runs, and a reply without a plan is an empty answer; in the compact form one
    // finding about an unparseable reply says all there is to say.
    if let Some(plan) = &candidate.plan {
        let judged = textworld::judge(game, &plan.commands, *max_steps);
        post_hoc = json!(judged.post_hoc);
        gates.push(GateResult {
            gate: "textworld".into(),
            failure: judged.failure,
        });
    } else if format == Format::LeafOutput {
        let answer = candidate.envelope.as_ref().map_or("", |e| &e.answer);
        gates.push(GateResult {
            gate: "textworld".into(),
            failure: Some(textworld::no_plan(answer, *max_steps)),
        });
    }
    let accepted = gates.iter().all(|result| result.failure.is_none());
    let verdict = if accepted {
        Verdict::Accepted
    } else {
        Verdict::Rejected
    };
    Judgement {
        verdict,
        gates,
        post_hoc,
    }
}

/// The reply as a whole: does it have the form? A LeafOutput with a bad plan inside does.
fn schema(candidate: &Candidate, reply: &str, format: Format) -> Option<Failure> {
    let problem = candidate
        .problem
        .as_ref()
        .filter(|_| candidate.envelope.is_none())?;
    let form = match format {
        Format::Commands => r#"one JSON object {"commands": ["...", "..."]} and nothing else"#,
        Format::LeafOutput => "one JSON object of the LeafOutput form and nothing else",
    };
    Some(Failure {
        gate: "schema".into(),
        code: "reply_unparseable".into(),
        location: "LeafOutput".into(),
        observed: reply.to_owned(),
        expected: Expected::Value(form.into()),
        message: format!("The reply could not be read: {}.", said(problem)),
    })
}

fn artifact(envelope: Option<&Envelope>, task_id: &str) -> Option<Failure> {
    let failure = |code: &str, location: &str, observed: String, expected: &str, message: &str| {
        Some(Failure {
            gate: "artifact".into(),
            code: code.into(),
            location: location.into(),
            observed,
            expected: Expected::Value(expected.into()),
            message: message.into(),
        })
    };
    let artifacts = envelope.map_or(&[][..], |e| &e.artifacts);
    match envelope {
        Some(e) if e.task_id != task_id => failure(
            "task_id_mismatch",
            "LeafOutput.task_id",
            e.task_id.clone(),
            task_id,
            "The reply names another task.",
        ),
        _ if artifacts.iter().any(|name| name == ARTIFACT) => None,
        _ => failure(
            "artifact_missing",
            "LeafOutput.artifacts",
            json!(artifacts).to_string(),
            ARTIFACT,
            "A required artifact is not listed.",
        ),
    }
}

fn said(problem: &Problem) -> String {
    format!("{} ({problem})", problem.category.name())
}
