//! Prompt to completion.
