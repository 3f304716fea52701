//! LeafOutput, the paper's reply form: an envelope whose `answer` is the plan as JSON text.
//!
//! Not the gates that check the envelope's claims (`task_id`, `artifacts`): here it only has to be of the form.

use super::plan::{clip, commands, kind, schema};
use super::{Category, Envelope, Plan, Problem, strict};
use serde_json::{Map, Value, json};

/// The artifact that a LeafOutput with an action plan lists.
pub const ARTIFACT: &str = "action_plan.json";

/// The JSON Schema of LeafOutput, as shown to the model.
pub fn json_schema() -> Value {
    let strings = json!({ "type": "array", "items": { "type": "string" } });
    let evidence = json!({
        "type": "object",
        "properties": {
            "source": { "type": "string" },
            "locator": { "type": "string" },
            "quote": { "type": "string" },
            "metadata": { "type": "object" },
        },
        "required": ["source"],
    });
    let claim = json!({
        "type": "object",
        "properties": {
            "claim": { "type": "string" },
            "evidence_refs": { "type": "array", "items": evidence },
            "confidence": { "type": "number" },
            "metadata": { "type": "object" },
        },
        "required": ["claim"],
    });
    json!({
        "title": "LeafOutput",
        "type": "object",
        "properties": {
            "task_id": { "type": "string" },
            "answer": { "type": "string" },
            "artifacts": strings,
            "claims": { "type": "array", "items": claim },
            "self_assessment": { "type": "object" },
            "done": { "type": "boolean" },
        },
        "required": ["task_id", "answer"],
        "additionalProperties": false,
    })
}

/// Longest other text that a constrained reply can have, in characters.
const MOST_CHARS: usize = 200;
/// Most artifacts that it can list; one is asked for.
const MOST_ARTIFACTS: usize = 4;

/// The JSON schema of the replies that a model is held to: LeafOutput with what gates look at, and the plan of at most
/// `most` commands as an object in its place, since a schema cannot see into text.
pub(super) fn held_schema(most: usize) -> Value {
    let text = json!({ "type": "string", "maxLength": MOST_CHARS });
    json!({
        "type": "object",
        "properties": {
            "task_id": text,
            "answer": super::plan::json_schema(most),
            "artifacts": { "type": "array", "items": text, "maxItems": MOST_ARTIFACTS },
            "done": { "type": "boolean" },
        },
        "required": ["task_id", "answer", "artifacts"],
        "additionalProperties": false,
    })
}

/// Reads the envelope. An `answer` given as an object becomes its text with sorted keys.
///
/// # Errors
/// A [`Category::Schema`] problem with the path of the first field that is not of the form.
pub fn envelope(value: &Value) -> Result<Envelope, Problem> {
    let Value::Object(object) = value else {
        return Err(schema("LeafOutput", "an object", kind(value)));
    };
    let mut seen = Envelope {
        task_id: String::new(),
        artifacts: Vec::new(),
        answer: String::new(),
    };
    for (key, field) in object {
        let path = format!("LeafOutput.{key}");
        match (key.as_str(), field) {
            ("task_id", Value::String(id)) => seen.task_id = id.clone(),
            ("answer", Value::String(text)) => seen.answer = text.clone(),
            ("answer", Value::Object(_)) => seen.answer = sorted(field).to_string(),
            ("artifacts", Value::Array(items)) => seen.artifacts = strings(items, &path)?,
            ("claims", Value::Array(items)) => claims(items, &path)?,
            ("self_assessment", Value::Object(_)) | ("done", Value::Bool(_)) => {}
            ("task_id", other) => return Err(schema(&path, "a string", kind(other))),
            ("answer", other) => return Err(schema(&path, "a string", kind(other))),
            ("artifacts" | "claims", other) => return Err(schema(&path, "an array", kind(other))),
            ("self_assessment", other) => return Err(schema(&path, "an object", kind(other))),
            ("done", other) => return Err(schema(&path, "a boolean", kind(other))),
            _ => {
                let found = format!("the key `{}`", clip(key));
                return Err(schema("LeafOutput", "only LeafOutput's keys", found));
            }
        }
    }
    for key in ["task_id", "answer"] {
        if !object.contains_key(key) {
            return Err(schema(&format!("LeafOutput.{key}"), "a string", "nothing"));
        }
    }
    Ok(seen)
}

/// Reads the plan out of `answer`, which is JSON text of its own.
///
/// # Errors
/// A [`Category::Schema`] problem below `LeafOutput.answer`.
pub fn plan(answer: &str) -> Result<Plan, Problem> {
    let value = strict::parse(answer).map_err(|problem| Problem {
        category: Category::Schema,
        place: format!("LeafOutput.answer, {}", problem.place),
        ..problem
    })?;
    commands(&value, "LeafOutput.answer")
}

fn strings(items: &[Value], path: &str) -> Result<Vec<String>, Problem> {
    let read = items.iter().enumerate().map(|(i, item)| match item {
        Value::String(text) => Ok(text.clone()),
        other => Err(schema(&format!("{path}[{i}]"), "a string", kind(other))),
    });
    read.collect()
}

fn claims(items: &[Value], path: &str) -> Result<(), Problem> {
    for (i, item) in items.iter().enumerate() {
        let at = format!("{path}[{i}]");
        fields(item, &at, "claim", &["confidence", "evidence_refs", "metadata"])?;
        for (j, evidence) in item
            .get("evidence_refs")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            fields(
                evidence,
                &format!("{at}.evidence_refs[{j}]"),
                "source",
                &["locator", "quote", "metadata"],
            )?;
        }
    }
    Ok(())
}

/// An object with the string `required` and, of `optional`, what the schema's kind for that name is.
fn fields(value: &Value, at: &str, required: &str, optional: &[&str]) -> Result<(), Problem> {
    let Value::Object(object) = value else {
        return Err(schema(at, format!("an object with `{required}`"), kind(value)));
    };
    match object.get(required) {
        Some(Value::String(_)) => {}
        Some(other) => return Err(schema(&format!("{at}.{required}"), "a string", kind(other))),
        None => return Err(schema(at, format!("the key `{required}`"), "none")),
    }
    for (key, field) in optional.iter().filter_map(|key| Some((*key, object.get(*key)?))) {
        let (fits, expected) = match key {
            "confidence" => (field.is_number(), "a number"),
            "evidence_refs" => (field.is_array(), "an array"),
            "metadata" => (field.is_object(), "an object"),
            _ => (field.is_string(), "a string"),
        };
        if !fits {
            return Err(schema(&format!("{at}.{key}"), expected, kind(field)));
        }
    }
    Ok(())
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<_> = object.iter().collect();
            keys.sort_by_key(|(key, _)| *key);
            Value::Object(
                keys.into_iter()
                    .map(|(k, v)| (k.clone(), sorted(v)))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}
