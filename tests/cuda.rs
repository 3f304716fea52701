//! The CUDA backend on the emulator: the tiny checkpoints give the CPU backend's tokens, and a row's bits depend on the row
//! alone: whatever shares the batch, wherever its prompt is cut, from whichever kernels.

#![cfg(feature = "emulator")]
#![allow(clippy::unwrap_used, clippy::print_stdout)] // in a test, also outside its functions

use std::path::{Path, PathBuf};

use serde::Deserialize;
use veriharness::backend::cpu::{Arithmetic, CpuBackend, Options};
use veriharness::backend::cuda::CudaBackend;
use veriharness::backend::cuda::emulator::{Emulator, Order};
use veriharness::backend::{BLOCK, Backend, BackendError, BlockId, Largest, Step};
use veriharness::model::Model;

const AWQ: [&str; 3] = ["qwen2-tied-awq", "qwen2-untied-awq", "llama3-awq"];
const FP16: [&str; 3] = ["qwen2-tied-fp16", "qwen2-untied-fp16", "llama3-fp16"];

/// Largest difference of a logit from the CPU backend's in float32: activations are fp16 here.
const BOUND: f32 = 0.02;

/// Blocks per sequence of a test.
const ROOM: u32 = 14;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("models/tiny")
        .join(name)
}

fn open(name: &str) -> Model {
    Model::open(&folder(name)).unwrap()
}

fn cuda(model: &Model, order: Order, multiprocessors: usize) -> CudaBackend {
    let device = Emulator::new(order, multiprocessors);
    let mut backend = CudaBackend::load(model.network(), Box::new(device)).unwrap();
    backend.reserve(9 * ROOM as usize).unwrap();
    backend
}

fn cpu(model: &Model) -> CpuBackend {
    let options = Options {
        arithmetic: Arithmetic::Exact,
        ..Options::default()
    };
    let mut backend = CpuBackend::load(model, options).unwrap();
    backend.reserve(ROOM as usize).unwrap();
    backend
}

/// Blocks of a sequence, not in order.
fn blocks(sequence: u32) -> Vec<BlockId> {
    (0..ROOM).rev().map(|i| BlockId(sequence * ROOM + i)).collect()
}

