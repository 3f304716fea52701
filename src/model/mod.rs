//! What a model is: manifest, files, tokenizer, chat template.
//!
//! Not how it computes (that is `backend`) and not how it decodes (that is `engine`).

pub mod chat;
pub mod config;
pub mod encode;
pub mod gguf;
pub mod template;
pub mod tokenizer;

mod error;
mod open;

pub use error::ModelError;
pub use open::Model;
