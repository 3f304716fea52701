//! Which rows run, which blocks they get, and how they are cut into the steps of a forward pass.
//!
//! Not the forward pass or what comes of it (`batcher`). Rows are served in the order in which they were submitted:
//! the oldest running row always gets on, and blocks are taken from the youngest.

use super::blocks::{BlockPool, Full};
use super::draft::{Drafts, lookup};
use super::row::Row;
use super::{RequestId, Stats};
use crate::backend::{BLOCK, BlockId};
use std::collections::VecDeque;

/// How much an engine may take on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most requests that run together; at least 1.
    pub batch: usize,
    /// Most tokens of a forward pass, of prompts and new ones together. A pass may have more when it must to get on:
    /// a token of every row that decodes, and a block of one prompt.
    pub chunk: usize,
    /// Bytes of keys and values, for running requests and for prompts to come.
    pub kv_bytes: usize,
    /// Most tokens that a row guesses per pass; 0 guesses none. Never changes a completion.
    pub draft: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch: 4,
            chunk: 512,
            kv_bytes: 1 << 30,
            draft: 16,
        }
    }
}

/// A part of the next forward pass: positions of a running row, from those it has computed to `end`, and behind its
/// last token the tokens that it guesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the running row.
    pub row: usize,
    /// Where it ends, guesses apart.
    pub end: usize,
    /// Guesses, in blocks that the row holds; none unless `end` is behind its last token.
    pub guess: Vec<u32>,
}

/// Waiting and running rows, both in the order of submission, and the blocks.
pub struct Scheduler {
    limits: Limits,
    invariant: bool,
    pool: BlockPool,
    waiting: VecDeque<Row>,
    running: Vec<Row>,
    /// Blocks to be copied, from and to, before the next pass.
    copies: Vec<(BlockId, BlockId)>,
    stats: Stats,
}

