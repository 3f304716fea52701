//! A model file, opened: everything about it but its arithmetic.
//!
//! Not where the file came from (that is `manifest`, `cache` and `fetch`).

use std::path::{Path, PathBuf};

use super::ModelError;
use super::cache::{Cache, sha256};
use super::chat::Message;
use super::config::Config;
use super::encode::{Encoded, encode_chat};
use super::gguf::Gguf;
use super::template::Template;
use super::tokenizer::Tokenizer;
use super::weights::Weights;

/// A model: configuration, tokenizer, chat template, and the file that holds the weights.
#[derive(Debug)]
pub struct Model {
    /// The numbers that define the computation.
    pub config: Config,
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// Messages to text.
    pub template: Template,
    /// The tensors; backends read them.
    pub weights: Weights,
    /// The file.
    pub path: PathBuf,
    /// The model's own name for itself, or the file's.
    pub title: String,
    /// The licence that the file states, if it does.
    pub licence: Option<String>,
    /// SHA-256 of the file, lower-case hexadecimal.
    pub sha256: String,
}

impl Model {
    /// Opens a GGUF file of one of the two architectures.
    ///
    /// # Errors
    /// The file is unreadable, malformed, of another architecture, or has no usable tokenizer or chat template.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let gguf = Gguf::open(path)?;
        let config = Config::from_gguf(&gguf)?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        let key = "tokenizer.chat_template";
        let template = Template::new(gguf.required(key, gguf.text(key)?)?, path)?;
        let sha256 = match Cache::standard() {
            Ok(cache) => cache.sha256(path)?,
            Err(_) => sha256(path, |_| ())?,
        };
        let stated = |key| gguf.text(key).ok().flatten().map(str::to_owned);
        Ok(Self {
            tokenizer,
            template,
            path: path.into(),
            title: stated("general.name").unwrap_or_else(|| path.display().to_string()),
            licence: stated("general.license"),
            sha256,
            weights: Weights::from_gguf(gguf, &config),
            config,
        })
    }

    /// Ids that end a turn, ascending, never empty.
    pub fn eos(&self) -> &[u32] {
        self.tokenizer.eos()
    }

    /// Most positions of a sequence.
    pub fn context(&self) -> usize {
        self.config.context
    }

    /// Renders and tokenises messages; their text never becomes a control token.
    ///
    /// # Errors
    /// The template or the tokenizer fails.
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Encoded, ModelError> {
        encode_chat(&self.tokenizer, &self.template, messages)
    }

    /// The text of some tokens, control tokens left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids)
    }
}
