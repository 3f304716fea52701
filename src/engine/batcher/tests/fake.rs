//! A backend that remembers what is in its blocks, a vocabulary of letters, and a load that watches every step.
//!
//! Not a model: its logits are a hash of the sequence as it reads it back through the block table. As with real keys
//! and values, what a place holds depends on all places before it; so a wrong table, a stale block, one shared too
//! early or under another beginning changes a token. Most often the last token decides the next, so that guesses
//! come true.

use super::super::*;
use crate::backend::BlockId;
use crate::engine::Schema;
use crate::engine::grammar::Words;
use crate::rng;
use std::collections::{BTreeMap, BTreeSet};

pub const VOCAB: usize = 40;
const END: u32 = 39;
const BLOCK_BYTES: usize = 10;

/// A backend whose rules of use are asserted.
pub struct Fake {
    /// When false, a place also depends on the cut into pieces in which it was computed.
    pub invariant: bool,
    /// The pass that fails, counted from 0, and leaves rubbish in the blocks.
    pub failing: Option<usize>,
    /// A sequence with this token has a NaN in its logits.
    pub poison: Option<u32>,
    /// Per block the places filled: the token, and the hash of the sequence up to it.
    pub blocks: Vec<Vec<(u32, u64)>>,
    pub passes: usize,
}

impl Fake {
    pub fn new(invariant: bool) -> Self {
        Self {
            invariant,
            failing: None,
            poison: None,
            blocks: Vec::new(),
            passes: 0,
        }
    }

    fn place(&self, step: &Step<'_>, position: usize) -> (u32, u64) {
        self.blocks[step.blocks[position / BLOCK].0 as usize][position % BLOCK]
    }

    /// What `Backend::forward` may rely on.
    fn check(&self, batch: &[Step<'_>]) -> Result<(), BackendError> {
        let mut written = BTreeSet::new();
        for step in batch {
            step.check(VOCAB, self.context(), self.blocks.len())?;
            let (full, rest) = (step.start / BLOCK, step.start % BLOCK);
            for block in &step.blocks[full..] {
                assert!(written.insert(*block), "{block:?} is written to twice");
            }
            let stored = |index: usize| self.blocks[step.blocks[index].0 as usize].len();
            assert!((0..full).all(|index| stored(index) == BLOCK), "{step:?}");
            // Behind the computed places may be wrong guesses.
            assert!(rest == 0 || stored(full) >= rest, "{step:?}");
        }
        for block in batch.iter().flat_map(|step| &step.blocks[..step.start / BLOCK]) {
            assert!(!written.contains(block), "{block:?} is both read and written");
        }
        Ok(())
    }

    fn write(&mut self, step: &Step<'_>) {
        let end = step.start + step.tokens.len();
        for (position, &token) in (step.start..end).zip(step.tokens) {
            let before = match position {
                0 => 7,
                _ => self.place(step, position - 1).1,
            };
            // A backend that is not invariant cuts at multiples of BLOCK by itself.
            let cut = match self.invariant {
                true => 0,
                false => end.min((position / BLOCK + 1) * BLOCK),
            };
            let hash = rng::value(before, u64::from(token), (cut * 10_000 + position) as u64);
            let block = &mut self.blocks[step.blocks[position / BLOCK].0 as usize];
            // What a block held before is gone once its first place is written.
            block.truncate(position % BLOCK);
            block.push((token, hash));
        }
    }

    fn logits(&self, step: &Step<'_>, end: usize) -> Vec<f32> {
        let places = || (0..end).map(|position| self.place(step, position));
        let state = places().fold(7, |state, (_, hash)| rng::value(state, hash, 0));
        let mut logits: Vec<f32> = (0..VOCAB)
            .map(|id| (rng::unit(state, 1, id as u64) * 8.0) as f32)
            .collect();
        if !state.is_multiple_of(8) {
            let last = self.place(step, end - 1).0;
            logits[((last * 7 + 1) % END) as usize] += 12.0;
        }
        if places().any(|(token, _)| Some(token) == self.poison) {
            logits[3] = f32::NAN;
        }
        logits
    }
}

impl Backend for Fake {
    fn name(&self) -> &str {
        "fake"
    }
    fn vocab(&self) -> usize {
        VOCAB
    }
    fn context(&self) -> usize {
        1000
    }
    fn block_bytes(&self) -> usize {
        BLOCK_BYTES
    }
    fn invariant(&self) -> bool {
        self.invariant
    }
    fn reserve(&mut self, blocks: usize) -> Result<(), BackendError> {
        self.blocks = vec![Vec::new(); blocks];
        Ok(())
    }
    fn copy(&mut self, from: BlockId, to: BlockId) {
        assert!(self.invariant);
        self.blocks[to.0 as usize] = self.blocks[from.0 as usize].clone();
    }
    fn forward(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<f32>>, BackendError> {
        self.check(batch)?;
        let failing = self.failing == Some(self.passes);
        self.passes += 1;
        for step in batch {
            self.write(step);
            let end = step.start + step.tokens.len();
            for position in (step.start..end).filter(|_| failing) {
                let block = &mut self.blocks[step.blocks[position / BLOCK].0 as usize];
                block[position % BLOCK].1 ^= 1;
            }
        }
        if failing {
            return Err(compute_error("gone".into()));
        }
        let row = |step: &Step<'_>| {
            let end = step.start + step.tokens.len();
            (end - step.logits + 1..=end)
                .flat_map(|end| self.logits(step, end))
                .collect()
        };
        Ok(batch.iter().map(row).collect())
    }
}

/// The bytes of each token.
pub struct Letters(Vec<Vec<u8>>);

impl Letters {
    fn new() -> Self {
        let bytes = |id| vec![b'a' + id % 26, b'0' + id / 26];
        Self((0..VOCAB as u8).map(bytes).collect())
    }

