//! One request on its way to a completion.
//!
//! Not which rows run or how they are cut into steps (`scheduler`). A row keeps its tokens, its text and its timing
//! when it loses its blocks; only the positions computed are then gone.

use super::blocks::{Chain, chain, chains};
use super::draft::{Drafts, Reach};
use super::grammar::{Grammar, Guide};
use super::sampler::{likeliest, sample_allowed, stream};
use super::text::Text;
use super::{Completion, Cost, EngineError, Request, RequestId, StopReason};
use crate::backend::{BLOCK, BlockId, Largest};
use std::time::Instant;

/// What the engine must know of a tokenizer.
pub trait Vocabulary {
    /// Whether a token ends a turn.
    fn ends(&self, id: u32) -> bool;

    /// What a token adds to the text, in bytes.
    fn bytes(&self, id: u32) -> &[u8];
}

/// What one pass found at a position.
#[derive(Clone, Copy)]
pub enum Found<'a> {
    /// All logits `(vocab,)`.
    Logits(&'a [f32]),
    /// The largest, for rows that ask for no more.
    Largest(Largest),
}

/// What one pass gave a row.
pub struct Chosen {
    /// How many tokens.
    pub tokens: usize,
    /// What guesses did for that.
    pub drafts: Drafts,
    /// The completion, when that was its end.
    pub ended: Option<Completion>,
}

/// A request, what it has so far, and the blocks it holds.
pub struct Row {
    /// Its name; ascending in the order of submission.
    pub id: RequestId,
    /// Prompt and completion so far.
    pub tokens: Vec<u32>,
    /// Chains of the full blocks that may be shared, as far as they are known: of the prompt, and of the completion
    /// as it is published.
    pub chains: Vec<Chain>,
    /// The block table; empty while it waits.
    pub blocks: Vec<BlockId>,
    /// How many of its first blocks are in the prefix cache under this row's hold.
    pub published: usize,
    /// Positions in its blocks.
    pub computed: usize,
    /// The most positions that it had in its blocks or found cached at any time.
    pub reached: usize,
    request: Request,
    stream: u64,
    text: Text,
    cost: Cost,
    reach: Reach,
    /// Where the reply is in its schema, when it is held to one.
    guide: Option<Guide>,
    submitted: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
}

impl Row {
    /// A row that waits.
    pub fn new(id: RequestId, request: Request) -> Self {
        Self {
            id,
            tokens: request.prompt.tokens.clone(),
            chains: chains(&request.prompt.tokens),
            blocks: Vec::new(),
            published: 0,
            computed: 0,
            reached: 0,
            stream: stream(&request.row, request.call),
            request,
            text: Text::default(),
            cost: Cost::default(),
            reach: Reach::default(),
            guide: None,
            submitted: Instant::now(),
            started: None,
            first_token: None,
        }
    }

    /// Holds the reply to a schema from its first token on. Tokens that it leaves no choice about are computed with the
    /// prompt; the completion when it leaves none at all.
    ///
    /// # Errors
    /// [`EngineError::Grammar`].
    pub fn hold(
        &mut self,
        grammar: &Grammar,
        vocabulary: &dyn Vocabulary,
    ) -> Result<Option<Completion>, EngineError> {
        self.guide = Some(grammar.guide());
        let stop = self.force(vocabulary)?;
        Ok(stop.map(|stop| self.finish(stop)))
    }

    /// Tokens of the prompt.
    pub fn prompt_len(&self) -> usize {
        self.request.prompt.tokens.len()
    }

    /// Chains of the blocks that it may take from the prefix cache: one token at least stays to be computed, because
    /// its logits are needed.
    pub fn shareable(&self) -> &[Chain] {
        let most = self.tokens.len().saturating_sub(1) / BLOCK;
        &self.chains[..most.min(self.chains.len())]
    }

    /// Takes its block table, whose first `cached` blocks come from the prefix cache and whose first `held` positions
    /// are computed; returns how many prompt tokens are thereby spared that no earlier run of this row had.
    pub fn start(&mut self, blocks: Vec<BlockId>, cached: usize, held: usize) -> usize {
        self.blocks = blocks;
        self.published = cached;
        self.computed = held;
        // Forced tokens may be held too, and are not the prompt's.
        let spared = held.min(self.prompt_len()).saturating_sub(self.reached);
        self.reached = self.reached.max(held);
        self.cost.cached_tokens += spared;
        if self.started.is_none() {
            let now = Instant::now();
            self.started = Some(now);
            self.cost.queued_us = micros(self.submitted, now);
        }
        spared
    }

    /// Gives its blocks back; the row can wait again.
    pub fn stop(&mut self) -> Vec<BlockId> {
        self.published = 0;
        self.computed = 0;
        std::mem::take(&mut self.blocks)
    }

    /// The chain of its block `index`, which is full: the first whose chain is not known yet, or one before it.
    pub fn chain_of(&mut self, index: usize) -> Chain {
        if let Some(&known) = self.chains.get(index) {
            return known;
        }
        let next = chain(
            self.chains.last(),
            &self.tokens[index * BLOCK..(index + 1) * BLOCK],
        );
        self.chains.push(next);
        next
    }

