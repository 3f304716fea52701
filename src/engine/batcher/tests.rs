//! Random loads over a backend that remembers what is in its blocks: every request gets the tokens it gets alone.
//!
//! Not real logits (`tests/reproducible.rs`). The backend's logits are a hash of the sequence as it reads it back through
//! the block table, so a wrong table, a stale block or one shared too early changes a token.

use super::super::{Completion, Prompt, Sampling, StopReason};
use super::*;
use crate::rng;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

const VOCAB: usize = 40;
const END: u32 = 39;

/// One place of a block: the token, and where the piece ended in which it was computed.
type Place = Option<(u32, usize)>;

struct Fake {
    invariant: bool,
    blocks: Vec<[Place; BLOCK]>,
    /// The pass that fails, counted from 0; and the token whose row gets a NaN.
    failing: Option<usize>,
    poison: Option<u32>,
    passes: usize,
}

impl Fake {
    fn new(invariant: bool) -> Self {
        Self {
            invariant,
            blocks: Vec::new(),
            failing: None,
            poison: None,
            passes: 0,
        }
    }

    fn logits(&self, step: &Step<'_>, end: usize) -> Vec<f32> {
        let mut state = 7;
        let mut poisoned = false;
        for position in 0..end {
            let block = &self.blocks[step.blocks[position / BLOCK].0 as usize];
            let (token, cut) = block[position % BLOCK].expect("a position that was never computed");
            let cut = if self.invariant { 0 } else { cut as u64 };
            state = rng::value(state, u64::from(token), cut * 100_000 + position as u64);
            poisoned |= Some(token) == self.poison;
        }
        let mut logits: Vec<f32> = (0..VOCAB)
            .map(|id| (rng::unit(state, 1, id as u64) * 8.0) as f32)
            .collect();
        if poisoned {
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
        10
    }
    fn invariant(&self) -> bool {
        self.invariant
    }
    fn reserve(&mut self, blocks: usize) -> Result<(), BackendError> {
        self.blocks = vec![[None; BLOCK]; blocks];
        Ok(())
    }
    fn forward(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<f32>>, BackendError> {
        self.passes += 1;
        let mut owned = HashSet::new();
        for step in batch {
            step.check(VOCAB, self.context(), self.blocks.len())?;
            let used = step
                .blocks
                .iter()
                .take((step.start + step.tokens.len()).div_ceil(BLOCK));
            for block in used.skip(step.start / BLOCK) {
                assert!(owned.insert(*block), "two steps write to {block:?}");
            }
        }
        for block in batch.iter().flat_map(|step| &step.blocks[..step.start / BLOCK]) {
            assert!(
                !owned.contains(block),
                "{block:?} is read by one step and written by another"
            );
        }
        for step in batch {
            let end = step.start + step.tokens.len();
            for (position, token) in (step.start..end).zip(step.tokens) {
                let block = &mut self.blocks[step.blocks[position / BLOCK].0 as usize];
                // Whatever a block held before is gone once its first place is written.
                if position % BLOCK == 0 {
                    *block = [None; BLOCK];
                }
                // Such a backend cuts at multiples of BLOCK by itself.
                block[position % BLOCK] = Some((*token, end.min((position / BLOCK + 1) * BLOCK)));
            }
        }
        if self.failing == Some(self.passes - 1) {
            return Err(BackendError::Compute {
                op: "fake",
                reason: "gone".into(),
            });
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

struct Letters(Vec<[u8; 2]>);

impl Letters {
    fn new() -> Self {
        Self(
            (0..VOCAB as u8)
                .map(|id| [b'a' + id % 26, b'0' + id / 26])
                .collect(),
        )
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

/// A prompt: tokens of a family that share their beginnings.
fn tokens(branch: u32, shared: usize, length: usize) -> Vec<u32> {
    let token = |i: usize| match i < shared {
        true => i as u32 % 31,
        false => (i as u32 * 7 + branch * 13) % 31,
    };
    (0..length.max(1)).map(token).collect()
}

fn request(row: usize, tokens: Vec<u32>, new: usize) -> Request {
    Request {
        row: format!("row {row}"),
        call: 1,
        seed: 5,
        prompt: Prompt {
            text: String::new(),
            tokens,
        },
        sampling: Sampling {
            temperature: if row.is_multiple_of(2) { 0.0 } else { 0.9 },
            max_tokens: new,
            ..Sampling::default()
        },
    }
}

fn batcher(fake: Fake, batch: usize, chunk: usize, blocks: usize) -> Batcher {
    let limits = Limits {
        batch,
        chunk,
        kv_bytes: blocks * 10,
    };
    Batcher::new(Box::new(fake), limits).unwrap()
}

type Results = BTreeMap<RequestId, Result<Completion, String>>;

/// Steps until nothing is left; the books must be right after each step.
fn drain(batcher: &mut Batcher, results: &mut Results) {
    let letters = Letters::new();
    for _ in 0..20_000 {
        if batcher.pending() == 0 {
            let stats = batcher.stats();
            assert_eq!(stats.blocks_free + stats.blocks_idle, stats.blocks);
            return;
        }
        step(batcher, &letters, results);
    }
    panic!("no end: {:?}", batcher.stats());
}

fn step(batcher: &mut Batcher, letters: &Letters, results: &mut Results) {
    for finished in batcher.step(letters) {
        results.insert(finished.id, finished.result.map_err(|error| error.to_string()));
    }
    batcher.audit().unwrap();
}

fn alone(invariant: bool, request: &Request) -> Completion {
    let mut batcher = batcher(Fake::new(invariant), 1, 1000, 40);
    let id = batcher.submit(request.clone());
    let mut results = Results::new();
    drain(&mut batcher, &mut results);
    results.remove(&id).unwrap().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_request_gets_what_it_gets_alone(
        invariant: bool,
        rows in prop::collection::vec((0u32..3, 0usize..120, 1usize..150, 1usize..70, 0usize..12), 1..9),
        batch in 1usize..9,
        chunk in 1usize..200,
        spare in 0usize..14,
    ) {
        let requests: Vec<Request> = rows
            .iter()
            .enumerate()
            .map(|(row, (branch, shared, length, new, _))| request(row, tokens(*branch, *shared, *length), *new))
            .collect();
        let largest = rows.iter().map(|(_, _, length, new, _)| (length + new - 1).div_ceil(BLOCK)).max().unwrap();
        let mut batcher = batcher(Fake::new(invariant), batch, chunk, largest + spare);
        let (letters, mut results, mut ids) = (Letters::new(), Results::new(), Vec::new());
        for (request, row) in requests.iter().zip(&rows) {
            ids.push(batcher.submit(request.clone()));
            for _ in 0..row.4 {
                step(&mut batcher, &letters, &mut results);
            }
        }
        drain(&mut batcher, &mut results);
        for (id, request) in ids.iter().zip(&requests) {
            let found = results[id].as_ref().unwrap();
            let right = alone(invariant, request);
            prop_assert_eq!((&found.tokens, found.stop, &found.text), (&right.tokens, right.stop, &right.text));
        }
    }
}

#[test]
fn a_row_that_lost_its_blocks_loses_nothing_else() {
    let requests = [request(0, tokens(0, 0, 60), 60), request(1, tokens(1, 0, 60), 60)];
    for invariant in [true, false] {
        let mut batcher = batcher(Fake::new(invariant), 2, 64, 5);
        let ids = requests.clone().map(|request| batcher.submit(request));
        let mut results = Results::new();
        drain(&mut batcher, &mut results);
        for (id, request) in ids.iter().zip(&requests) {
            let found = results[id].as_ref().unwrap();
            assert_eq!(found.tokens, alone(invariant, request).tokens);
        }
        let stats = batcher.stats();
        assert!(stats.preemptions > 0 && stats.recomputed > 0, "{stats:?}");
    }
}

#[test]
fn a_shared_beginning_is_computed_once_and_a_retry_computes_what_changed() {
    let mut batcher = batcher(Fake::new(true), 8, 512, 60);
    for row in 0..6 {
        batcher.submit(request(row, tokens(row as u32, 3 * BLOCK, 110), 4));
    }
    let mut results = Results::new();
    drain(&mut batcher, &mut results);
    let computed = batcher.stats().prompt_computed as usize;
    assert_eq!(computed, 3 * BLOCK + 6 * (110 - 3 * BLOCK));
    let retry = batcher.submit(request(9, tokens(50, 2 * BLOCK + 5, 120), 4));
    drain(&mut batcher, &mut results);
    assert_eq!(results[&retry].as_ref().unwrap().cost.cached_tokens, 2 * BLOCK);
}

#[test]
fn a_failed_pass_ends_its_rows_and_leaves_nothing_behind() {
    let mut fake = Fake::new(true);
    fake.failing = Some(1);
    let mut batcher = batcher(fake, 4, 32, 40);
    let requests = [request(0, tokens(0, 64, 90), 5), request(1, tokens(1, 0, 40), 5)];
    let ids = requests.clone().map(|request| batcher.submit(request));
    let mut results = Results::new();
    drain(&mut batcher, &mut results);
    assert!(results[&ids[0]].as_ref().unwrap_err().contains("gone"));
    for request in &requests {
        let id = batcher.submit(request.clone());
        drain(&mut batcher, &mut results);
        let found = results[&id].as_ref().unwrap();
        assert_eq!(found.tokens, alone(true, request).tokens);
        // The first block was computed before the pass that failed.
        assert!(found.cost.cached_tokens <= BLOCK);
    }
}

#[test]
fn bad_logits_end_one_row_only() {
    let mut fake = Fake::new(true);
    fake.poison = Some(35);
    let mut batcher = batcher(fake, 4, 512, 40);
    let mut bad = tokens(0, 0, 50);
    bad[45] = 35;
    let good = request(1, tokens(1, 0, 50), 5);
    let ids = [batcher.submit(request(0, bad, 5)), batcher.submit(good.clone())];
    let mut results = Results::new();
    drain(&mut batcher, &mut results);
    let error = results[&ids[0]].as_ref().unwrap_err();
    assert_eq!(error, "non-finite logits: 1 of 40 at position 50");
    assert_eq!(
        results[&ids[1]].as_ref().unwrap().tokens,
        alone(true, &good).tokens
    );
    assert_eq!(
        batcher.stats().blocks_idle,
        1,
        "only the good row's full block is kept"
    );
}

#[test]
fn partial_texts_grow_into_the_whole_and_stop_strings_span_tokens() {
    let mut plain = request(0, tokens(2, 0, 20), 40);
    let whole = alone(true, &plain);
    assert_ne!(whole.stop, StopReason::StopString);
    // The second byte of one token and the first of the next.
    plain.sampling.stop = vec![whole.text[5..7].to_owned()];
    let cut = whole.text.find(&plain.sampling.stop[0]).unwrap();
    let mut batcher = batcher(Fake::new(true), 1, 512, 40);
    let id = batcher.submit(plain);
    let (letters, mut results) = (Letters::new(), Results::new());
    let mut before = String::new();
    while batcher.pending() > 0 {
        step(&mut batcher, &letters, &mut results);
        if let Some(text) = batcher.partial(id) {
            assert!(text.starts_with(&before));
            before = text;
        }
    }
    let found = results[&id].as_ref().unwrap();
    assert!(found.text.starts_with(&before));
    assert_eq!(
        (found.text.as_str(), found.stop),
        (&whole.text[..cut], StopReason::StopString)
    );
}

#[test]
fn what_can_never_run_is_said_at_once() {
    let mut batcher = batcher(Fake::new(true), 1, 512, 3);
    let mut results = Results::new();
    let ids = [
        batcher.submit(request(0, tokens(0, 0, 90), 8)),
        batcher.submit(request(1, tokens(0, 0, 900), 200)),
        batcher.submit(request(2, vec![77], 2)),
        batcher.submit(request(3, tokens(0, 0, 90), 7)),
    ];
    drain(&mut batcher, &mut results);
    let said = |i: usize| results[&ids[i]].as_ref().unwrap_err().clone();
    assert!(
        said(0).contains("97 positions, but the KV blocks hold 96"),
        "{}",
        said(0)
    );
    assert!(said(1).contains("the context holds 1000"), "{}", said(1));
    assert!(said(2).contains("token 77"), "{}", said(2));
    assert!(results[&ids[3]].is_ok());
}
