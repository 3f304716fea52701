//! The promise: a row's bits depend on the row alone. In the default fast arithmetic and on a real model, the same
//! prompts alone, in a batch of 32 in any order, cut anyhow, with their prefix cached or computed, on one thread or two
//! and on every instruction set this processor has, give identical logits and tokens.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use serde::Deserialize;
use veriharness::backend::cpu::{CpuBackend, Isa, Options};
use veriharness::backend::{BLOCK, Backend, BlockId, Step};
use veriharness::engine::local::{Limits, LocalEngine};
use veriharness::engine::{Engine, Prompt, Request, Sampling};
use veriharness::model::fetch::Silent;
use veriharness::model::{Model, obtain_exact};
use veriharness::rng;

static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| {
    let path = obtain_exact("qwen2.5-coder-0.5b", &mut Silent).unwrap().path;
    Arc::new(Model::open(&path).unwrap())
});

/// Token ids of the reference's prompts, the longest left out: 26 to 179 of them.
static PROMPTS: LazyLock<Vec<Vec<u32>>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct Reference {
        prompts: Vec<Ids>,
    }
    #[derive(Deserialize)]
    struct Ids {
        ids: Vec<u32>,
    }
    let text = include_str!("data/reference/qwen2.5-coder-0.5b.json");
    let reference: Reference = serde_json::from_str(text).unwrap();
    let ids = reference.prompts.into_iter().map(|prompt| prompt.ids);
    ids.filter(|ids| ids.len() < 500).collect()
});

/// A model computes with all cores, so the tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Blocks per sequence.
const ROOM: u32 = 8;

fn backend(options: Options, sequences: u32) -> CpuBackend {
    let mut backend = CpuBackend::load(&MODEL, options).unwrap();
    backend.reserve((sequences * ROOM) as usize).unwrap();
    backend
}

