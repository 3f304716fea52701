//! Completion to candidate: strict, bounded parsing.
