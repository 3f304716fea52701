//! Failure to text: what each policy tells the next call (paper, section 2.2 and 2.3).
//!
//! Not a finding and not a prompt: a policy shows or hides, cuts and stringifies what a gate found, and a profile
//! lays the result out. It sees failures only, so it cannot name what was never shown to it.

pub mod loc_obs;
pub mod raw_diag;
pub mod same_nl;
pub mod typed_fields;

use crate::gate::{Expected, Failure};
use serde::{Deserialize, Serialize};

/// The four feedback policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Policy {
    /// The raw diagnostic.
    RawDiag,
    /// A keyed record of label, location and observed value.
    LocObs,
    /// Location, observed and expected value in prose.
    SameNL,
    /// The keyed record with the expected value.
    TypedFields,
}

impl Policy {
    /// All of them, in the order of the paper's tables.
    pub const ALL: [Policy; 4] = [
        Policy::RawDiag,
        Policy::LocObs,
        Policy::SameNL,
        Policy::TypedFields,
    ];

    /// The name that prompts, tables and the trace use.
    pub fn name(self) -> &'static str {
        match self {
            Policy::RawDiag => "RawDiag",
            Policy::LocObs => "LocObs",
            Policy::SameNL => "SameNL",
            Policy::TypedFields => "TypedFields",
        }
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Policy::ALL.map(Policy::name).join(", ");
        Policy::ALL
            .into_iter()
            .find(|policy| policy.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("expected one of {names}, found `{text}`"))
    }
}

/// How much of a failure a policy shows. `None` is all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caps {
    /// Alternatives in `expected`, the first ones in the gate's order (paper, section 3: 12).
    pub alternatives: Option<usize>,
    /// Characters of each field and of the rejected answer.
    pub field_chars: Option<usize>,
    /// Characters of a reply that could not be parsed, where it is the observed value.
    pub reply_chars: Option<usize>,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            alternatives: Some(12),
            field_chars: None,
            reply_chars: Some(240),
        }
    }
}

/// A rendered failure, in the parts that a profile lays out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    /// Lines before the findings.
    pub opening: Vec<String>,
    /// One line per finding: the payload of section 2.3.
    pub payload: Vec<String>,
}

/// The values of one failure as strings, cut to the caps: the three repair values and the label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    /// `<gate>.<code>`.
    pub label: String,
    /// Where.
    pub location: String,
    /// What stood there.
    pub observed: String,
    /// What should have stood there, where the gate knows it; a list is its JSON text.
    pub expected: Option<String>,
}

impl Fields {
    /// Stringifies and cuts `failure`.
    pub fn of(failure: &Failure, caps: &Caps) -> Self {
        let field = |text: &str| cut(text, caps.field_chars).to_owned();
        let expected = match &failure.expected {
            Expected::OneOf(all) => {
                let shown = &all[..caps.alternatives.unwrap_or(all.len()).min(all.len())];
                Some(json_list(shown))
            }
            Expected::Value(value) => Some(value.clone()),
            Expected::Unknown => None,
        };
        let observed = match failure.gate.as_str() {
            "schema" => cut(&failure.observed, caps.reply_chars),
            _ => &failure.observed,
        };
        Self {
            label: field(&failure.label()),
            location: field(&failure.location),
            observed: field(observed),
            expected: expected.map(|text| field(&text)),
        }
    }
}

/// Renders the findings of a rejected candidate under a policy. `failures` is not empty.
pub fn render(policy: Policy, failures: &[Failure], caps: &Caps) -> Feedback {
    let (opening, line): (_, fn(&Failure, &Caps) -> String) = match policy {
        Policy::RawDiag => (raw_diag::OPENING, raw_diag::line),
        Policy::LocObs => (loc_obs::OPENING, loc_obs::line),
        Policy::SameNL => (same_nl::OPENING, same_nl::line),
        Policy::TypedFields => (typed_fields::OPENING, typed_fields::line),
    };
    Feedback {
        opening: opening.iter().map(|line| (*line).to_owned()).collect(),
        payload: failures.iter().map(|failure| line(failure, caps)).collect(),
    }
}

