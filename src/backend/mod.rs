//! Tokens to logits: the trait every backend implements.
//!
//! Not scheduling, caching policy or sampling (that is `engine`): a backend computes what it is told.

pub mod candle;

/// Names one sequence (one prompt and its completion) for as long as the engine keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// A block of the KV cache: `BLOCK` positions of one sequence. Backends with a private cache ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId(pub u32);

/// Positions per KV block. A prompt is always computed in pieces that end at multiples of it, whether the pieces
/// before came from a cache or not, so that the arithmetic of a position never depends on what was cached.
pub const BLOCK: usize = 32;

/// New tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Whose tokens.
    pub sequence: SequenceId,
    /// The new tokens, at positions `start .. start + tokens.len()`; never empty.
    pub tokens: &'a [u32],
    /// How many positions of the sequence are already in the cache.
    pub start: usize,
    /// The sequence's block table, covering `start + tokens.len()` positions; empty for a backend that has no blocks.
    pub blocks: &'a [BlockId],
}

/// What can go wrong while computing.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The engine broke the contract of [`Backend::forward`].
    #[error("{sequence:?}: expected a step starting at position {expected}, found {found}")]
    Position {
        /// The sequence.
        sequence: SequenceId,
        /// Positions that the backend holds.
        expected: usize,
        /// `start` of the step.
        found: usize,
    },
    /// The sequence would outgrow the model's context.
    #[error("{sequence:?}: {found} positions, but the context of this model holds {limit}")]
    Context {
        /// The sequence.
        sequence: SequenceId,
        /// Positions wanted.
        found: usize,
        /// Positions the model has.
        limit: usize,
    },
    /// The weights cannot be used by this backend.
    #[error("cannot load {file}: {reason}")]
    Load {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The library underneath failed.
    #[error("{op} failed: {reason}")]
    Compute {
        /// The operation.
        op: &'static str,
        /// What the library said.
        reason: String,
    },
}

/// Computes logits. One engine thread owns it.
pub trait Backend: Send {
    /// Short name, stored in the trace: `candle`, `cpu`, `cuda`.
    fn name(&self) -> &'static str;

    /// Number of logits per position.
    fn vocab(&self) -> usize;

    /// Most positions a sequence may have.
    fn context(&self) -> usize;

    /// Computes each step and returns, per step, the logits `(vocab,)` of its last position.
    ///
    /// # Errors
    /// A step out of order, a context overflow, or a failure underneath; no sequence of the batch is advanced
    /// beyond what was computed.
    fn forward(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<f32>>, BackendError>;

    /// Makes `to` a sequence that shares the positions of `from` as they are now. Backends that compute from block
    /// tables have nothing to do.
    fn fork(&mut self, from: SequenceId, to: SequenceId) -> Result<(), BackendError>;

    /// Forgets a sequence; unknown ones are ignored.
    fn release(&mut self, sequence: SequenceId);

    /// Bytes of cache that one position of a sequence takes.
    fn bytes_per_position(&self) -> usize;
}
