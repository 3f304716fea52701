//! The compact profile: a short prompt that small models can follow; the reply is `{"commands": [...]}`.
//!
//! Not the paper's prompt. What is stable across policies and calls comes first and the policy's name late, so that
//! rows of a game share a prefix and a retry computes only its tail. Of the task nothing is cut
//! but blank lines.

use super::{Attempt, Rejected};
use crate::feedback::cut;
use crate::gate::TaskView;
use crate::model::chat::Message;

/// Rejected steps that are shown back.
const SHOWN_STEPS: usize = 8;
/// Characters of a reply without a plan that are shown back.
const SHOWN_REPLY: usize = 240;

const SYSTEM: &str = "You write plans for a text adventure. Answer with one JSON object and nothing else.";

/// The messages of one call.
pub fn messages(task: &TaskView, attempt: &Attempt<'_>) -> Vec<Message> {
    let most = task.max_steps;
    let mut user = format!(
        "Write a plan that wins this text adventure.\n\
         Rules:\n\
         1. Reply only with JSON of the form {{\"commands\": [\"first command\", \"second command\"]}}. No explanation, no code fence.\n\
         2. A plan has 1 to {most} commands. They run in order, and every plan starts again from the room below.\n\
         3. Each command must be an exact command string that the game accepts at that moment. The first wrong command rejects the whole plan.\n\
         Example of the reply format only (from a different task, a coffee machine):\n\
         {{\"commands\": [\"fill tank with water\", \"press brew button\"]}}\n\
         \n\
         Objective: {}\n\
         Room:\n\
         {}\n\
         Inventory: {}\n\
         Feedback policy: {}\n",
        task.objective,
        without_blank_lines(&task.description),
        task.inventory,
        attempt.policy.name(),
    );
    match &attempt.rejected {
        None => user.push_str("Write the plan. Reply only with the JSON object."),
        Some(rejected) => retry(&mut user, rejected, most),
    }
    vec![Message::system(SYSTEM), Message::user(user)]
}

/// TextWorld sets off its paragraphs by runs of blank lines, which cost small models tokens and attention.
fn without_blank_lines(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

fn retry(user: &mut String, rejected: &Rejected<'_>, most: usize) {
    user.push_str("\nYour last plan was rejected. Its steps were:\n");
    match rejected.plan {
        Some(plan) => {
            for (i, command) in plan.commands.iter().take(SHOWN_STEPS).enumerate() {
                *user += &format!("commands[{i}] = {command}\n");
            }
        }
        None => {
            *user += cut(rejected.reply, Some(SHOWN_REPLY));
            user.push('\n');
        }
    }
    user.push_str("Feedback:\n");
    for line in &rejected.feedback.payload {
        user.push_str(line);
        user.push('\n');
    }
    *user += &format!(
        "Now write the repaired plan, starting again from the room above: copy the steps before the rejected one, \
         put one command that the game accepts in place of the rejected step, and add only what is still needed. \
         Where the feedback lists several possible values, they are choices: take exactly one, the one that serves \
         the objective. 1 to {most} commands in all. Reply only with the JSON object."
    );
}
