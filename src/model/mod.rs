//! What a model is: manifest, files, tokenizer, chat template.
//!
//! Not how it computes (that is `backend`) and not how it decodes (that is `engine`).

pub mod cache;
pub mod chat;
pub mod config;
pub mod encode;
pub mod fetch;
pub mod folder;
pub mod gguf;
pub mod manifest;
pub mod safetensors;
pub mod template;
pub mod tokenizer;
pub mod weights;

mod error;
mod json;
mod open;
mod resolve;

pub use error::ModelError;
pub use open::{Model, Network};
pub use resolve::{Located, obtain, obtain_exact, pull, resolve, resolve_in};
