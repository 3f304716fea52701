//! The gates of one study in their order: schema, artifact, then the task's own.
//!
//! Not one of them: it collects every finding, and only a candidate without any is accepted. A plan that wins still
//! fails when the envelope around it is wrong.

use super::textworld::{self, Game};
use super::{Expected, Failure, GateError, GateResult, TaskView, Verdict};
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
///
/// # Errors
/// [`GateError`] when a gate could not come to a finding: no fault of the candidate's.
pub fn judge(
    task: &Task,
    candidate: &Candidate,
    reply: &str,
    format: Format,
) -> Result<Judgement, GateError> {
    let Task::TextWorld { id, game, max_steps } = task;
    let mut gates = vec![GateResult {
        gate: "schema".into(),
        failure: schema(id, candidate, reply, format),
    }];
    if format == Format::LeafOutput {
        let failure = artifact(candidate.envelope.as_ref());
        gates.push(GateResult {
            gate: "artifact".into(),
            failure,
        });
    }
    let mut post_hoc = json!({});
    // Under LeafOutput every gate runs, and a reply without a plan is an empty answer; in the compact form one
    // finding about an unparseable reply says all there is to say.
    if let Some(plan) = &candidate.plan {
        let judged = textworld::judge(game, &plan.commands, *max_steps);
        if let Some(broken) = judged
            .failure
            .as_ref()
            .filter(|failure| failure.code == "environment_error")
        {
            return Err(GateError {
                label: broken.label(),
                reason: broken.message.clone(),
            });
        }
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
    Ok(Judgement {
        verdict,
        gates,
        post_hoc,
    })
}

/// The reply as a whole: does it have the form, and is it for this task? A LeafOutput with a bad plan inside is.
fn schema(task_id: &str, candidate: &Candidate, reply: &str, format: Format) -> Option<Failure> {
    if let Some(envelope) = &candidate.envelope {
        let mismatch = || Failure {
            gate: "schema".into(),
            code: "task_id_mismatch".into(),
            location: "LeafOutput.task_id".into(),
            observed: envelope.task_id.clone(),
            expected: Expected::Value(task_id.into()),
            message: "The reply names another task.".into(),
        };
        return (envelope.task_id != task_id).then(mismatch);
    }
    let problem = candidate.problem.as_ref()?;
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

/// The plan's file is listed. A reply without an envelope lists nothing.
fn artifact(envelope: Option<&Envelope>) -> Option<Failure> {
    let listed = envelope.map_or(&[][..], |e| &e.artifacts);
    let missing = || Failure {
        gate: "artifact".into(),
        code: "artifact_missing".into(),
        location: "LeafOutput.artifacts".into(),
        observed: json!(listed).to_string(),
        expected: Expected::Value(ARTIFACT.into()),
        message: "A required artifact is not listed.".into(),
    };
    (!listed.iter().any(|name| name == ARTIFACT)).then(missing)
}

fn said(problem: &Problem) -> String {
    format!("{} ({problem})", problem.category.name())
}