impl Scheduler {
    /// Schedules over `blocks` blocks. `invariant` is [`crate::backend::Backend::invariant`].
    pub fn new(limits: Limits, blocks: u32, invariant: bool) -> Self {
        Self {
            limits,
            invariant,
            pool: BlockPool::new(blocks),
            waiting: VecDeque::new(),
            running: Vec::new(),
            copies: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Positions that all blocks hold together.
    pub fn positions(&self) -> usize {
        self.pool.capacity() * BLOCK
    }

    /// Rows waiting and running.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// The running rows.
    pub fn running(&self) -> &[Row] {
        &self.running
    }

    /// A row, running or waiting.
    pub fn row(&self, id: RequestId) -> Option<&Row> {
        self.running.iter().chain(&self.waiting).find(|row| row.id == id)
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        Stats {
            blocks: self.pool.capacity(),
            blocks_free: self.pool.free(),
            blocks_idle: self.pool.idle(),
            ..self.stats
        }
    }

    /// Queues a row, which all blocks together must hold.
    pub fn enqueue(&mut self, row: Row) {
        self.stats.prompt_tokens += row.prompt_len() as u64;
        self.waiting.push_back(row);
    }

    /// Decides the next forward pass; the pieces are in the order of the running rows, at most one for each. None
    /// when there is nothing to do.
    pub fn plan(&mut self) -> Vec<Piece> {
        // Who runs comes first: blocks given to a newcomer would only be taken away again.
        self.make_room();
        self.admit();
        let mut pieces = self.cut();
        self.guess(&mut pieces);
        self.stats.passes += u64::from(!pieces.is_empty());
        pieces
    }

    /// Gives each row blocks for all of its tokens, of which its schema may have forced several, oldest first; the
    /// youngest rows pay for it.
    fn make_room(&mut self) {
        let mut index = 0;
        while let Some(row) = self.running.get_mut(index) {
            if row.tokens.len() <= row.blocks.len() * BLOCK {
                index += 1;
            } else if let Some(block) = self.pool.take() {
                row.blocks.push(block);
            } else {
                self.preempt();
            }
        }
    }

    /// Sends the youngest running row back to the queue.
    fn preempt(&mut self) {
        if let Some(mut row) = self.running.pop() {
            self.pool.release(&row.stop());
            self.stats.preemptions += 1;
            let place = self.waiting.partition_point(|other| other.id < row.id);
            self.waiting.insert(place, row);
        }
    }

    /// Lets waiting rows run, in order, while the batch has room and there are blocks for what they have to compute.
    /// Only a row whose next block is being computed by another is passed over: it will find it cached.
    fn admit(&mut self) {
        let mut next = 0;
        while self.running.len() < self.limits.batch.max(1) {
            let Some(row) = self.waiting.get(next) else { break };
            let found = self.pool.find(row.shareable());
            if self.is_under_way(row, found.len()) {
                next += 1;
                continue;
            }
            let cached = found.len();
            let near = self.near(row, cached);
            let fresh = row.tokens.len().div_ceil(BLOCK) - cached;
            let Some(blocks) = self.pool.acquire(found, fresh) else {
                break;
            };
            let Some(mut row) = self.waiting.remove(next) else {
                break;
            };
            // What is copied may have been evicted just now: it is still there until the next pass, and copies are made
            // in the order in which blocks were given.
            self.copies.extend(near.map(|(from, _)| (from, blocks[cached])));
            let held = cached * BLOCK + near.map_or(0, |(_, same)| same);
            self.stats.prompt_cached += row.start(blocks, cached, held) as u64;
            let place = self.running.partition_point(|other| other.id < row.id);
            self.running.insert(place, row);
        }
    }

    /// The block to copy for a row's block `index`, and how many of its positions serve. At least one token of a row
    /// stays to be computed.
    fn near(&self, row: &Row, index: usize) -> Option<(BlockId, usize)> {
        let before = match index.checked_sub(1) {
            None => None,
            Some(before) => Some(*row.chains.get(before)?),
        };
        let tokens = row.tokens.get(index * BLOCK..row.tokens.len() - 1)?;
        let near = self.pool.nearest(before, tokens);
        near.filter(|_| self.invariant)
    }

    /// Takes the copies that are to be made before the next pass, in order.
    pub fn copies(&mut self) -> Vec<(BlockId, BlockId)> {
        std::mem::take(&mut self.copies)
    }

    /// Whether a running row is about to publish the block `index` of `row`, which is not cached.
    fn is_under_way(&self, row: &Row, index: usize) -> bool {
        let Some(wanted) = row.shareable().get(index) else {
            return false;
        };
        self.running
            .iter()
            .any(|other| other.published <= index && other.chains.get(index) == Some(wanted))
    }

    /// Cuts the running rows into pieces: a token of each that decodes, then the prompts, oldest first, as far as
    /// the chunk goes.
    fn cut(&self) -> Vec<Piece> {
        let decoding = self.running.iter().filter(|row| self.decodes(row)).count();
        let mut left = self.limits.chunk.saturating_sub(decoding);
        let mut first = true;
        let mut pieces = Vec::with_capacity(self.running.len());
        for (index, row) in self.running.iter().enumerate() {
            let end = if self.decodes(row) {
                row.computed + 1
            } else {
                // The oldest prompt gets on even when the chunk is spent.
                let most = if first { left.max(BLOCK) } else { left };
                first = false;
                let end = self.prefill_end(row, most);
                left = left.saturating_sub(end - row.computed);
                end
            };
            if end > row.computed {
                let guess = Vec::new();
                pieces.push(Piece {
                    row: index,
                    end,
                    guess,
                });
            }
        }
        pieces
    }

    /// Adds guesses to the pieces that end with their row's last token. Blocks for them are taken only while there are
    /// any that nobody holds.
    fn guess(&mut self, pieces: &mut [Piece]) {
        if !self.invariant || self.limits.draft == 0 {
            return;
        }
        let rows = pieces.len();
        for piece in pieces {
            let row = &mut self.running[piece.row];
            if piece.end < row.tokens.len() {
                continue;
            }
            let most = row.guesses().min(self.limits.draft);
            let guess = lookup(&row.tokens, most, rows);
            if guess.is_empty() {
                continue;
            }
            while row.blocks.len() * BLOCK < piece.end + guess.len() {
                match self.pool.take() {
                    Some(block) => row.blocks.push(block),
                    None => break,
                }
            }
            let room = row.blocks.len() * BLOCK - piece.end;
            piece.guess = guess[..guess.len().min(room)].to_vec();
        }
    }

    /// Whether a row goes on token by token. One that is computed again does so too where bits depend on the cut.
    fn decodes(&self, row: &Row) -> bool {
        let known = row.tokens.len() - row.computed;
        row.computed >= row.prompt_len() && (known == 1 || !self.invariant)
    }

    /// Where a piece of at most `most` tokens ends: at the last token that may be computed with others, else at a
    /// multiple of [`BLOCK`]; nowhere when there is no such multiple.
    fn prefill_end(&self, row: &Row, most: usize) -> usize {
        let goal = if self.invariant {
            row.tokens.len()
        } else {
            row.prompt_len()
        };
        let end = row.computed + most;
        if end >= goal {
            goal
        } else {
            (end / BLOCK * BLOCK).max(row.computed)
        }
    }

    /// Takes note that a piece is computed; the row, to be given its next token.
    pub fn computed(&mut self, piece: &Piece) -> &mut Row {
        let row = &mut self.running[piece.row];
        let (start, prompt) = (row.computed, row.prompt_len());
        let again = row.reached.clamp(start, piece.end);
        self.stats.recomputed += (again - start) as u64;
        self.stats.prompt_computed += (piece.end.min(prompt) - again.min(prompt)) as u64;
        row.computed = piece.end;
        row.reached = row.reached.max(piece.end);
        row
    }

    /// Takes note of new tokens, and of what guesses did for them.
    pub fn decoded(&mut self, tokens: usize, drafts: Drafts) {
        self.stats.decoded += tokens as u64;
        self.stats.drafts += drafts;
    }

    /// Puts the blocks that a row has filled into the prefix cache. Where bits depend on the cut, a completion's
    /// blocks are not those that the same tokens have in a prompt, and stay out.
    pub fn publish(&mut self, row: usize) {
        let row = &mut self.running[row];
        while row.published < row.computed / BLOCK {
            let index = row.published;
            if !self.invariant && (index + 1) * BLOCK > row.prompt_len() {
                break;
            }
            let full = Full {
                chain: row.chain_of(index),
                before: index.checked_sub(1).map(|before| row.chain_of(before)),
                tokens: &row.tokens[index * BLOCK..(index + 1) * BLOCK],
            };
            row.blocks[index] = self.pool.publish(full, row.blocks[index]);
            row.published += 1;
        }
    }

    /// Takes a running row out, with its blocks; what it has published stays cached.
    pub fn remove(&mut self, row: usize) -> RequestId {
        let mut row = self.running.remove(row);
        self.pool.release(&row.stop());
        row.id
    }

    /// Says which rule is broken, if one is.
    #[cfg(test)]
    pub fn audit(&self) -> Result<(), String> {
        let ids = |rows: &mut dyn Iterator<Item = &Row>| rows.map(|row| row.id).collect::<Vec<_>>();
        let (waiting, running) = (ids(&mut self.waiting.iter()), ids(&mut self.running.iter()));
        if !waiting.is_sorted() || !running.is_sorted() {
            return Err(format!("out of order: waiting {waiting:?}, running {running:?}"));
        }
        if self.waiting.iter().any(|row| !row.blocks.is_empty()) {
            return Err("a waiting row holds blocks".into());
        }
        self.pool.audit(self.running.iter().map(|row| &row.blocks[..]))
    }
}
