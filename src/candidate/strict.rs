//! Text to one JSON value, strictly and within bounds.
//!
//! Not a lenient reader: one value and nothing around it, no key twice, no NaN. It names what is wrong instead of
//! guessing what was meant.

use super::plan::clip;
use super::{Category, MAX_BYTES, MAX_DEPTH, Problem};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

const DUPLICATE: &str = "duplicate key";

/// Parses `text` as exactly one JSON value.
///
/// # Errors
/// The first problem, with its place.
pub fn parse(text: &str) -> Result<Value, Problem> {
    let problem = |category, place: &str, expected: &str, found: String| {
        Err(Problem {
            category,
            place: place.into(),
            expected: expected.into(),
            found,
        })
    };
    if text.len() > MAX_BYTES {
        let (expected, found) = (
            format!("at most {MAX_BYTES} bytes"),
            format!("{} bytes", text.len()),
        );
        return problem(Category::TooLarge, "the reply", &expected, found);
    }
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return problem(Category::Empty, "the reply", "one JSON object", "nothing".into());
    }
    let depth = depth(trimmed);
    if depth > MAX_DEPTH {
        let expected = format!("at most {MAX_DEPTH} levels of nesting");
        return problem(
            Category::TooDeep,
            "the reply",
            &expected,
            format!("{depth} levels"),
        );
    }
    let error = match serde_json::from_str::<Distinct>(trimmed) {
        Ok(Distinct(value)) => return Ok(value),
        Err(error) => error,
    };
    let place = format!("line {}, column {}", error.line(), error.column());
    let said = error.to_string();
    // serde_json appends the place, which we state ourselves.
    let said = said
        .rsplit_once(" at line ")
        .map_or(said.as_str(), |(head, _)| head);
    let found = || format!("`{}`", clip(trimmed));
    if said.starts_with(DUPLICATE) {
        problem(Category::DuplicateKey, &place, "each key once", said.into())
    } else if trimmed.starts_with("```") {
        problem(Category::Fenced, "the reply", "bare JSON", "a code fence".into())
    } else if !trimmed.contains('{') {
        problem(Category::NoJson, "the reply", "one JSON object", found())
    } else if !trimmed.starts_with('{') || said == "trailing characters" {
        let category = if trimmed.contains("```") {
            Category::Fenced
        } else {
            Category::Prose
        };
        problem(category, "the reply", "one JSON object and nothing else", found())
    } else {
        problem(Category::Syntax, &place, "valid JSON", said.into())
    }
}

/// Deepest nesting of brackets outside strings. A scan, so that hostile depth costs no stack.
fn depth(text: &str) -> usize {
    let (mut deepest, mut now, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                now += 1;
                deepest = deepest.max(now);
            }
            b']' | b'}' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// A JSON value in which no object holds a key twice.
struct Distinct(Value);

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Json).map(Distinct)
    }
}

struct Json;

impl<'de> Visitor<'de> for Json {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Distinct(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("{DUPLICATE} `{}`", clip(&key))));
            }
            let Distinct(value) = map.next_value()?;
            object.insert(key, value);
        }
        Ok(object.into())
    }
}