/// Blocks of a sequence, not in order.
fn blocks(sequence: u32) -> Vec<BlockId> {
    (0..ROOM).rev().map(|i| BlockId(sequence * ROOM + i)).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The logits behind a prompt computed in pieces that end at `cuts` and at its end.
fn logits(backend: &mut CpuBackend, sequence: u32, ids: &[u32], cuts: &[usize]) -> Vec<u32> {
    let blocks = blocks(sequence);
    let (mut start, mut last) = (0, Vec::new());
    for end in cuts
        .iter()
        .copied()
        .filter(|cut| *cut < ids.len())
        .chain([ids.len()])
    {
        let step = Step {
            tokens: &ids[start..end],
            start,
            blocks: &blocks,
            logits: 1,
        };
        last = backend.forward(&[step]).unwrap().remove(0);
        start = end;
    }
    bits(&last)
}

#[test]
fn cuts_threads_and_instructions_change_no_bit_of_the_logits() {
    let _turn = turn();
    let mut best = backend(Options::default(), 1);
    let whole: Vec<_> = PROMPTS.iter().map(|ids| logits(&mut best, 0, ids, &[])).collect();
    for cuts in [
        (21..500).step_by(7).collect::<Vec<_>>(),
        (1..16).map(|i| i * BLOCK).collect(),
        vec![1, 2, 3, 61],
        vec![100],
    ] {
        for (ids, whole) in PROMPTS.iter().zip(&whole) {
            assert_eq!(logits(&mut best, 0, ids, &cuts), *whole, "cut at {cuts:?}");
        }
    }
    drop(best);
    for isa in Isa::available() {
        for threads in [1, 2] {
            let options = Options {
                threads,
                isa,
                ..Options::default()
            };
            // The plain version takes a fifth of a second per token.
            let most = if isa.name() == "plain" { 3 } else { PROMPTS.len() };
            if isa.name() == "plain" && threads == 1 {
                continue;
            }
            let mut backend = backend(options, 1);
            for (ids, whole) in PROMPTS.iter().zip(&whole).take(most) {
                let found = logits(&mut backend, 0, ids, &[40]);
                assert_eq!(found, *whole, "{} on {threads} threads", isa.name());
            }
        }
    }
}

#[test]
fn neighbours_in_a_batch_change_no_bit_of_the_logits() {
    let _turn = turn();
    const ROWS: u32 = 32;
    let mut backend = backend(Options::default(), ROWS + 1);
    // 32 rows at once: prompts of different lengths, some whole, some only their last token, in a random order.
    let ids: Vec<&[u32]> = (0..ROWS as usize)
        .map(|row| &PROMPTS[row % PROMPTS.len()][..])
        .collect();
    let tables: Vec<_> = (0..ROWS).map(blocks).collect();
    let alone: Vec<_> = PROMPTS
        .iter()
        .map(|ids| logits(&mut backend, ROWS, ids, &[]))
        .collect();
    let mut order: Vec<usize> = (0..ROWS as usize).collect();
    order.sort_by_key(|row| rng::value(11, 0, *row as u64));
    let mut steps = Vec::new();
    for &row in &order {
        let start = if row % 3 == 0 {
            0
        } else {
            ids[row].len() - 1 - row % 5
        };
        if start > 0 {
            let head = Step {
                tokens: &ids[row][..start],
                start: 0,
                blocks: &tables[row],
                logits: 0,
            };
            backend.forward(&[head]).unwrap();
        }
        steps.push(Step {
            tokens: &ids[row][start..],
            start,
            blocks: &tables[row],
            logits: 1,
        });
    }
    let together = backend.forward(&steps).unwrap();
    for (row, found) in order.iter().zip(&together) {
        assert_eq!(bits(found), alone[row % PROMPTS.len()], "row {row}");
    }
}

/// Completes the rows `order` (row i has prompt i mod 7; odd ones are sampled); tokens by row, and cached tokens.
fn complete(engine: &mut LocalEngine, order: &[usize]) -> (BTreeMap<usize, Vec<u32>>, usize) {
    let mut rows = BTreeMap::new();
    for &row in order {
        let id = engine.submit(Request {
            row: format!("row {row}"),
            call: 1,
            seed: 7,
            prompt: Prompt {
                text: String::new(),
                tokens: PROMPTS[row % PROMPTS.len()].clone(),
            },
            sampling: Sampling {
                temperature: if row % 2 == 1 { 0.8 } else { 0.0 },
                max_tokens: 8,
                ..Sampling::default()
            },
        });
        rows.insert(id, row);
    }
    let (mut done, mut cached) = (BTreeMap::new(), 0);
    while engine.pending() > 0 {
        for finished in engine.step() {
            let completion = finished.result.unwrap();
            cached += completion.cost.cached_tokens;
            done.insert(rows[&finished.id], completion.tokens);
        }
    }
    (done, cached)
}

fn engine(threads: usize, limits: Limits) -> LocalEngine {
    let options = Options {
        threads,
        ..Options::default()
    };
    let backend = CpuBackend::load(&MODEL, options).unwrap();
    LocalEngine::new("qwen".into(), MODEL.clone(), Box::new(backend), limits).unwrap()
}

#[test]
fn tokens_depend_on_nothing_but_the_row() {
    let _turn = turn();
    let rows: Vec<usize> = (0..32).collect();
    let one = Limits {
        batch: 1,
        ..Limits::default()
    };
    // Alone: one after the other, and no block survives to the next row, for the pool holds one row only.
    let block = CpuBackend::load(&MODEL, Options::default())
        .unwrap()
        .block_bytes();
    let mut alone = engine(
        0,
        Limits {
            kv_bytes: block * (179usize + 8).div_ceil(BLOCK),
            ..one
        },
    );
    let (expected, _) = complete(&mut alone, &rows);
    let mut shuffled = rows.clone();
    shuffled.sort_by_key(|row| rng::value(3, 1, *row as u64));
    for (threads, chunk) in [(0, 512), (1, 96)] {
        let limits = Limits {
            batch: 32,
            chunk,
            ..Limits::default()
        };
        let mut wide = engine(threads, limits);
        let (found, _) = complete(&mut wide, &shuffled);
        assert_eq!(found, expected, "in a batch of 32, chunk {chunk}");
        let (again, cached) = complete(&mut wide, &rows);
        assert_eq!(again, expected, "from the prefix cache");
        assert!(cached > 32 * BLOCK, "{cached} tokens were cached");
    }
    // Too few blocks for all: rows are put back and computed again.
    let mut narrow = engine(
        0,
        Limits {
            batch: 32,
            kv_bytes: block * 14,
            ..Limits::default()
        },
    );
    let (found, _) = complete(&mut narrow, &shuffled);
    assert_eq!(found, expected, "with preemption");
    assert!(narrow.stats().preemptions > 0, "{:?}", narrow.stats());
}