/// The first `most` characters of `text`.
pub fn cut(text: &str, most: Option<usize>) -> &str {
    match most.and_then(|most| text.char_indices().nth(most)) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// JSON text of a string, as everything in a payload is written.
fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// JSON text of a list, with a blank after each comma.
fn json_list(items: &[String]) -> String {
    format!(
        "[{}]",
        items
            .iter()
            .map(|item| json_string(item))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// `typed_failure=` and a record with sorted keys.
fn keyed(mut fields: Vec<(&str, &str)>) -> String {
    fields.sort_unstable();
    let pairs: Vec<_> = fields
        .iter()
        .map(|(key, value)| format!("\"{key}\": {}", json_string(value)))
        .collect();
    format!("typed_failure={{{}}}", pairs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failure() -> impl Strategy<Value = Failure> {
        let expected = prop_oneof![
            Just(Expected::Unknown),
            "\\PC{0,300}".prop_map(Expected::Value),
            prop::collection::vec("\\PC{0,40}", 0..20).prop_map(Expected::OneOf),
        ];
        ("[a-z]{1,9}", "\\PC{0,300}", "\\PC{0,300}", expected).prop_map(
            |(gate, location, observed, expected)| Failure {
                gate,
                code: "code".into(),
                location,
                observed,
                expected,
                message: "message".into(),
            },
        )
    }

    fn caps() -> impl Strategy<Value = Caps> {
        (
            prop::option::of(0usize..15),
            prop::option::of(0usize..250),
            prop::option::of(0usize..250),
        )
            .prop_map(|(alternatives, field_chars, reply_chars)| Caps {
                alternatives,
                field_chars,
                reply_chars,
            })
    }

    proptest! {
        /// The contrast of the paper rests on it: prose and record carry the same location, observed and expected.
        #[test]
        fn same_nl_and_typed_fields_carry_the_same_values(failure in failure(), caps in caps()) {
            let fields = Fields::of(&failure, &caps);
            let prose = render(Policy::SameNL, std::slice::from_ref(&failure), &caps).payload.remove(0);
            let record = render(Policy::TypedFields, std::slice::from_ref(&failure), &caps).payload.remove(0);
            let record: serde_json::Value = serde_json::from_str(record.strip_prefix("typed_failure=").unwrap()).unwrap();
            let mut sentences = format!(
                "The rejected value was at {}. The validator observed {}.",
                record["location"].as_str().unwrap(), record["observed"].as_str().unwrap(),
            );
            if let Some(expected) = record.get("expected") {
                sentences += &format!(" It expected {}.", expected.as_str().unwrap());
            }
            prop_assert_eq!(prose, sentences);
            prop_assert_eq!(record["label"].as_str().unwrap(), fields.label);
            prop_assert_eq!(record.get("expected").and_then(|e| e.as_str()).map(str::to_owned), fields.expected);
        }

        #[test]
        fn loc_obs_is_typed_fields_without_expected(failure in failure(), caps in caps()) {
            let record = |policy| -> serde_json::Map<String, serde_json::Value> {
                let line = render(policy, std::slice::from_ref(&failure), &caps).payload.remove(0);
                serde_json::from_str(line.strip_prefix("typed_failure=").unwrap()).unwrap()
            };
            let mut typed = record(Policy::TypedFields);
            typed.shift_remove("expected");
            prop_assert_eq!(record(Policy::LocObs), typed);
        }

        #[test]
        fn no_field_is_longer_than_its_cap(failure in failure(), caps in caps()) {
            let fields = Fields::of(&failure, &caps);
            let most = caps.field_chars.unwrap_or(usize::MAX);
            for field in [Some(fields.label), Some(fields.location), Some(fields.observed), fields.expected] {
                prop_assert!(field.is_none_or(|text| text.chars().count() <= most));
            }
        }
    }
}
