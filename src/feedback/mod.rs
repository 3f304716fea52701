//! Failure to text.
