//! Completion to candidate: strict, bounded parsing, with a name for everything that can be wrong.
//!
//! Not a judgement of the plan (that is `gate`) and not a repair of the reply: at most a code fence is taken off,
//! and only when the study says so. What is wrong with a reply is data, never an error of ours.

pub mod leaf;
pub mod plan;
pub mod strict;

pub use plan::Plan;

use crate::engine::StopReason;
use serde::{Deserialize, Serialize};

/// Longest reply that is parsed, in bytes; longer ones are `too_large`.
pub const MAX_BYTES: usize = 64 * 1024;
/// Deepest nesting of arrays and objects that is parsed.
pub const MAX_DEPTH: usize = 32;

/// What a reply has to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// `{"commands": [...]}`, the compact profile's form.
    Commands,
    /// The paper's LeafOutput, whose `answer` holds the plan as JSON text.
    LeafOutput,
}

impl Format {
    /// A JSON schema whose documents are all read as candidates, when they are within [`MAX_BYTES`]: what a constrained
    /// reply is held to. Its plans have 1 to `most` commands, and its texts an end.
    pub fn json_schema(self, most: usize) -> serde_json::Value {
        match self {
            Self::Commands => plan::json_schema(most),
            Self::LeafOutput => leaf::held_schema(most),
        }
    }
}

/// What happens to a code fence around the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fences {
    /// It makes the reply unparseable, as in the paper.
    #[default]
    Strict,
    /// It is taken off first.
    Strip,
}

/// How parsing went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// A candidate.
    Ok,
    /// Nothing but white space.
    Empty,
    /// No JSON object in it.
    NoJson,
    /// Cut by the token cap before it was complete.
    Truncated,
    /// A code fence around it.
    Fenced,
    /// Other text around the JSON.
    Prose,
    /// Not JSON by its grammar.
    Syntax,
    /// A key twice in one object.
    DuplicateKey,
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep,
    /// Longer than [`MAX_BYTES`].
    TooLarge,
    /// JSON, but not of the form asked for.
    Schema,
}

impl Category {
    /// The name in tables and in the trace.
    pub fn name(self) -> &'static str {
        match self {
            Category::Ok => "ok",
            Category::Empty => "empty",
            Category::NoJson => "no_json",
            Category::Truncated => "truncated",
            Category::Fenced => "fenced",
            Category::Prose => "prose",
            Category::Syntax => "syntax",
            Category::DuplicateKey => "duplicate_key",
            Category::TooDeep => "too_deep",
            Category::TooLarge => "too_large",
            Category::Schema => "schema",
        }
    }
}

/// What is wrong with a reply, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The kind.
    pub category: Category,
    /// Where: a path from the reply's root (`commands[2]`), or a line and column.
    pub place: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: expected {}, found {}",
            self.place, self.expected, self.found
        )
    }
}

/// What stands around the plan in a LeafOutput.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The task that the reply says it is for.
    pub task_id: String,
    /// The files that it says it wrote.
    pub artifacts: Vec<String>,
    /// The answer's text; an object was re-serialised with sorted keys.
    pub answer: String,
}

/// A parsed completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// How strict parsing went; counted in every table.
    pub strict: Category,
    /// How it goes once a fence is taken off; counted beside the other.
    pub lenient: Category,
    /// What is wrong, under the study's rule.
    pub problem: Option<Problem>,
    /// The LeafOutput around the plan, when the format has one and it parsed.
    pub envelope: Option<Envelope>,
    /// The plan, when there is one.
    pub plan: Option<Plan>,
}

#[derive(Default)]
struct Read {
    envelope: Option<Envelope>,
    plan: Option<Plan>,
    problem: Option<Problem>,
}

impl Read {
    fn category(&self) -> Category {
        self.problem.as_ref().map_or(Category::Ok, |p| p.category)
    }
}

/// Parses the text of a completion. Never fails: what is wrong is in the candidate.
pub fn parse(text: &str, stop: StopReason, format: Format, fences: Fences) -> Candidate {
    let strict = read(text, stop, format);
    let lenient = match strip_fence(text) {
        Some(inner) if strict.problem.is_some() => Some(read(inner, stop, format)),
        _ => None,
    };
    let categories = (
        strict.category(),
        lenient.as_ref().map_or(strict.category(), Read::category),
    );
    let used = match fences {
        Fences::Strip => lenient.unwrap_or(strict),
        Fences::Strict => strict,
    };
    Candidate {
        strict: categories.0,
        lenient: categories.1,
        problem: used.problem,
        envelope: used.envelope,
        plan: used.plan,
    }
}

fn read(text: &str, stop: StopReason, format: Format) -> Read {
    let value = match strict::parse(text) {
        Ok(value) => value,
        Err(mut problem) => {
            // A reply that the cap has cut is broken for that reason, whatever the parser tripped over.
            if stop == StopReason::MaxTokens && problem.category != Category::TooLarge {
                problem.category = Category::Truncated;
            }
            return Read {
                problem: Some(problem),
                ..Read::default()
            };
        }
    };
    match format {
        Format::Commands => match plan::commands(&value, "") {
            Ok(plan) => Read {
                plan: Some(plan),
                ..Read::default()
            },
            Err(problem) => Read {
                problem: Some(problem),
                ..Read::default()
            },
        },
        Format::LeafOutput => match leaf::envelope(&value) {
            Err(problem) => Read {
                problem: Some(problem),
                ..Read::default()
            },
            Ok(envelope) => match leaf::plan(&envelope.answer) {
                Ok(plan) => Read {
                    envelope: Some(envelope),
                    plan: Some(plan),
                    problem: None,
                },
                Err(problem) => Read {
                    envelope: Some(envelope),
                    problem: Some(problem),
                    plan: None,
                },
            },
        },
    }
}

/// The inside of the first code fence, to its closing fence or to the end.
fn strip_fence(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("```")?;
    // A language may follow the opening fence.
    let body = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    Some(body.split_once("```").map_or(body, |(inside, _)| inside))
}

#[cfg(test)]
mod tests;
