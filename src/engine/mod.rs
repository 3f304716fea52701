//! Prompt to completion: the verbs `encode`, `submit`, `step`, and what passes through them.
//!
//! Not the arithmetic (that is `backend`), and not what a completion means (that is `candidate`). One thread owns
//! an engine and steps it; rows wait for their completions as plain state machines.

pub mod local;
pub mod sampler;
pub mod scripted;

use crate::backend::BackendError;
use crate::model::chat::Message;
use serde::{Deserialize, Serialize};

/// A rendered prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The text after the chat template.
    pub text: String,
    /// Its token ids; empty when the engine has no tokenizer (`scripted`).
    pub tokens: Vec<u32>,
}

/// Most new tokens that a study may ask for.
pub const MAX_TOKENS: usize = 1 << 20;

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f64,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f64,
    /// Keep the k likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep tokens at least this likely, relative to the likeliest; 0 keeps all.
    pub min_p: f64,
    /// Most tokens of a completion.
    pub max_tokens: usize,
}

impl Default for Sampling {
    /// The paper's primary decoding: greedy, 512 tokens (section 3).
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_tokens: 512,
        }
    }
}

impl Sampling {
    /// Whether every draw is the likeliest token.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Says which value is out of range, and which range it has.
    ///
    /// # Errors
    /// The name, the value and the range, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let unit = |name: &str, value: f64| match value {
            v if (0.0..=1.0).contains(&v) => Ok(()),
            v => Err(format!("{name}: expected a number from 0 to 1, found {v}")),
        };
        unit("top_p", self.top_p)?;
        unit("min_p", self.min_p)?;
        if !(0.0..=100.0).contains(&self.temperature) {
            return Err(format!(
                "temperature: expected a number from 0 to 100, found {}",
                self.temperature
            ));
        }
        if !(1..=MAX_TOKENS).contains(&self.max_tokens) {
            return Err(format!(
                "max_tokens: expected 1 to {MAX_TOKENS}, found {}",
                self.max_tokens
            ));
        }
        Ok(())
    }
}

/// One call to be made.
#[derive(Clone, Debug)]
pub struct Request {
    /// Key of the row that asks.
    pub row: String,
    /// Which call of the row, from 1.
    pub call: u32,
    /// Inference seed of the row.
    pub seed: u64,
    /// What to complete.
    pub prompt: Prompt,
    /// How.
    pub sampling: Sampling,
}

/// Names a submitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model ended its turn.
    EndOfTurn,
    /// The cap on new tokens was reached: the text is cut.
    MaxTokens,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The text, without the token that ended it.
    pub text: String,
    /// Its tokens; empty when the engine has no tokenizer.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub stop: StopReason,
    /// What making it cost.
    pub cost: Cost,
}

/// Measurements of one call; never part of what a run must reproduce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Prompt tokens that the prefix cache held, in tokens.
    pub cached_tokens: usize,
    /// From `submit` to the first forward pass, in microseconds.
    pub queued_us: u64,
    /// From the first forward pass to the first new token, in microseconds.
    pub prefill_us: u64,
    /// From the first new token to the last, in microseconds.
    pub decode_us: u64,
}

/// What ends one request without ending the engine, or the engine itself.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Logits that are not numbers never become a token.
    #[error("non-finite logits: {count} of {vocab} at position {position}")]
    NonFinite {
        /// How many logits are NaN or infinite.
        count: usize,
        /// How many there are.
        vocab: usize,
        /// Position in the sequence.
        position: usize,
    },
    /// The prompt and its completion do not fit into the model's context.
    #[error("the prompt has {prompt} tokens and may grow by {new}, but the context holds {limit}")]
    Context {
        /// Prompt tokens.
        prompt: usize,
        /// Cap on new tokens.
        new: usize,
        /// Positions the model has.
        limit: usize,
    },
    /// The prompt could not be rendered or tokenised.
    #[error("cannot render the prompt: {0}")]
    Encode(String),
    /// A script has no reply for this call.
    #[error("{file} holds no reply for call {call} of row {row}")]
    NoReply {
        /// The script.
        file: String,
        /// The row's key.
        row: String,
        /// The call.
        call: u32,
    },
    /// A script cannot be read.
    #[error("{file}: {place}: {reason}")]
    Script {
        /// The script.
        file: String,
        /// Which line, or the file as a whole.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// A request that is through.
#[derive(Debug)]
pub struct Finished {
    /// Which.
    pub id: RequestId,
    /// Its completion, or what ended it.
    pub result: Result<Completion, EngineError>,
}

/// What completes prompts, as the trace and a resume know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The model's name, or its file's.
    pub model: String,
    /// sha256 of the weights (of the script, for `scripted`), in hex.
    pub model_sha256: String,
    /// sha256 of the chat template, in hex; empty without one.
    pub template_sha256: String,
    /// Which backend, with whatever of it decides the bits.
    pub backend: String,
}

/// Completes prompts.
pub trait Engine {
    /// What this engine is.
    fn identity(&self) -> &Identity;

    /// Renders messages into a prompt that ends where the model is to speak.
    ///
    /// # Errors
    /// [`EngineError::Encode`].
    fn encode(&self, messages: &[Message]) -> Result<Prompt, EngineError>;

    /// Queues a request.
    fn submit(&mut self, request: Request) -> RequestId;

    /// Advances the batch by one forward pass and returns what it finished.
    fn step(&mut self) -> Vec<Finished>;

    /// Requests submitted and not finished.
    fn pending(&self) -> usize;

    /// Tokens decoded so far, finished or not: for progress displays only.
    fn decoded_tokens(&self) -> u64;
}
