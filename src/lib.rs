//! veriharness: an LLM in a repair loop, in one process.
//!
//! study → row → prompt → engine → completion → candidate → gate → verdict → feedback → (next prompt); every call
//! is committed to the trace before the next prompt exists. The modules are named here in the order of their
//! layers: a module imports only from those above it (`tests/layers.rs` holds the table).

pub mod rng;
pub mod stats;
pub mod model;
pub mod backend;
pub mod quantize;
pub mod engine;
pub mod candidate;
pub mod gate;
pub mod feedback;
pub mod prompt;
pub mod trace;
pub mod agent;
pub mod study;
pub mod report;
pub mod cli;
