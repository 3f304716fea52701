//! A metadata value of a GGUF file.
//!
//! Not its bytes (that is `parse`): widths are dropped here, since no reader cares whether a count had 32 or 64 bits.

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// Either float.
    Float(f64),
    /// A truth value.
    Truth(bool),
    /// A string.
    Text(String),
    /// An array, its elements all of one type.
    List(Vec<Value>),
}

impl Value {
    /// The string, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The non-negative integer, if it is one.
    pub fn as_count(&self) -> Option<usize> {
        match self {
            Self::Unsigned(n) => usize::try_from(*n).ok(),
            Self::Signed(n) => usize::try_from(*n).ok(),
            _ => None,
        }
    }

    /// The finite number, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Float(x) if x.is_finite() => Some(*x),
            Self::Unsigned(n) => Some(*n as f64),
            Self::Signed(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    pub fn as_truth(&self) -> Option<bool> {
        match self {
            Self::Truth(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The elements, if it is an array.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// A short rendering for error messages and listings: long values are cut.
    pub fn describe(&self) -> String {
        match self {
            Self::Unsigned(n) => n.to_string(),
            Self::Signed(n) => n.to_string(),
            Self::Float(x) => x.to_string(),
            Self::Truth(truth) => truth.to_string(),
            Self::Text(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
            Self::List(items) => format!("an array of {} elements", items.len()),
        }
    }
}
