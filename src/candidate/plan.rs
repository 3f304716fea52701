//! The plan: a JSON value to commands, and the words for what is not of the form.
//!
//! Not a check of the commands: any string is one, and the gate decides.

use super::{Category, Problem};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A plan: commands in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The commands as the model wrote them.
    pub commands: Vec<String>,
}

/// Longest command that a constrained reply can have, in characters; the longest of the paper's games has some 60. A
/// string without an end is how small models lose a reply.
const MOST_CHARS: usize = 100;

/// The JSON schema of what [`commands`] reads, of plans with 1 to `most` commands: no other can be accepted.
pub(super) fn json_schema(most: usize) -> Value {
    json!({
        "type": "object",
        "properties": {
            "commands": {
                "type": "array",
                "items": { "type": "string", "maxLength": MOST_CHARS },
                "minItems": 1,
                "maxItems": most,
            },
        },
        "required": ["commands"],
        "additionalProperties": false,
    })
}

/// Reads `{"commands": [string, ...]}`, with nothing else in the object. `at` is the path of the object.
pub(super) fn commands(value: &Value, at: &str) -> Result<Plan, Problem> {
    let dot = if at.is_empty() { "" } else { "." };
    let Value::Object(object) = value else {
        return Err(schema(at, r#"an object {"commands": [...]}"#, kind(value)));
    };
    if let Some(key) = object.keys().find(|key| *key != "commands") {
        return Err(schema(
            at,
            "only the key `commands`",
            format!("the key `{}`", clip(key)),
        ));
    }
    let path = format!("{at}{dot}commands");
    let items = match object.get("commands") {
        Some(Value::Array(items)) => items,
        Some(other) => return Err(schema(&path, "an array of strings", kind(other))),
        None => return Err(schema(&path, "an array of strings", "nothing")),
    };
    let strings = items.iter().enumerate().map(|(i, item)| match item {
        Value::String(command) => Ok(command.clone()),
        other => Err(schema(&format!("{path}[{i}]"), "a string", kind(other))),
    });
    Ok(Plan {
        commands: strings.collect::<Result<_, _>>()?,
    })
}

pub(super) fn schema(place: &str, expected: impl Into<String>, found: impl Into<String>) -> Problem {
    let place = if place.is_empty() { "the reply" } else { place };
    Problem {
        category: Category::Schema,
        place: place.to_owned(),
        expected: expected.into(),
        found: found.into(),
    }
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// At most 40 characters of `text`, for error messages.
pub(super) fn clip(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(40).collect();
    if chars.next().is_some() {
        head + "…"
    } else {
        head
    }
}