    /// Tokens that JSON can be written with, some of them in more than one way.
    fn json() -> Self {
        let marks = [
            "{", "}", "\"", ": ", ", ", "k", "{\"k", "[", "]", "\": ", "\"]}", "null",
        ];
        let mut words: Vec<Vec<u8>> = marks.iter().map(|mark| mark.as_bytes().to_vec()).collect();
        words.extend((0..(VOCAB - words.len()) as u8).map(|i| vec![b'a' + i % 26; 1 + i as usize / 20]));
        words[END as usize].clear();
        Self(words)
    }

    fn grammar(&self, schema: &Schema) -> Grammar {
        let words = Words::new(self.0.clone(), &[END], |_| Vec::new()).unwrap();
        words.compile(schema).unwrap()
    }
}

impl Vocabulary for Letters {
    fn ends(&self, id: u32) -> bool {
        id == END
    }
    fn bytes(&self, id: u32) -> &[u8] {
        &self.0[id as usize]
    }
}

/// A batcher under load, and what came of it.
pub struct Load {
    pub batcher: Batcher,
    pub results: BTreeMap<RequestId, Result<Completion, String>>,
    letters: Letters,
    /// The partial text last seen of each request that is not through.
    shown: BTreeMap<RequestId, String>,
    /// How many steps there may still be.
    left: usize,
}

impl Load {
    pub fn new(fake: Fake, batch: usize, chunk: usize, blocks: usize) -> Self {
        Self::guessing(fake, batch, chunk, blocks, Limits::default().draft)
    }

    pub fn guessing(fake: Fake, batch: usize, chunk: usize, blocks: usize, draft: usize) -> Self {
        let limits = Limits {
            batch,
            chunk,
            kv_bytes: blocks * BLOCK_BYTES,
            draft,
        };
        Self {
            batcher: Batcher::new(Box::new(fake), limits).unwrap(),
            results: BTreeMap::new(),
            letters: Letters::new(),
            shown: BTreeMap::new(),
            left: 0,
        }
    }

    pub fn submit(&mut self, request: &Request) -> RequestId {
        let schema = request.sampling.schema.as_ref();
        if schema.is_some() {
            self.letters = Letters::json();
        }
        let grammar = schema.map(|schema| self.letters.grammar(schema));
        let id = self
            .batcher
            .submit(request.clone(), grammar.as_ref(), &self.letters);
        self.shown.insert(id, String::new());
        // The oldest running row gets on with each step, and may be computed twice: before and after it was oldest.
        let prefill = request.prompt.tokens.len() / BLOCK + 2;
        self.left += 2 * (prefill + 2 * request.sampling.max_tokens);
        id
    }

    /// One step, after which the books are right, the oldest running row still runs, and no text has shrunk.
    pub fn step(&mut self) {
        let running = |batcher: &Batcher| -> Vec<_> {
            let rows = batcher.scheduler.running().iter();
            rows.map(|row| (row.id, row.computed)).collect()
        };
        let oldest = running(&self.batcher).first().copied();
        for Finished { id, result } in self.batcher.step(&self.letters) {
            let shown = self.shown.remove(&id).unwrap();
            if let Ok(completion) = &result {
                assert!(completion.text.starts_with(&shown), "{shown:?} {completion:?}");
            }
            self.results.insert(id, result.map_err(|error| error.to_string()));
        }
        self.batcher.audit().unwrap();
        if let Some((id, computed)) = oldest.filter(|(id, _)| !self.results.contains_key(id)) {
            let kept = |row: &(RequestId, usize)| row.0 == id && row.1 >= computed;
            assert!(
                running(&self.batcher).iter().any(kept),
                "the oldest row was stopped"
            );
        }
        for (id, shown) in &mut self.shown {
            let text = self.batcher.partial(*id).unwrap_or_default();
            assert!(text.starts_with(&*shown), "{shown:?} {text:?}");
            *shown = text;
        }
    }

    /// Steps until nothing is left; nobody then holds a block.
    pub fn drain(&mut self) {
        while self.batcher.pending() > 0 {
            assert!(self.left > 0, "no end: {:?}", self.batcher.stats());
            self.left -= 1;
            self.step();
        }
        let stats = self.batcher.stats();
        assert_eq!(stats.blocks_free + stats.blocks_idle, stats.blocks);
    }

    pub fn finish(&mut self, request: &Request) -> Result<Completion, String> {
        let id = self.submit(request);
        self.drain();
        self.results[&id].clone()
    }
}

/// The completion of a request that has a large pool for itself, without guesses.
pub fn alone(invariant: bool, request: &Request) -> Completion {
    Load::guessing(Fake::new(invariant), 1, 1000, 40, 0)
        .finish(request)
        .unwrap()
}
