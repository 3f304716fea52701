//! Recorded play compared with ours, field by field.
//!
//! Not a recorder: a golden file is JSON lines, written by playing the compiled story file. Line 1 is static; then
//! each episode has a header (`kind`) and a line for each step (`t`, with `t` = 0 the reset). `facts` stand only on
//! lines where they differ from the line before.

use std::io::{BufRead, Read};

use serde_json::{Map, Value};
use thiserror::Error;

use super::game::Game;
use super::play::Play;

/// Longest line, bytes. A step of the largest games takes some 10 kB.
pub const MAX_LINE_BYTES: u64 = 16 << 20;

/// A golden file that cannot be read.
#[derive(Debug, Error)]
pub enum GoldenError {
    /// Reading failed.
    #[error("{file}: line {line}: cannot be read: {source}")]
    Read {
        /// The golden file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A line is not a JSON object.
    #[error("{file}: line {line}: expected a JSON object, found {reason}")]
    Line {
        /// The golden file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// Nothing to compare.
    #[error("{file}: expected at least one step, found none")]
    Empty {
        /// The golden file.
        file: String,
    },
}

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Episode; `None` for the static line.
    pub episode: Option<u64>,
    /// Step.
    pub step: u64,
    /// Field: `admissible`, `feedback`, …
    pub field: &'static str,
    /// What the golden file says.
    pub expected: String,
    /// What ours says.
    pub found: String,
}

/// The outcome of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Steps compared, resets included.
    pub compared: usize,
    /// Steps with a difference.
    pub differ: usize,
    /// Every difference.
    pub differences: Vec<Difference>,
}

/// Plays every episode of `golden` in `game` and compares. An episode is left at its first inadmissible command,
/// since ours refuses what the story file may understand, and at the end of the game, which ours takes as final.
///
/// # Errors
/// [`GoldenError`] when a line cannot be read or is not an object, or when there is no step at all.
pub fn verify(game: &Game, mut golden: impl BufRead, file: &str) -> Result<Comparison, GoldenError> {
    let mut out = Comparison::default();
    let mut episode: Option<Episode<'_>> = None;
    let mut buffer = Vec::new();
    for line in 1.. {
        buffer.clear();
        // One byte more than allowed, so that a file of one endless line is told from a full one.
        let mut limited = golden.by_ref().take(MAX_LINE_BYTES + 1);
        let read = limited.read_until(b'\n', &mut buffer);
        let read = read.map_err(|source| GoldenError::Read {
            file: file.into(),
            line,
            source,
        })?;
        if read == 0 {
            break;
        }
        if buffer.trim_ascii().is_empty() {
            continue;
        }
        let broken = |reason: String| GoldenError::Line {
            file: file.into(),
            line,
            reason,
        };
        if read as u64 > MAX_LINE_BYTES {
            return Err(broken(format!("a line of more than {MAX_LINE_BYTES} bytes")));
        }
        let record: Value = serde_json::from_slice(&buffer).map_err(|e| broken(e.to_string()))?;
        let Value::Object(record) = record else {
            return Err(broken(kind_of(&record).into()));
        };
        if record.contains_key("t") {
            compare_step(game, &record, &mut episode, &mut out);
        } else {
            episode = None;
            compare_static(game, &record, &mut out);
        }
    }
    if out.compared == 0 {
        return Err(GoldenError::Empty { file: file.into() });
    }
    Ok(out)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "an array",
        Value::String(_) => "a string",
        _ => "another value",
    }
}

struct Episode<'g> {
    play: Play<'g>,
    facts: Value,
}

fn compare_static(game: &Game, record: &Map<String, Value>, out: &mut Comparison) {
    let episode = record.get("ep").and_then(Value::as_u64);
    let mut found = Map::new();
    found.insert("max_score".into(), game.max_score().into());
    found.insert("objective".into(), game.objective().into());
    compare_fields(record, &found, &["max_score", "objective"], (episode, 0), out);
}

fn compare_step<'g>(
    game: &'g Game,
    record: &Map<String, Value>,
    episode: &mut Option<Episode<'g>>,
    out: &mut Comparison,
) {
    let step = record.get("t").and_then(Value::as_u64).unwrap_or_default();
    let at = (record.get("ep").and_then(Value::as_u64), step);
    if step == 0 {
        *episode = Some(Episode {
            play: game.start(),
            facts: Value::Null,
        });
    }
    let Some(Episode { play, facts }) = episode else {
        return;
    };
    if step > 0 {
        let command = record.get("cmd").and_then(Value::as_str).unwrap_or_default();
        if record.get("adm") == Some(&Value::Bool(false)) || play.done() {
            *episode = None;
            return;
        }
        if play.step(command).is_none() {
            out.compared += 1;
            out.differ += 1;
            let found = "not admissible".into();
            let difference = Difference {
                episode: at.0,
                step,
                field: "cmd",
                expected: command.into(),
                found,
            };
            out.differences.push(difference);
            *episode = None;
            return;
        }
    }
    if let Some(new) = record.get("facts") {
        *facts = new.clone();
    }
    let mut record = record.clone();
    record.insert("facts".into(), facts.clone());
    let before = out.differences.len();
    compare_fields(&record, &fields(play), &FIELDS, at, out);
    out.compared += 1;
    out.differ += usize::from(out.differences.len() > before);
}

const FIELDS: [&str; 10] = [
    "admissible",
    "facts",
    "score",
    "won",
    "lost",
    "done",
    "moves",
    "description",
    "inventory",
    "feedback",
];

fn fields(play: &Play<'_>) -> Map<String, Value> {
    let admissible: Vec<&str> = play.admissible().collect();
    let values: [Value; 10] = [
        admissible.into(),
        play.facts().into(),
        play.score().into(),
        play.won().into(),
        play.lost().into(),
        play.done().into(),
        play.moves().into(),
        play.description().into(),
        play.inventory().into(),
        play.feedback().into(),
    ];
    FIELDS.iter().map(|f| (*f).to_owned()).zip(values).collect()
}

/// Compares those of `names` that the golden record has.
fn compare_fields(
    record: &Map<String, Value>,
    found: &Map<String, Value>,
    names: &[&'static str],
    (episode, step): (Option<u64>, u64),
    out: &mut Comparison,
) {
    for &field in names {
        let (Some(expected), Some(found)) = (record.get(field), found.get(field)) else {
            continue;
        };
        if expected != found {
            let (expected, found) = (expected.to_string(), found.to_string());
            out.differences.push(Difference {
                episode,
                step,
                field,
                expected,
                found,
            });
        }
    }
}
