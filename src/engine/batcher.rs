//! Requests to completions over a [`Backend`]: one forward pass per step, over every running row.
//!
//! Not the choice of rows and blocks (`scheduler`), and nothing of a model but its logits and how its tokens are
//! spelled.

use super::grammar::Grammar;
use super::row::{Found, Row, Vocabulary};
use super::scheduler::{Limits, Piece, Scheduler};
use super::{Completion, EngineError, Finished, Request, RequestId, Stats};
use crate::backend::{BLOCK, Backend, BackendError, Largest, Step};

/// A backend and the rows that it computes.
pub struct Batcher {
    backend: Box<dyn Backend>,
    scheduler: Scheduler,
    /// Requests that were through without a pass, until the next step says so.
    early: Vec<Finished>,
    next_id: u64,
}

impl Batcher {
    /// Makes room for keys and values on the backend.
    ///
    /// # Errors
    /// [`BackendError::Memory`] when `limits.kv_bytes` cannot be had, or is less than a block.
    pub fn new(mut backend: Box<dyn Backend>, limits: Limits) -> Result<Self, BackendError> {
        Ok(Self {
            scheduler: reserve(&mut *backend, limits)?,
            backend,
            early: Vec::new(),
            next_id: 0,
        })
    }

    /// Forgets all requests and all keys and values, as if just made, but for the names that requests get.
    ///
    /// # Errors
    /// As [`Batcher::new`]; nothing is forgotten then.
    pub fn restart(&mut self, limits: Limits) -> Result<(), BackendError> {
        self.scheduler = reserve(&mut *self.backend, limits)?;
        self.early.clear();
        Ok(())
    }

    /// Queues a request. Its reply is held to `grammar`, which is that of its schema.
    pub fn submit(
        &mut self,
        request: Request,
        grammar: Option<&Grammar>,
        vocabulary: &dyn Vocabulary,
    ) -> RequestId {
        let id = self.name();
        let ended = self.start(id, request, grammar, vocabulary).transpose();
        self.early.extend(ended.map(|result| Finished { id, result }));
        id
    }

    /// Takes a request that cannot run, and says why at the next step.
    pub fn refuse(&mut self, error: EngineError) -> RequestId {
        let id = self.name();
        let result = Err(error);
        self.early.push(Finished { id, result });
        id
    }

    fn name(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId(self.next_id)
    }

    /// Queues a row, unless its schema leaves nothing to compute.
    fn start(
        &mut self,
        id: RequestId,
        request: Request,
        grammar: Option<&Grammar>,
        vocabulary: &dyn Vocabulary,
    ) -> Result<Option<Completion>, EngineError> {
        self.check(&request)?;
        let mut row = Row::new(id, request);
        if let Some(grammar) = grammar
            && let Some(completion) = row.hold(grammar, vocabulary)?
        {
            return Ok(Some(completion));
        }
        self.scheduler.enqueue(row);
        Ok(None)
    }

    fn check(&self, request: &Request) -> Result<(), EngineError> {
        let (tokens, new) = (&request.prompt.tokens, request.sampling.max_tokens);
        let (prompt, limit, vocab) = (tokens.len(), self.backend.context(), self.backend.vocab());
        if prompt == 0 {
            return Err(EngineError::Encode("it has no tokens".into()));
        }
        if let Some(id) = tokens.iter().find(|id| **id as usize >= vocab) {
            return Err(EngineError::Encode(format!(
                "it has token {id}, but the model has {vocab} tokens"
            )));
        }
        if prompt.saturating_add(new) > limit {
            return Err(EngineError::Context { prompt, new, limit });
        }
        // The last token is chosen and not computed.
        let (wanted, held) = (prompt + new.max(1) - 1, self.scheduler.positions());
        if wanted > held {
            return Err(EngineError::Blocks { wanted, held });
        }
        Ok(())
    }

    /// Advances the batch by one forward pass and returns what it finished.
    pub fn step(&mut self, vocabulary: &dyn Vocabulary) -> Vec<Finished> {
        let mut finished = std::mem::take(&mut self.early);
        let pieces = self.scheduler.plan();
        for (from, to) in self.scheduler.copies() {
            self.backend.copy(from, to);
        }
        if pieces.is_empty() {
            return finished;
        }
        // From the last row on, so that the indices of the others stay true when one is taken out.
        match self.forward(&pieces) {
            Ok(outcome) => {
                for (index, piece) in pieces.iter().enumerate().rev() {
                    if let Some(result) = self.advance(piece, &outcome.of(index), vocabulary) {
                        let id = self.scheduler.remove(piece.row);
                        finished.push(Finished { id, result });
                    }
                }
            }
            // A pass is one computation: when it fails, each of its requests fails with the same words, and what
            // they were computing is not published.
            Err(error) => {
                let reason = error.to_string();
                for piece in pieces.iter().rev() {
                    let id = self.scheduler.remove(piece.row);
                    let result = Err(compute_error(reason.clone()).into());
                    finished.push(Finished { id, result });
                }
            }
        }
        finished
    }

