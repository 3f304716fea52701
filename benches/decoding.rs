//! What decoding is made of: linear layers in the models' shapes, attention, sampling, and whole passes of a model.
//!
//! `cargo bench --bench decoding`. Each group holds the plain or the smaller case beside the others, so that a run
//! gives ratios; the machine's own limits are printed by `veriharness bench`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use veriharness::backend::cpu::single::{AttentionCase, LinearCase};
use veriharness::backend::cpu::{CpuBackend, Isa, Options};
use veriharness::backend::{BLOCK, Backend, BlockId, Step};
use veriharness::engine::{Sampling, sampler};
use veriharness::model::weights::BlockType;
use veriharness::model::{self, Model};
use veriharness::quantize;

/// Query heads, KV heads and their width in Qwen2.5-Coder-1.5B.
const HEADS: (usize, usize, usize) = (12, 2, 128);

fn linear(c: &mut Criterion) {
    // The widest layers of SmolLM2-135M, Qwen2.5-Coder-0.5B and -1.5B, in their formats.
    let shapes = [
        ("q4_1 1536x576", BlockType::Q4_1, 1536, 576),
        ("q5_0 4864x896", BlockType::Q5_0, 4864, 896),
        ("q4_k 8960x1536", BlockType::Q4K, 8960, 1536),
        ("q6_k 1536x8960", BlockType::Q6K, 1536, 8960),
    ];
    for (name, block, outputs, inputs) in shapes {
        let mut group = c.benchmark_group(format!("linear/{name}"));
        group.sample_size(20);
        for isa in Isa::available() {
            let rows: &[usize] = match isa == Isa::best() {
                true => &[1, 4, 16, 64, 512],
                false => &[4],
            };
            for &rows in rows {
                let mut case = LinearCase::new(block, (rows, outputs, inputs), 0, isa).expect("a case");
                group.throughput(Throughput::Elements((rows * outputs * inputs) as u64));
                group.bench_function(BenchmarkId::new(isa.name(), rows), |b| b.iter(|| case.run()));
            }
        }
    }
}

fn attention(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention/12 heads of 128, 2 KV heads");
    group.sample_size(20);
    for isa in Isa::available() {
        for (new, start) in [(1, 512), (64, 512), (512, 0)] {
            let mut case = AttentionCase::new((new, start), HEADS, 0, isa).expect("a case");
            let name = format!("{} {new} behind {start}", isa.name());
            group.bench_function(name, |b| b.iter(|| case.run()));
        }
    }
}

fn sampling(c: &mut Criterion) {
    let logits: Vec<f32> = (0..151_936u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6)
        .collect();
    let tokens: Vec<u32> = (0..500).collect();
    let mut group = c.benchmark_group("sampling/152k logits");
    let warm = Sampling {
        temperature: 0.8,
        ..Sampling::default()
    };
    let nucleus = Sampling {
        top_p: 0.95,
        ..warm.clone()
    };
    let penalty = Sampling {
        repetition_penalty: 1.1,
        ..Sampling::default()
    };
    for (name, sampling) in [
        ("greedy", Sampling::default()),
        ("temperature", warm),
        ("top-p", nucleus),
        ("penalty", penalty),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| sampler::sample(black_box(&logits), &sampling, &tokens, 1, 2));
        });
    }
}

fn passes(c: &mut Criterion) {
    // The model is fetched by the program itself: `veriharness model pull qwen2.5-coder-0.5b`.
    let Ok(found) = model::resolve("qwen2.5-coder-0.5b") else {
        return;
    };
    let gguf = Model::open(&found.path).expect("a model");
    pass(c, "qwen2.5-coder-0.5b", &gguf);
    // Rounding alone: how well the numbers were chosen does not change the time.
    let folder = tempfile::tempdir().expect("a folder");
    quantize::write(&gguf, folder.path(), 128, None, &mut |_| ()).expect("an AWQ folder");
    pass(
        c,
        "qwen2.5-coder-0.5b as AWQ",
        &Model::open(folder.path()).expect("a model"),
    );
}

fn pass(c: &mut Criterion, name: &str, model: &Model) {
    let mut backend = CpuBackend::load(model, Options::default()).expect("a backend");
    backend.reserve(16 * 8).expect("memory");
    let mut group = c.benchmark_group(format!("pass/{name}"));
    group.sample_size(10);
    let blocks: Vec<BlockId> = (0..128).map(BlockId).collect();
    let prompt: Vec<u32> = (0..128).map(|i| 1000 + 7 * i).collect();
    group.throughput(Throughput::Elements(128));
    group.bench_function("a prompt of 128", |b| {
        b.iter(|| {
            let step = Step {
                tokens: &prompt,
                start: 0,
                blocks: &blocks[..8],
                logits: 1,
            };
            backend.forward(&[step]).expect("logits")
        });
    });
    for batch in [1, 4, 16] {
        let tables: Vec<&[BlockId]> = blocks.chunks(8).take(batch).collect();
        for table in &tables {
            let step = Step {
                tokens: &prompt[..BLOCK],
                start: 0,
                blocks: table,
                logits: 0,
            };
            backend.forward(&[step]).expect("a prompt");
        }
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(format!("a token of {batch}"), |b| {
            b.iter(|| {
                let step = |blocks| Step {
                    tokens: &prompt[..1],
                    start: BLOCK,
                    blocks,
                    logits: 1,
                };
                let steps: Vec<Step<'_>> = tables.iter().map(|table| step(*table)).collect();
                backend.forward(&steps).expect("logits")
            });
        });
    }
}

criterion_group!(decoding, linear, attention, sampling, passes);
criterion_main!(decoding);
