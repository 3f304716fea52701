//! The paper profile: a bounded worker, a state pack and LeafOutput, laid out as the original's, in our wording.
//!
//! Not the original's text. Its order, its field names, both appearances of the feedback in a retry and the cut of
//! every field at [`FIELD_CHARS`] are kept, since they are part of what was measured.

use super::{Attempt, Rejected};
use crate::candidate::leaf::{self, ARTIFACT};
use crate::feedback::cut;
use crate::gate::TaskView;
use crate::model::chat::Message;
use serde_json::{Map, Value, json};

/// Characters of each feedback field, and of the rejected answer, that are shown.
pub const FIELD_CHARS: usize = 240;

const SYSTEM: &str =
    "Your whole reply is one JSON value of the LeafOutput form; write nothing before or after it.";

const PREAMBLE: &str = "\
You are one bounded worker inside a larger program.
- You propose; whether your proposal is accepted is decided elsewhere, by checks that you cannot influence.
- Return the structured output that is described under output_schema, and no other text.
- Every file that you would produce must be named in `artifacts`.
- Code fences around the reply make it unreadable.";

const STRATEGY: &str = "Strategy: take the most direct way to the objective that the state below supports.";

const REPAIR: [&str; 4] = [
    "Return a complete new LeafOutput; parts of the old one are not kept for you.",
    "Change what the feedback shows to be wrong and keep what it does not mention.",
    "The plan is run again from the initial state, so it has to contain every step.",
    "An answer equal to the rejected one will be rejected again.",
];

/// The messages of one call.
pub fn messages(task: &TaskView, attempt: &Attempt<'_>) -> Vec<Message> {
    let feedback = attempt.rejected.as_ref().map(lines);
    let mut user = format!(
        "{PREAMBLE}\n\n{}\n\n{}\n",
        guidance(task),
        attempt_block(task, attempt)
    );
    if let Some(lines) = &feedback {
        user.push_str("\nRepair:\n");
        for line in lines.iter().map(String::as_str).chain(REPAIR) {
            user.push_str("- ");
            user.push_str(line);
            user.push('\n');
        }
    }
    let pack = state_pack(task, attempt, feedback.as_deref());
    // Formatting a JSON value into a string cannot fail; the alternate form is the indented one.
    user.push_str(&format!("\nState pack:\n{pack:#}"));
    vec![Message::system(SYSTEM), Message::user(user)]
}

fn guidance(task: &TaskView) -> String {
    format!(
        "Task family {}: `answer` is itself JSON text with one key, `commands`, a list of command strings.\n\
         - At most {} commands.\n\
         - They are run in order from the initial state; each must be accepted by the game at that moment.\n\
         - List `{ARTIFACT}` in `artifacts`.",
        task.family, task.max_steps
    )
}

fn attempt_block(task: &TaskView, attempt: &Attempt<'_>) -> String {
    format!(
        "Attempt {} of {}\nCandidate: {}-{}-{}\n{STRATEGY}",
        attempt.number,
        attempt.budget,
        task.id,
        attempt.policy.name(),
        attempt.number
    )
}

/// All feedback lines: opening, findings, rejected answer.
fn lines(rejected: &Rejected<'_>) -> Vec<String> {
    let answer = match cut(rejected.answer, Some(FIELD_CHARS)) {
        "" => "(none)",
        text => text,
    };
    let feedback = rejected.feedback;
    let closing = format!("Rejected answer: {answer}");
    feedback
        .opening
        .iter()
        .chain(&feedback.payload)
        .cloned()
        .chain([closing])
        .collect()
}

fn state_pack(task: &TaskView, attempt: &Attempt<'_>, feedback: Option<&[String]>) -> Value {
    let mut state = Map::new();
    state.insert("task_family".into(), task.family.clone().into());
    state.insert("objective".into(), task.objective.clone().into());
    state.insert("initial_description".into(), task.description.clone().into());
    state.insert("initial_inventory".into(), task.inventory.clone().into());
    state.insert("max_steps".into(), task.max_steps.into());
    if let Some(lines) = feedback {
        state.insert("retry_feedback".into(), lines.into());
    }
    json!({
        "task_id": task.id,
        "variant": attempt.policy.name(),
        "objective": task.objective,
        "current_state": state,
        "accepted_facts": [],
        "rejected_facts": [],
        "constraints": [
            format!("at most {} commands", task.max_steps),
            "every command exactly as the game accepts it".to_owned(),
            format!("artifacts contains {ARTIFACT}"),
        ],
        "distractors": [],
        "output_schema": leaf::json_schema(),
        "budget": { "max_calls": attempt.budget, "attempt": attempt.number },
    })
}
