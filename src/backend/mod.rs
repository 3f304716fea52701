//! Tokens to logits: the trait every backend implements.
//!
//! Not scheduling, caching policy or sampling (that is `engine`): a backend computes what it is told.

pub mod candle;
pub mod cpu;
pub mod cuda;

/// A block of the KV cache: room for the keys and values of `BLOCK` positions. Blocks that are full may be shared by
/// sequences with the same beginning; the others have one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// Positions per KV block.
pub const BLOCK: usize = 32;

/// New tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The new tokens, at positions `start .. start + tokens.len()`; never empty.
    pub tokens: &'a [u32],
    /// How many positions of the sequence are already in its blocks.
    pub start: usize,
    /// The sequence's block table: block `i` holds positions `i * BLOCK ..`. It covers `start + tokens.len()`
    /// positions, and those from `start` on belong to no other step of the batch.
    pub blocks: &'a [BlockId],
    /// For how many of the last tokens logits are wanted; at most `tokens.len()`.
    pub logits: usize,
}

impl Step<'_> {
    /// Checks the step against a backend's limits: ids under `vocab`, positions within `context`, a block table that
    /// covers the positions with blocks under `reserved`.
    ///
    /// # Errors
    /// What is outside its limits.
    pub fn check(&self, vocab: usize, context: usize, reserved: usize) -> Result<(), BackendError> {
        let end = self.start.saturating_add(self.tokens.len());
        let bad = |what, expected, found| BackendError::Step {
            what,
            expected,
            found,
        };
        if self.tokens.is_empty() {
            return Err(bad("tokens", 1, 0));
        }
        if end > context {
            return Err(BackendError::Context {
                found: end,
                limit: context,
            });
        }
        if self.logits > self.tokens.len() {
            return Err(bad("positions with logits", self.tokens.len(), self.logits));
        }
        if self.blocks.len() * BLOCK < end {
            return Err(bad("blocks", end.div_ceil(BLOCK), self.blocks.len()));
        }
        if let Some(block) = self.blocks.iter().find(|block| block.0 as usize >= reserved) {
            return Err(bad("block ids", reserved, block.0 as usize));
        }
        match self.tokens.iter().find(|&&id| id as usize >= vocab) {
            Some(&id) => Err(bad("token ids", vocab, id as usize)),
            None => Ok(()),
        }
    }
}

/// What can go wrong while computing.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The engine broke the contract of [`Backend::forward`].
    #[error("a step with wrong {what}: the limit is {expected}, found {found}")]
    Step {
        /// Of what.
        what: &'static str,
        /// The limit.
        expected: usize,
        /// What the step has.
        found: usize,
    },
    /// The sequence would outgrow the model's context.
    #[error("{found} positions, but the context of this model holds {limit}")]
    Context {
        /// Positions wanted.
        found: usize,
        /// Positions the model has.
        limit: usize,
    },
    /// There is not enough memory.
    #[error("cannot reserve {bytes} bytes: {reason}")]
    Memory {
        /// Bytes wanted.
        bytes: usize,
        /// What the system said.
        reason: String,
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

/// What bounds a backend's passes: the machine, and what the model asks of it. Attention is not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Bytes that can be read from memory, per second, as measured.
    pub bytes_per_second: f64,
    /// Products of weights and activations, sums included, that can be made per second: measured on a CPU, what its
    /// maker says of a GPU.
    pub products_per_second: f64,
    /// Bytes of weights that every pass reads.
    pub pass_bytes: usize,
    /// Products per position.
    pub position_products: usize,
    /// Products per position whose logits are wanted, in addition.
    pub logits_products: usize,
}

impl Bounds {
    /// What the machine did at best in two measurements.
    pub fn better(self, other: Self) -> Self {
        Self {
            bytes_per_second: self.bytes_per_second.max(other.bytes_per_second),
            products_per_second: self.products_per_second.max(other.products_per_second),
            ..self
        }
    }

    /// Seconds that a pass over `positions`, `logits` of which want logits, takes at least.
    pub fn floor(&self, positions: usize, logits: usize) -> f64 {
        let products = positions * self.position_products + logits * self.logits_products;
        let read = self.pass_bytes as f64 / self.bytes_per_second;
        read.max(products as f64 / self.products_per_second)
    }
}

/// The largest logit of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Largest {
    /// Its token; of equals the first.
    pub id: u32,
    /// How many logits are NaN or infinite. Where there are any, `id` means nothing.
    pub non_finite: usize,
    /// How many logits there are.
    pub of: usize,
}

impl Largest {
    /// Of these logits `(vocab,)`.
    pub fn among(logits: &[f32]) -> Self {
        let mut best = 0;
        for (id, x) in logits.iter().enumerate() {
            if *x > logits[best] {
                best = id;
            }
        }
        Self {
            id: best as u32,
            non_finite: logits.iter().filter(|x| !x.is_finite()).count(),
            of: logits.len(),
        }
    }
}

/// Computes logits. One engine thread owns it.
pub trait Backend: Send {
    /// Name with whatever decides the bits, stored in the trace: two backends of one name give equal bits.
    fn name(&self) -> &str;

    /// Number of logits per position.
    fn vocab(&self) -> usize;

    /// Most positions a sequence may have.
    fn context(&self) -> usize;

    /// Bytes that one KV block takes.
    fn block_bytes(&self) -> usize;

    /// Whether a position's bits are the same however its sequence is cut into steps. Where they are not, a sequence
    /// must always be cut in the same way: its prompt at multiples of [`BLOCK`], then token by token.
    fn invariant(&self) -> bool;

    /// Measures what bounds this backend here, which takes a second; `None` where that is not known.
    fn bounds(&mut self) -> Option<Bounds> {
        None
    }

    /// Makes room for `blocks` KV blocks, with the ids `0 .. blocks`; what earlier ones held is lost.
    ///
    /// # Errors
    /// [`BackendError::Memory`].
    fn reserve(&mut self, blocks: usize) -> Result<(), BackendError>;

    /// Copies what the block `from` holds to the block `to`; both are reserved.
    fn copy(&mut self, from: BlockId, to: BlockId);

    /// Computes each step, writes its keys and values into its blocks, and returns per step the logits
    /// `(step.logits, vocab)` of its last positions, row after row. A step's bits do not depend on the others.
    ///
    /// # Errors
    /// A step outside its limits ([`Step::check`]), or a failure underneath; the blocks of the steps are then of no
    /// use any more from their `start` on.
    fn forward(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<f32>>, BackendError>;

    /// As [`Self::forward`], where of each wanted position no more than the largest logit is asked for: a device need not
    /// hand out all of them.
    ///
    /// # Errors
    /// As there.
    fn largest(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<Largest>>, BackendError> {
        let vocab = self.vocab();
        let logits = self.forward(batch)?;
        let of = |logits: &Vec<f32>| logits.chunks_exact(vocab).map(Largest::among).collect();
        Ok(logits.iter().map(of).collect())
    }
}
