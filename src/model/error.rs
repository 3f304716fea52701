//! What can go wrong with a model's files, before any arithmetic.
//!
//! Not what can go wrong while computing (that is `backend::BackendError`): every variant names the file, the place
//! in it, what was expected and what was found.

use std::path::PathBuf;

/// A model that cannot be found, fetched, read or trusted.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file system refused.
    #[error("cannot {op} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are not well formed, or files contradict each other.
    #[error("{file}: malformed at {place}: expected {expected}, found {found}", file = file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Byte offset, key or tensor.
        place: String,
        /// What a good file has there.
        expected: String,
        /// What this one has.
        found: String,
    },
    /// The file is well formed, but holds something this program does not compute.
    #[error("{file}: {place}: this program handles {expected}, found {found}", file = file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// Key or tensor.
        place: String,
        /// What is handled.
        expected: String,
        /// What was found.
        found: String,
    },
    /// The model has no tensor of this name.
    #[error("the model has no tensor {name}")]
    NoTensor {
        /// The name.
        name: String,
    },
    /// A storage format that nothing here computes with.
    #[error("nothing here decodes tensors of the format {block}")]
    NoDecoder {
        /// ggml's name of it.
        block: &'static str,
    },
    /// The tokenizer cannot be built from the file's tables.
    #[error("{file}: tokenizer: {reason}", file = file.display())]
    Tokenizer {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// A text could not be tokenised.
    #[error("cannot tokenise a text of {bytes} bytes: {reason}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// What the library said.
        reason: String,
    },
    /// A manifest is malformed.
    #[error("{file}: {field}: {reason}")]
    Manifest {
        /// The manifest.
        file: String,
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A lock file is malformed.
    #[error("{file}: {reason}; delete its folder and pull again", file = file.display())]
    Lock {
        /// The lock file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is something at a path, but no model.
    #[error(
        "{path}: expected a GGUF file, or a folder with config.json, safetensors and tokenizer.json; found {found}",
        path = path.display()
    )]
    NotAModel {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// No manifest has this name.
    #[error(
        "unknown model {name:?}: expected one of {known}, or the path of a .gguf file or a model's folder"
    )]
    UnknownName {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The model is known, but was not pulled.
    #[error("{name} is not in {cache}: fetch it with `veriharness model pull {name}`", cache = cache.display())]
    Absent {
        /// The name.
        name: String,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// There is no place for the cache.
    #[error("no cache folder: set VERIHARNESS_HOME (or XDG_CACHE_HOME or HOME)")]
    NoCache,
    /// One source failed.
    #[error("{reason}")]
    Fetch {
        /// Why.
        reason: String,
    },
    /// A source accepted the request, but then sent nothing for too long.
    #[error("{what}: nothing came for {patience:?}")]
    Stalled {
        /// What was awaited.
        what: String,
        /// For how long.
        patience: std::time::Duration,
    },
    /// A file is not what its source or manifest says.
    #[error("{file}: expected sha256 {expected}, found {found}", file = file.display())]
    Hash {
        /// The file.
        file: PathBuf,
        /// The right hash.
        expected: String,
        /// The hash of the bytes.
        found: String,
    },
    /// Every source failed.
    #[error(
        "cannot fetch {name}; every source failed:{failures}\nIf you have the file, name it: --model PATH"
    )]
    NoSource {
        /// The model.
        name: String,
        /// One line per source, with its reason.
        failures: String,
    },
    /// The chat template does not compile or does not render.
    #[error("{file}: chat template: {reason}", file = file.display())]
    Template {
        /// The file, or the name the template was given.
        file: PathBuf,
        /// What the template engine said.
        reason: String,
    },
}

impl ModelError {
    /// An adaptor for `map_err` on file operations.
    pub(crate) fn io(op: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { op, path, source }
    }
}
