//! The JSON schema that a reply is held to, as a setting.
//!
//! Not its automaton (`grammar`), and not whose schema it is: a study takes that of its candidates.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A JSON schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schema(pub Value);

impl Schema {
    /// sha256 of the schema with its layout, as compact JSON, in hex.
    pub fn sha256(&self) -> String {
        format!("{:x}", Sha256::digest(self.with_layout().to_string()))
    }

    /// The schema with a layout for its documents: one line with a space behind each comma and colon, as models write
    /// them. A layout that were left open would be chosen token by token, and could be white space without an end. A
    /// schema may say otherwise under llguidance's own key `x-guidance`.
    pub(super) fn with_layout(&self) -> Value {
        let mut value = self.0.clone();
        if let Value::Object(object) = &mut value {
            let layout =
                || json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": " });
            object.entry("x-guidance").or_insert_with(layout);
        }
        value
    }
}
