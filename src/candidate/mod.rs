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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(text: &str) -> Candidate {
        parse(text, StopReason::EndOfTurn, Format::Commands, Fences::Strict)
    }

    #[test]
    fn a_plan_is_read_as_written() {
        let candidate = plan(" {\"commands\": [\"go east\", \" take  worm \"]}\n");
        assert_eq!(candidate.strict, Category::Ok);
        assert_eq!(candidate.plan.unwrap().commands, ["go east", " take  worm "]);
    }

    #[test]
    fn everything_wrong_has_its_category() {
        let deep = "[".repeat(1_000);
        let large = format!("{{\"commands\": [\"{}\"]}}", "x".repeat(MAX_BYTES));
        let table: &[(&str, Category)] = &[
            ("", Category::Empty),
            (" \n\t", Category::Empty),
            ("I would go east.", Category::NoJson),
            ("```json\n{\"commands\": []}\n```", Category::Fenced),
            ("Sure: {\"commands\": []}", Category::Prose),
            ("{\"commands\": []} Good luck!", Category::Prose),
            ("{\"commands\": []}\n{\"commands\": []}", Category::Prose),
            ("{\"commands\": [\"a\",]}", Category::Syntax),
            ("{\"commands\": [NaN]}", Category::Syntax),
            ("{'commands': []}", Category::Syntax),
            ("{\"commands\": [\"go", Category::Syntax),
            ("{\"commands\": [\"\\ud800\"]}", Category::Syntax),
            ("{\"commands\": [], \"commands\": []}", Category::DuplicateKey),
            (&deep, Category::TooDeep),
            (&large, Category::TooLarge),
            ("[]", Category::Schema),
            ("7", Category::Schema),
            ("{}", Category::Schema),
            ("{\"commands\": \"go east\"}", Category::Schema),
            ("{\"commands\": [1]}", Category::Schema),
            ("{\"commands\": [], \"note\": \"\"}", Category::Schema),
        ];
        for (text, category) in table {
            let candidate = plan(text);
            assert_eq!(candidate.strict, *category, "{text:.60}");
            assert_eq!(candidate.problem.as_ref().map(|p| p.category), Some(*category));
            assert!(candidate.plan.is_none());
        }
        assert_eq!(
            plan("{\"commands\": [\"a\", 1]}").problem.unwrap().to_string(),
            "commands[1]: expected a string, found a number"
        );
    }

    #[test]
    fn a_cut_reply_is_truncated_whatever_it_trips_over() {
        for text in ["{\"commands\": [\"go", "```json\n{", "let me think", ""] {
            let candidate = parse(text, StopReason::MaxTokens, Format::Commands, Fences::Strict);
            assert_eq!(candidate.strict, Category::Truncated, "{text}");
        }
        let whole = parse(
            "{\"commands\": []}",
            StopReason::MaxTokens,
            Format::Commands,
            Fences::Strict,
        );
        assert_eq!(whole.strict, Category::Ok);
    }

    #[test]
    fn fences_come_off_only_when_asked_and_both_counts_are_kept() {
        for text in [
            "```json\n{\"commands\": [\"look\"]}\n```",
            "Here:\n```\n{\"commands\": [\"look\"]}",
            "```{\"commands\": [\"look\"]}```",
        ] {
            let strict = plan(text);
            assert_ne!(strict.strict, Category::Ok);
            assert_eq!((strict.lenient, strict.plan), (Category::Ok, None));
            let stripped = parse(text, StopReason::EndOfTurn, Format::Commands, Fences::Strip);
            assert_eq!(stripped.plan.unwrap().commands, ["look"]);
            assert_ne!(stripped.strict, Category::Ok);
        }
    }

    #[test]
    fn a_leaf_output_carries_its_plan_as_text_or_object() {
        let leaf = |answer: &str| {
            format!("{{\"task_id\": \"t\", \"answer\": {answer}, \"artifacts\": [\"action_plan.json\"]}}")
        };
        let parse = |text: &str| parse(text, StopReason::EndOfTurn, Format::LeafOutput, Fences::Strict);
        let text = parse(&leaf(r#""{\"commands\": [\"look\"]}""#));
        let object = parse(&leaf(r#"{"commands": ["look"]}"#));
        for candidate in [&text, &object] {
            assert_eq!(candidate.strict, Category::Ok);
            assert_eq!(candidate.plan.as_ref().unwrap().commands, ["look"]);
            assert_eq!(
                candidate.envelope.as_ref().unwrap().artifacts,
                ["action_plan.json"]
            );
        }
        for (claims, place) in [
            (
                r#"[{"claim": "x", "confidence": "high"}]"#,
                "LeafOutput.claims[0].confidence: expected a number",
            ),
            (
                r#"[{"claim": "x", "evidence_refs": [{}]}]"#,
                "LeafOutput.claims[0].evidence_refs[0]: expected the key",
            ),
            (r#"[7]"#, "LeafOutput.claims[0]: expected an object"),
        ] {
            let text = format!("{{\"task_id\": \"t\", \"answer\": \"\", \"claims\": {claims}}}");
            let said = parse(&text).problem.unwrap().to_string();
            assert!(said.starts_with(place), "{said}");
        }
        let bad = parse(&leaf(r#""go east""#));
        assert!(bad.envelope.is_some() && bad.plan.is_none());
        assert_eq!(bad.strict, Category::Schema);
        assert!(bad.problem.unwrap().place.starts_with("LeafOutput.answer"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", cut: bool, strip: bool, leaf: bool) {
            let stop = if cut { StopReason::MaxTokens } else { StopReason::EndOfTurn };
            let format = if leaf { Format::LeafOutput } else { Format::Commands };
            let fences = if strip { Fences::Strip } else { Fences::Strict };
            let candidate = parse(&text, stop, format, fences);
            prop_assert_eq!(candidate.plan.is_some(), candidate.problem.is_none());
        }

        #[test]
        fn jsonish_text_never_panics(text in "[\\[\\]{}\",:a\\\\`\n ]{0,60}") {
            let candidate = plan(&text);
            prop_assert_eq!(candidate.plan.is_some(), candidate.strict == Category::Ok);
        }

        #[test]
        fn every_written_plan_is_read_back(commands in prop::collection::vec("\\PC{0,30}", 0..6)) {
            let text = serde_json::json!({ "commands": &commands }).to_string();
            prop_assert_eq!(plan(&text).plan.unwrap().commands, commands);
        }
    }
}
