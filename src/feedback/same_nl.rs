//! SameNL: location, observed and expected value in three sentences.
//!
//! Not a record: neither label nor keys.

use super::{Caps, Fields};
use crate::gate::Failure;

/// Lines before the findings.
pub const OPENING: &[&str] =
    &["The last candidate did not pass validation; what the validator found is told below."];

/// The payload line of one failure.
pub fn line(failure: &Failure, caps: &Caps) -> String {
    let Fields {
        location,
        observed,
        expected,
        ..
    } = Fields::of(failure, caps);
    let mut text = format!("The rejected value was at {location}. The validator observed {observed}.");
    if let Some(expected) = expected {
        text += &format!(" It expected {expected}.");
    }
    text
}
