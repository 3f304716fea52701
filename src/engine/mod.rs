//! Prompt to completion: the verbs `encode`, `submit`, `step`, and what passes through them.
//!
//! Not the arithmetic (that is `backend`), and not what a completion means (that is `candidate`). One thread owns
//! an engine and steps it; rows wait for their completions as plain state machines.

mod batcher;
mod blocks;
mod draft;
mod grammar;
pub mod local;
mod row;
pub mod sampler;
mod sampling;
mod scheduler;
mod schema;
pub mod scripted;
mod siblings;
mod text;

pub use draft::Drafts;
pub use sampling::{MAX_TOKENS, Sampling};
pub use schema::Schema;

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
    /// The text came to one of the stop strings, and ends before it.
    StopString,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The text, without the token or the stop string that ended it.
    pub text: String,
    /// What was decoded, without an end-of-turn token; empty when the engine has no tokenizer.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub stop: StopReason,
    /// What making it cost.
    pub cost: Cost,
}

/// Measurements of one call; never part of what a run must reproduce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Prompt tokens that the prefix cache held, so that they were not computed for this call.
    pub cached_tokens: usize,
    /// From `submit` to the first forward pass, in microseconds.
    pub queued_us: u64,
    /// From the first forward pass to the first new token, in microseconds.
    pub prefill_us: u64,
    /// From the first new token to the last, in microseconds.
    pub decode_us: u64,
    /// New tokens that the schema left no choice about, so that no pass was made for them.
    pub forced_tokens: usize,
    /// What guesses spared it passes.
    pub drafts: Drafts,
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
    /// The sequence has more keys and values than there is memory for, even with nothing else running.
    #[error("the prompt and its completion take up to {wanted} positions, but the KV blocks hold {held}")]
    Blocks {
        /// Positions that the sequence may have.
        wanted: usize,
        /// Positions that all blocks hold together.
        held: usize,
    },
    /// A schema cannot be compiled.
    #[error("the schema at {place}: {reason}")]
    Schema {
        /// JSON pointer of the part.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The model's vocabulary cannot be used under a schema.
    #[error("this model cannot be held to a schema: {0}")]
    Vocabulary(String),
    /// A reply under a schema cannot go on.
    #[error("the reply cannot go on under its schema: {0}")]
    Grammar(String),
    /// Replies that are played back cannot be held to a schema.
    #[error(
        "scripted replies cannot be constrained: they are what they are; leave the schema out, or name a model"
    )]
    Fixed,
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

/// What an engine has done so far: for displays and benchmarks, never part of a run. Tokens are of all requests,
/// finished or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Prompt tokens submitted, in requests that the engine can serve.
    pub prompt_tokens: u64,
    /// Of these, taken from the prefix cache.
    pub prompt_cached: u64,
    /// Of these, computed; neither while their request waits.
    pub prompt_computed: u64,
    /// New tokens.
    pub decoded: u64,
    /// Positions, of prompts and completions, that were computed once more because of a preemption.
    pub recomputed: u64,
    /// How often a running request gave its KV blocks away and went back to the queue.
    pub preemptions: u64,
    /// Forward passes.
    pub passes: u64,
    /// Tokens computed on a guess.
    pub drafts: Drafts,
    /// KV blocks there are.
    pub blocks: usize,
    /// KV blocks that hold nothing.
    pub blocks_free: usize,
    /// KV blocks that only the prefix cache keeps; they are used like free ones when those run out.
    pub blocks_idle: usize,
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

    /// Makes ready for requests with these settings, so that what is wrong with them is said before any is made.
    ///
    /// # Errors
    /// A schema that cannot be compiled, or not for this model.
    fn prepare(&mut self, _sampling: &Sampling) -> Result<(), EngineError> {
        Ok(())
    }

    /// Queues a request.
    fn submit(&mut self, request: Request) -> RequestId;

    /// Advances the batch by one forward pass and returns what it finished.
    fn step(&mut self) -> Vec<Finished>;

    /// Requests submitted and not finished.
    fn pending(&self) -> usize;

    /// What was done so far.
    fn stats(&self) -> Stats;

    /// The text of an unfinished request as far as nothing can change it any more: each answer begins with the
    /// earlier ones, and the completion's text with all of them. `None` when the request is unknown or through, or
    /// the engine does not show it.
    fn partial(&self, _id: RequestId) -> Option<String> {
        None
    }
}