    /// Computes the pieces: what is found at the last token of each that ends with its row's, and at its guesses; nothing
    /// of the others.
    fn forward(&mut self, pieces: &[Piece]) -> Result<Outcome, BackendError> {
        let rows = self.scheduler.running();
        let tokens = |piece: &Piece| {
            let row = &rows[piece.row];
            [&row.tokens[row.computed..piece.end], &piece.guess].concat()
        };
        let tokens: Vec<Vec<u32>> = pieces.iter().map(tokens).collect();
        let batch: Vec<Step<'_>> = pieces
            .iter()
            .zip(&tokens)
            .map(|(piece, tokens)| {
                let row = &rows[piece.row];
                let wanted = piece.end == row.tokens.len();
                Step {
                    tokens,
                    start: row.computed,
                    blocks: &row.blocks,
                    logits: if wanted { 1 + piece.guess.len() } else { 0 },
                }
            })
            .collect();
        let vocab = self.backend.vocab();
        let (outcome, per_position) = match pieces.iter().all(|piece| rows[piece.row].only_largest()) {
            true => (Outcome::Largest(self.backend.largest(&batch)?), 1),
            false => (Outcome::Logits(self.backend.forward(&batch)?, vocab), vocab),
        };
        let wanted = batch.iter().map(|step| step.logits * per_position);
        if wanted.ne(outcome.lengths()) {
            return Err(compute_error(format!(
                "expected logits for {} steps, found {} lists of other lengths",
                batch.len(),
                outcome.lengths().len()
            )));
        }
        Ok(outcome)
    }

    /// Books a piece as computed, and gives its row the next tokens if that is what it was for; how the row ended
    /// when it did.
    fn advance(
        &mut self,
        piece: &Piece,
        found: &[Found<'_>],
        vocabulary: &dyn Vocabulary,
    ) -> Option<Result<Completion, EngineError>> {
        let row = self.scheduler.computed(piece);
        let mut ended = None;
        if !found.is_empty() {
            match row.advance(&piece.guess, found, vocabulary) {
                Ok(chosen) => {
                    self.scheduler.decoded(chosen.tokens, chosen.drafts);
                    ended = chosen.ended;
                }
                // What gave such logits is not shown to other rows.
                Err(error) => return Some(Err(error)),
            }
        }
        self.scheduler.publish(piece.row);
        ended.map(Ok)
    }

    /// Requests submitted and not finished.
    pub fn pending(&self) -> usize {
        self.early.len() + self.scheduler.len()
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.scheduler.stats()
    }

    /// The text of an unfinished request that nothing can change any more.
    pub fn partial(&self, id: RequestId) -> Option<String> {
        self.scheduler.row(id).map(Row::settled)
    }

    /// Says which rule of the scheduler is broken, if one is.
    #[cfg(test)]
    pub fn audit(&self) -> Result<(), String> {
        self.scheduler.audit()
    }
}

/// What a pass gave, per piece.
enum Outcome {
    /// Logits `(positions, vocab)`, and the width.
    Logits(Vec<Vec<f32>>, usize),
    Largest(Vec<Vec<Largest>>),
}

impl Outcome {
    fn lengths(&self) -> Vec<usize> {
        match self {
            Self::Logits(logits, _) => logits.iter().map(Vec::len).collect(),
            Self::Largest(largest) => largest.iter().map(Vec::len).collect(),
        }
    }

    /// What was found at the positions of piece `index`.
    fn of(&self, index: usize) -> Vec<Found<'_>> {
        match self {
            Self::Logits(logits, vocab) => logits[index].chunks_exact(*vocab).map(Found::Logits).collect(),
            Self::Largest(largest) => largest[index].iter().copied().map(Found::Largest).collect(),
        }
    }
}

/// Makes room for keys and values, and a scheduler for the blocks.
fn reserve(backend: &mut dyn Backend, limits: Limits) -> Result<Scheduler, BackendError> {
    let per_block = backend.block_bytes().max(1);
    let blocks = u32::try_from(limits.kv_bytes / per_block).unwrap_or(u32::MAX);
    if blocks == 0 {
        return Err(BackendError::Memory {
            bytes: limits.kv_bytes,
            reason: format!("one block of {BLOCK} positions takes {per_block}"),
        });
    }
    backend.reserve(blocks as usize)?;
    Ok(Scheduler::new(limits, blocks, backend.invariant()))
}

fn compute_error(reason: String) -> BackendError {
    BackendError::Compute {
        op: "forward",
        reason,
    }
}

#[cfg(test)]
mod tests;
