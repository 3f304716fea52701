//! A model file or folder, opened: everything about it but its arithmetic.
//!
//! Not where the file came from (that is `manifest`, `cache` and `fetch`).

use std::path::{Path, PathBuf};

use super::ModelError;
use super::cache::{Cache, sha256};
use super::chat::Message;
use super::config::Config;
use super::encode::{Encoded, encode_chat};
use super::folder;
use super::gguf::Gguf;
use super::template::Template;
use super::tokenizer::Tokenizer;
use super::weights::Weights;

/// A model: configuration, tokenizer, chat template, and the files that hold the weights.
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
    /// The file or folder.
    pub path: PathBuf,
    /// The model's own name for itself, or the file's or folder's.
    pub title: String,
    /// The licence that the file states, if it does.
    pub licence: Option<String>,
    /// SHA-256 of the file, or of the folder ([`folder::identity`]); lower-case hexadecimal.
    pub sha256: String,
}

/// What a backend computes with.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// The numbers that define the computation.
    pub config: &'a Config,
    /// The tensors.
    pub weights: &'a Weights,
    /// Where they are from, for messages.
    pub source: &'a Path,
}

impl Model {
    /// The part of it that a backend computes with.
    pub fn network(&self) -> Network<'_> {
        Network {
            config: &self.config,
            weights: &self.weights,
            source: &self.path,
        }
    }

    /// Opens a GGUF file or a Hugging Face folder of one of the two architectures.
    ///
    /// # Errors
    /// A file is unreadable, malformed, of another architecture, or there is no usable tokenizer or chat template.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        if path.is_dir() {
            return folder::open(path);
        }
        let gguf = Gguf::open(path)?;
        let config = Config::from_gguf(&gguf)?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        let key = "tokenizer.chat_template";
        let template = Template::new(gguf.required(key, gguf.text(key)?)?, path)?;
        let special = |name: &str| -> Result<Option<String>, ModelError> {
            let id = gguf.count(&format!("tokenizer.ggml.{name}_token_id"))?;
            let id = id.and_then(|id| u32::try_from(id).ok());
            Ok(id.map(|id| tokenizer.decode_all(&[id])))
        };
        let template = template.with_tokens(special("bos")?, special("eos")?);
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
