//! The loop of one row.
