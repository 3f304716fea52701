//! What a model is: manifest, files, tokenizer, chat template.
//!
//! Not how it computes (that is `backend`) and not how it decodes (that is `engine`).

pub mod chat;
