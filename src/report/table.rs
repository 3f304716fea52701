//! A table before any format: what `terminal`, `markdown`, `csv` and `json` all render.
//!
//! Not the figures and not their layout on a page. A cell keeps its number whole; rounding is for the eye, and a
//! number that is not finite cannot get into one.

use super::page::escape;
use crate::stats::Interval;

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Stable name, for machine-readable formats.
    pub id: &'static str,
    /// The condition, `lane/bBUDGET`; empty for the whole run.
    pub scope: String,
    /// One line for a reader; it says so when the run is partial.
    pub title: String,
    /// What a reader needs to know about the columns; may be empty.
    pub note: String,
    /// Column names, all different.
    pub header: Vec<String>,
    /// Rows, each as long as the header.
    pub rows: Vec<Vec<Cell>>,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words, free of control characters.
    Text(String),
    /// How many.
    Count(u64),
    /// A finite number and how to show it.
    Number {
        /// The number, not rounded.
        value: f64,
        /// Digits after the point.
        decimals: usize,
        /// Whether a positive one shows its sign.
        signed: bool,
    },
    /// So many of so many.
    Share {
        /// So many.
        part: u64,
        /// Of so many.
        whole: u64,
    },
    /// Lower and upper end, finite, and digits after the point.
    Interval(Interval, usize),
    /// A probability.
    P(f64),
    /// Nothing to show, and what to show instead.
    Absent(&'static str),
}

/// Stands where there is no such number.
pub const NONE: &str = "–";
/// Stands where the data do not allow an estimate.
pub const NOT_ESTIMABLE: &str = "not estimable";

impl Cell {
    /// Words; what a terminal would act on is escaped.
    pub fn text(text: impl AsRef<str>) -> Self {
        Cell::Text(escape(text.as_ref()).replace('\n', "\\n"))
    }

    /// A count, if there is one.
    pub fn count(count: Option<u64>) -> Self {
        count.map_or(Cell::Absent(NONE), Cell::Count)
    }

    /// A number, if there is a finite one.
    pub fn number(value: Option<f64>, decimals: usize) -> Self {
        match value.filter(|v| v.is_finite()) {
            Some(value) => Cell::Number {
                value,
                decimals,
                signed: false,
            },
            None => Cell::Absent(NONE),
        }
    }

    /// A difference, if it can be estimated.
    pub fn difference(value: Option<f64>, decimals: usize) -> Self {
        match value.filter(|v| v.is_finite()) {
            Some(value) => Cell::Number {
                value,
                decimals,
                signed: true,
            },
            None => Cell::Absent(NOT_ESTIMABLE),
        }
    }

    /// An interval, if it can be estimated.
    pub fn interval(interval: Option<Interval>, decimals: usize) -> Self {
        match interval.filter(|i| i.low.is_finite() && i.high.is_finite()) {
            Some(interval) => Cell::Interval(interval, decimals),
            None => Cell::Absent(NOT_ESTIMABLE),
        }
    }

    /// A probability, if it can be estimated.
    pub fn p(p: Option<f64>) -> Self {
        match p.filter(|p| p.is_finite()) {
            Some(p) => Cell::P(p),
            None => Cell::Absent(NOT_ESTIMABLE),
        }
    }

    /// Whether it is set flush right.
    pub fn is_numeric(&self) -> bool {
        !matches!(self, Cell::Text(_))
    }

    /// As a reader sees it.
    pub fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => count.to_string(),
            Cell::Number {
                value,
                decimals,
                signed,
            } => shown(*value, *decimals, *signed),
            Cell::Share { part, whole } => format!("{part}/{whole}"),
            Cell::Interval(Interval { low, high }, decimals) => {
                format!(
                    "{} to {}",
                    shown(*low, *decimals, false),
                    shown(*high, *decimals, false)
                )
            }
            Cell::P(p) if *p >= 0.001 => format!("{p:.3}"),
            Cell::P(p) if *p > 0.0 => format!("{p:.2e}"),
            Cell::P(_) => "< 1e-300".into(),
            Cell::Absent(word) => (*word).to_owned(),
        }
    }
}

/// Rounded; what rounds to zero has no sign.
fn shown(value: f64, decimals: usize, signed: bool) -> String {
    let text = format!("{value:.decimals$}");
    let zero = text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.');
    match (zero, signed && value > 0.0) {
        (true, _) => text.trim_start_matches('-').to_owned(),
        (false, true) => format!("+{text}"),
        (false, false) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_read_well() {
        for (cell, shown) in [
            (Cell::difference(Some(42.04), 1), "+42.0"),
            (Cell::difference(Some(-0.04), 1), "0.0"),
            (Cell::difference(Some(-0.34), 2), "-0.34"),
            (Cell::p(Some(3.15e-5)), "3.15e-5"),
            (Cell::p(Some(0.03125)), "0.031"),
            (Cell::p(None), NOT_ESTIMABLE),
            (Cell::Share { part: 3, whole: 6 }, "3/6"),
            (Cell::text("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\nb"),
        ] {
            assert_eq!(cell.shown(), shown);
        }
    }

    proptest! {
        #[test]
        fn no_cell_shows_what_is_not_a_number(bits: u64, other: u64, decimals in 0usize..6) {
            let (value, high) = (f64::from_bits(bits), f64::from_bits(other));
            for value in [value, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let interval = Some(Interval { low: value, high });
                for cell in [
                    Cell::number(Some(value), decimals),
                    Cell::difference(Some(value), decimals),
                    Cell::interval(interval, decimals),
                    Cell::p(Some(value)),
                ] {
                    let shown = cell.shown();
                    prop_assert!(!shown.contains("NaN") && !shown.contains("inf"), "{}", shown);
                }
            }
        }
    }
}
