//! RawDiag: the validator's own words and nothing else.
//!
//! Not a record: no location, no observed value, no alternatives beyond what the message happens to say.

use super::{Caps, cut};
use crate::gate::Failure;

/// Lines before the findings.
pub const OPENING: &[&str] = &[
    "The last candidate did not pass validation.",
    "The validator's own message follows.",
];

/// The payload line of one failure.
pub fn line(failure: &Failure, caps: &Caps) -> String {
    format!(
        "Raw validation message from {}: {}",
        failure.gate,
        cut(&failure.message, caps.field_chars)
    )
}
