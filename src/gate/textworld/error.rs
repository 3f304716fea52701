//! What can be wrong with a game file, each with the file, the place, what was expected and what was found.
//!
//! Not a verdict: a plan that fails is data (`plan.rs`); these say that the game itself cannot be played.

use thiserror::Error;

/// A game file that cannot be read, parsed, linked or played within the limits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GameError {
    /// The file could not be read.
    #[error("{file}: cannot be read: {reason}")]
    Read {
        /// The file.
        file: String,
        /// The operating system's reason.
        reason: String,
    },
    /// Neither a game of the library nor a path.
    #[error("no game is called `{name}` ({hint})")]
    UnknownGame {
        /// What was asked for.
        name: String,
        /// What would be accepted.
        hint: String,
    },
    /// The file is larger than any game may be.
    #[error("{file}: expected at most {limit} bytes, found more")]
    TooLarge {
        /// The file.
        file: String,
        /// The limit, bytes.
        limit: u64,
    },
    /// The file is not UTF-8.
    #[error("{file}: byte {offset}: expected UTF-8, found an invalid sequence")]
    NotUtf8 {
        /// The file.
        file: String,
        /// Offset of the first invalid byte.
        offset: usize,
    },
    /// The file is not JSON, or not of a game's shape.
    #[error("{file}: at `{place}`: {reason}")]
    Json {
        /// The file.
        file: String,
        /// The path inside the document, `world[3].arguments`; `.` is the document.
        place: String,
        /// What was expected and found there, with line and column.
        reason: String,
    },
    /// The format's version is another.
    #[error("{file}: at `version`: expected 1, found {found}")]
    Version {
        /// The file.
        file: String,
        /// The version found.
        found: String,
    },
    /// The rule text breaks its grammar.
    #[error("{file}: rule text line {line}: expected {expected}, found {found}")]
    Rules {
        /// The file.
        file: String,
        /// Line inside `KB.logic`, from 1.
        line: usize,
        /// What the grammar allows here.
        expected: String,
        /// The token found.
        found: String,
    },
    /// A name, a count or a relation that the rules or the limits do not allow.
    #[error("{file}: at `{place}`: expected {expected}, found {found}")]
    Invalid {
        /// The file.
        file: String,
        /// The path inside the document.
        place: String,
        /// What may stand there.
        expected: String,
        /// What stood there.
        found: String,
    },
    /// Finding the admissible commands takes more work than any real game needs.
    #[error("{file}: rule `{rule}`: expected at most {limit} matching steps in a state, found more")]
    Work {
        /// The file.
        file: String,
        /// The rule being matched.
        rule: String,
        /// The limit, in facts tried.
        limit: u64,
    },
}

/// Shortens untrusted text for a message: at most 60 characters, control characters escaped.
pub fn quoted(text: &str) -> String {
    let mut short = String::from("`");
    for c in text.chars().take(60) {
        if c.is_control() {
            short.extend(c.escape_default())
        } else {
            short.push(c)
        }
    }
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short.push('`');
    short
}
