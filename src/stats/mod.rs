//! The study's statistics: pure, seeded functions on slices.
//!
//! Not a description of the study: nothing here knows a game, a policy or a row. Every figure is a function of its
//! arguments, and a resampling one of its seed too; none depends on the order in which the observations arrive.
//! What cannot be estimated is `None`, never a NaN. Source: section 3 of the paper ("Analysis").

pub mod bootstrap;
pub mod holm;
pub mod mcnemar;
pub mod paired;
pub mod proportion;
pub mod sign_flip;

/// A two-sided 95 % interval, in the unit of the observations that it was computed from; `low <= high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}
