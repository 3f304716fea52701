//! LocObs: the keyed record of label, location and observed value.
//!
//! Not a hint: what would have been right stays unsaid.

use super::{Caps, Fields, keyed};
use crate::gate::Failure;

/// Lines before the findings, the same as TypedFields': the two differ by `expected` alone.
pub const OPENING: &[&str] = &["The last candidate did not pass validation; the failure record follows."];

/// The payload line of one failure.
pub fn line(failure: &Failure, caps: &Caps) -> String {
    let Fields {
        label,
        location,
        observed,
        ..
    } = Fields::of(failure, caps);
    keyed(vec![
        ("label", &label),
        ("location", &location),
        ("observed", &observed),
    ])
}