    /// Tokens that may be guessed behind the next one: no more than the completion could take.
    pub fn guesses(&self) -> usize {
        let left = self.request.sampling.max_tokens - self.completion().len();
        match self.guide {
            // Its forced tokens are guesses that cannot be wrong.
            Some(_) => 0,
            None => self.reach.length().min(left.saturating_sub(1)),
        }
    }

    /// Whether no more than the largest logit decides its next token.
    pub fn only_largest(&self) -> bool {
        self.guide.is_none() && self.request.sampling.only_largest()
    }

    /// Chooses the tokens behind its last one from what was `found` at it and at each guess: the first, and one more behind
    /// each guess that was right. Right guesses are computed thereby.
    ///
    /// # Errors
    /// [`EngineError::NonFinite`].
    pub fn advance(
        &mut self,
        guess: &[u32],
        found: &[Found<'_>],
        vocabulary: &dyn Vocabulary,
    ) -> Result<Chosen, EngineError> {
        let (mut tokens, mut confirmed, mut stop) = (0, 0, None);
        for found in found {
            let token;
            (token, stop) = self.choose(*found, vocabulary)?;
            let right = guess.get(tokens) == Some(&token);
            tokens += 1;
            confirmed += usize::from(right);
            if stop.is_some() || !right {
                break;
            }
            self.computed += 1;
        }
        self.reached = self.reached.max(self.computed);
        self.reach.learn(guess.len(), confirmed);
        let drafts = Drafts {
            guessed: guess.len() as u64,
            confirmed: confirmed as u64,
        };
        self.cost.drafts += drafts;
        Ok(Chosen {
            tokens,
            drafts,
            ended: stop.map(|stop| self.finish(stop)),
        })
    }

    /// Chooses the next token, and says whether the completion ends with it or with what it forces.
    fn choose(
        &mut self,
        found: Found<'_>,
        vocabulary: &dyn Vocabulary,
    ) -> Result<(u32, Option<StopReason>), EngineError> {
        let mask = self.guide.as_mut().map(Guide::allowed).transpose()?;
        let seeds = (self.request.seed, self.stream);
        let sampling = &self.request.sampling;
        let token = match found {
            Found::Logits(logits) => sample_allowed(logits, sampling, &self.tokens, seeds, mask.as_ref())?,
            Found::Largest(largest) => likeliest(largest, self.tokens.len())?,
        };
        self.first_token.get_or_insert_with(Instant::now);
        if vocabulary.ends(token) {
            return Ok((token, Some(StopReason::EndOfTurn)));
        }
        let stop = match self.take(token, vocabulary)? {
            None => self.force(vocabulary)?,
            some => some,
        };
        Ok((token, stop))
    }

    /// Appends a token, and says whether the completion ends with it.
    fn take(&mut self, token: u32, vocabulary: &dyn Vocabulary) -> Result<Option<StopReason>, EngineError> {
        self.tokens.push(token);
        let complete = match &mut self.guide {
            None => false,
            Some(guide) => {
                guide.take(token)?;
                guide.complete()
            }
        };
        let sampling = &self.request.sampling;
        Ok(if self.text.push(vocabulary.bytes(token), &sampling.stop) {
            Some(StopReason::StopString)
        } else if complete {
            Some(StopReason::EndOfTurn)
        } else if self.completion().len() < sampling.max_tokens {
            None
        } else {
            Some(StopReason::MaxTokens)
        })
    }

    /// Appends the tokens that the schema leaves no choice about; how the completion ends if it does with one of them.
    fn force(&mut self, vocabulary: &dyn Vocabulary) -> Result<Option<StopReason>, EngineError> {
        let forced = self.guide.as_mut().map(Guide::forced).unwrap_or_default();
        for token in forced {
            if vocabulary.ends(token) {
                return Ok(Some(StopReason::EndOfTurn));
            }
            self.cost.forced_tokens += 1;
            let stop = self.take(token, vocabulary)?;
            if stop.is_some() {
                return Ok(stop);
            }
        }
        Ok(None)
    }

    fn finish(&mut self, stop: StopReason) -> Completion {
        let now = Instant::now();
        let first = self.first_token.unwrap_or(now);
        self.cost.prefill_us = micros(self.started.unwrap_or(first), first);
        self.cost.decode_us = micros(first, now);
        tracing::debug!(
            row = self.request.row,
            total_us = micros(self.submitted, now),
            "completed"
        );
        Completion {
            text: self.text.whole(),
            tokens: self.completion().to_vec(),
            stop,
            cost: self.cost,
        }
    }

    /// The new tokens so far.
    fn completion(&self) -> &[u32] {
        &self.tokens[self.prompt_len()..]
    }

    /// The text so far that nothing can change any more.
    pub fn settled(&self) -> String {
        self.text.settled(&self.request.sampling.stop)
    }
}

fn micros(from: Instant, to: Instant) -> u64 {
    to.saturating_duration_since(from).as_micros() as u64
}
