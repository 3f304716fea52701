//! TypedFields: the keyed record with the expected value.
//!
//! Not typed values: every value is a string, a list of alternatives being its JSON text.

use super::{Caps, Fields, keyed, loc_obs};
use crate::gate::Failure;

/// Lines before the findings, the same as LocObs': the two differ by `expected` alone.
pub const OPENING: &[&str] = loc_obs::OPENING;

/// The payload line of one failure.
pub fn line(failure: &Failure, caps: &Caps) -> String {
    let Fields {
        label,
        location,
        observed,
        expected,
    } = Fields::of(failure, caps);
    let mut fields = vec![
        ("label", &*label),
        ("location", &*location),
        ("observed", &*observed),
    ];
    if let Some(expected) = &expected {
        fields.push(("expected", expected));
    }
    keyed(fields)
}