fn largest(logits: &[f32]) -> u32 {
    (0..logits.len())
        .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
        .unwrap() as u32
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Logits of the last position of `tokens`, which start at `start`.
fn last(backend: &mut dyn Backend, sequence: u32, tokens: &[u32], start: usize) -> Vec<f32> {
    let blocks = blocks(sequence);
    let step = Step {
        tokens,
        start,
        blocks: &blocks,
        logits: 1,
    };
    backend.forward(&[step]).unwrap().remove(0)
}

#[derive(Deserialize)]
struct Reference {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    ids: Vec<u32>,
    greedy: Vec<u32>,
    greedy_gap: Vec<f32>,
}

fn prompts(name: &str) -> Vec<Prompt> {
    let text = std::fs::read_to_string(folder(name).join("reference.json")).unwrap();
    let reference: Reference = serde_json::from_str(&text).unwrap();
    reference.prompts
}

#[test]
fn greedy_tokens_of_four_bits_are_the_cpu_backend_s() {
    greedy_tokens_agree(AWQ);
}

#[test]
fn greedy_tokens_of_halves_are_the_cpu_backend_s() {
    greedy_tokens_agree(FP16);
}

fn greedy_tokens_agree(names: [&str; 3]) {
    for name in names {
        let model = open(name);
        let (mut cuda, mut cpu) = (cuda(&model, Order::Ascending, 2), cpu(&model));
        let (mut worst, mut compared) = (0.0f32, 0);
        // The longest would take the emulator a minute.
        for prompt in prompts(name).iter().filter(|prompt| prompt.ids.len() < 200) {
            let mut tokens: &[u32] = &prompt.ids;
            let mut start = 0;
            for index in 0..6 {
                let found = last(&mut cuda, 0, tokens, start);
                let expected = last(&mut cpu, 0, tokens, start);
                let differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                worst = differences.fold(worst, f32::max);
                assert!(worst <= BOUND, "{name}: step {index}: {worst}");
                // Along the reference's own tokens, so that one near tie does not end the comparison.
                if prompt.greedy_gap[index] > 2.0 * BOUND {
                    assert_eq!(largest(&found), prompt.greedy[index], "{name}: step {index}");
                    compared += 1;
                }
                assert_eq!(largest(&found), largest(&expected), "{name}: step {index}");
                start += tokens.len();
                tokens = &prompt.greedy[index..=index];
            }
        }
        println!("{name}: largest difference of a logit {worst:.5}; {compared} greedy tokens compared");
        assert!(compared > 8, "{name}: {compared}");
    }
}

/// The logits behind every one of `ids`, computed in pieces that end at `cuts` and at its end.
fn all(backend: &mut dyn Backend, sequence: u32, ids: &[u32], cuts: &[usize]) -> Vec<u32> {
    let blocks = blocks(sequence);
    let (mut start, mut found) = (0, Vec::new());
    let inside = cuts.iter().copied().filter(|cut| *cut < ids.len());
    for end in inside.chain([ids.len()]) {
        let step = Step {
            tokens: &ids[start..end],
            start,
            blocks: &blocks,
            logits: end - start,
        };
        found.extend(bits(&backend.forward(&[step]).unwrap()[0]));
        start = end;
    }
    found
}

/// Seeded ids of a sequence.
fn ids(seed: u32, count: usize) -> Vec<u32> {
    (0..count as u32)
        .map(|i| (i * (37 + seed) + 5 * seed + i * i % 11) % 470)
        .collect()
}

#[test]
fn cuts_and_orders_and_kernels_change_no_bit() {
    for name in ["qwen2-tied-awq", "llama3-awq", "qwen2-untied-fp16"] {
        let model = open(name);
        // Long enough for two parts of attention and for every size of linear layer.
        let ids = ids(1, 165);
        let mut backend = cuda(&model, Order::Ascending, 1);
        let whole = all(&mut backend, 0, &ids, &[]);
        for cuts in [
            vec![1, 2, 3, 4, 100],
            vec![32, 64, 96, 128, 160],
            vec![9, 25, 57, 120],
        ] {
            assert!(
                all(&mut backend, 1, &ids, &cuts) == whole,
                "{name}: cut at {cuts:?}"
            );
        }
        // Token by token at the end, as a reply is decoded, by a device so wide that attention is always split.
        let cuts: Vec<usize> = [120].into_iter().chain(150..165).collect();
        for order in [Order::Descending, Order::Shuffled(7)] {
            let mut other = cuda(&model, order, 1000);
            assert!(all(&mut other, 0, &ids, &cuts) == whole, "{name}: {order:?}");
        }
    }
}

#[test]
fn neighbours_and_shared_blocks_change_no_bit() {
    for name in AWQ {
        let model = open(name);
        let mut backend = cuda(&model, Order::Shuffled(3), 4);
        // Seven sequences: some whole, some only their last tokens, as guesses are verified; one begins with the blocks
        // that another has filled.
        let starts = [0, 0, 40, 33, 64, 17, 0];
        let all_ids: Vec<Vec<u32>> = (0..7)
            .map(|i| ids(if i == 4 { 0 } else { i }, 30 + 11 * i as usize))
            .collect();
        let mut tables: Vec<_> = (0..7).map(blocks).collect();
        let alone: Vec<Vec<u32>> = all_ids.iter().map(|ids| all(&mut backend, 8, ids, &[])).collect();
        for (row, start) in starts
            .iter()
            .enumerate()
            .filter(|(row, start)| **start > 0 && *row != 4)
        {
            last(&mut backend, row as u32, &all_ids[row][..*start], 0);
        }
        last(&mut backend, 7, &all_ids[4][..64], 0);
        tables[4][..2].copy_from_slice(&blocks(7)[..2]);
        let order = [3, 0, 6, 2, 5, 4, 1];
        let steps: Vec<Step<'_>> = order
            .iter()
            .map(|&row| Step {
                tokens: &all_ids[row][starts[row]..],
                start: starts[row],
                blocks: &tables[row],
                logits: (all_ids[row].len() - starts[row]).min(5),
            })
            .collect();
        for (&row, found) in order.iter().zip(backend.forward(&steps).unwrap()) {
            let found = bits(&found);
            assert!(
                found[..] == alone[row][alone[row].len() - found.len()..],
                "{name}: row {row}"
            );
        }
        // The device's own choice of the largest is the logits'.
        let largest = backend.largest(&steps).unwrap();
        for (&row, largest) in order.iter().zip(largest) {
            let width = backend.vocab();
            let rows = alone[row].chunks_exact(width).rev();
            for (logits, largest) in rows.zip(largest.iter().rev()) {
                let logits: Vec<f32> = logits.iter().map(|x| f32::from_bits(*x)).collect();
                assert_eq!(*largest, Largest::among(&logits), "{name}: row {row}");
            }
        }
        // A copied block is the block.
        let mut copied = blocks(0);
        copied[0] = BlockId(7 * ROOM + 9);
        backend.copy(blocks(0)[0], copied[0]);
        let step = |blocks| Step {
            tokens: &[7, 8],
            start: 30,
            blocks,
            logits: 2,
        };
        let (original, copied) = (blocks(0), copied);
        let found = backend.forward(&[step(&copied)]).unwrap();
        assert!(
            found == backend.forward(&[step(&original)]).unwrap(),
            "{name}: copy"
        );
    }
}

#[test]
fn steps_outside_their_limits_are_refused_and_change_nothing() {
    let model = open("qwen2-tied-awq");
    let mut backend = cuda(&model, Order::Ascending, 1);
    let expected = bits(&last(&mut backend, 0, &[1, 2, 3], 0));
    let blocks = blocks(0);
    let step = |tokens, start| Step {
        tokens,
        start,
        blocks: &blocks,
        logits: 1,
    };
    for bad in [step(&[], 0), step(&[512], 0), step(&[1], 100 * BLOCK)] {
        let error = backend.forward(&[bad]).unwrap_err();
        assert!(!matches!(error, BackendError::Compute { .. }), "{error}");
    }
    assert_eq!(bits(&last(&mut backend, 0, &[1, 2, 3], 0)), expected);
}

#[test]
fn weights_that_no_kernel_takes_are_refused_by_name() {
    let file =
        veriharness::model::obtain_exact("smollm2-135m", &mut veriharness::model::fetch::Silent).unwrap();
    let device = Emulator::new(Order::Ascending, 1);
    let refused = CudaBackend::load(Model::open(&file.path).unwrap().network(), Box::new(device));
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("blk.0.attn_q") && said.contains("the cpu backend takes it"),
        "{said}"
    );
}
