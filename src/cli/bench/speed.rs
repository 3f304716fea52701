//! Prompt and decode throughput of a backend: `ppN`, a prompt of N tokens; `tgN xB`, N new tokens of B sequences.
//!
//! Not scheduling or sampling: steps go straight to the backend, tokens are drawn by seed or are the likeliest.

use super::super::machine;
use super::super::model::Bar;
use super::BenchArgs;
use super::table::Figures;
use crate::backend::{BLOCK, Backend, BlockId, Step};
use crate::model::{self, Model, manifest};
use crate::rng;
use anyhow::ensure;
use serde_json::json;
use std::time::Instant;

/// Prompt tokens before the first measured one of a decode test.
const BEFORE: usize = 32;
/// Most prompt tokens of a forward pass, as in the engine.
const CHUNK: usize = 512;

/// One line of the table.
#[derive(Clone, Copy, Debug)]
enum Test {
    Prompt(usize),
    Decode { new: usize, batch: usize },
}

impl Test {
    fn name(self) -> String {
        match self {
            Self::Prompt(n) => format!("pp{n}"),
            Self::Decode { new, batch: 1 } => format!("tg{new}"),
            Self::Decode { new, batch } => format!("tg{new} x{batch}"),
        }
    }

    /// Positions per sequence, and sequences.
    fn size(self) -> (usize, usize) {
        match self {
            Self::Prompt(n) => (n, 1),
            Self::Decode { new, batch } => (BEFORE + new, batch),
        }
    }
}

/// Measures all models.
pub(super) fn run(args: &BenchArgs) -> anyhow::Result<u8> {
    ensure!(
        args.repeat >= 1,
        "--repeat: expected at least 1, found {}",
        args.repeat
    );
    let sizes = [("--pp", &args.pp), ("--tg", &args.tg), ("--batch", &args.batch)];
    for (flag, sizes) in sizes {
        let wrong = sizes.iter().find(|n| !(1..=1 << 16).contains(*n));
        ensure!(
            wrong.is_none(),
            "{flag}: expected 1 to 65536, found {}",
            wrong.unwrap_or(&0)
        );
    }
    let models = match args.model.is_empty() {
        true => vec![manifest::default()?.name],
        false => args.model.clone(),
    };
    let prompts = args.pp.iter().map(|&n| Test::Prompt(n));
    let decodes = args
        .tg
        .iter()
        .flat_map(|&new| args.batch.iter().map(move |&batch| Test::Decode { new, batch }));
    let tests: Vec<Test> = prompts.chain(decodes).collect();
    let mut figures = Figures {
        names: vec!["model", "MB", "M params", "backend", "test", "t/s", "± sd"],
        rows: Vec::new(),
    };
    super::super::complain(&format!("{}; {}", machine::cpu_name(), args.backend.describe()));
    for spec in &models {
        let located = model::obtain(spec, &mut Bar::default())?;
        let model = Model::open(&located.path)?;
        let bytes: u64 = model.weights.entries().map(|(_, entry)| entry.bytes).sum();
        let numbers: usize = model
            .weights
            .entries()
            .map(|(_, entry)| entry.shape.iter().product::<usize>())
            .sum();
        let mut backend = args.backend.load(&model)?;
        for test in &tests {
            let rates = match test.size().0 <= backend.context() {
                true => measure(&mut *backend, *test, args.repeat)?,
                false => Vec::new(),
            };
            let (mean, sd) = spread(&rates);
            figures.rows.push(vec![
                json!(located.name),
                json!(bytes / 1_000_000),
                json!(numbers / 1_000_000),
                json!(backend.name()),
                json!(test.name()),
                mean.map_or(json!("context too small"), |mean| json!(mean)),
                json!(sd),
            ]);
        }
    }
    figures.print(args.format)?;
    Ok(super::super::DONE)
}

/// Tokens per second, `repeat` times.
fn measure(backend: &mut dyn Backend, test: Test, repeat: usize) -> anyhow::Result<Vec<f64>> {
    let (positions, batch) = test.size();
    let per_sequence = positions.div_ceil(BLOCK);
    backend.reserve(per_sequence * batch)?;
    let tables: Vec<Vec<BlockId>> = (0..batch)
        .map(|s| {
            (0..per_sequence)
                .map(|i| BlockId((s * per_sequence + i) as u32))
                .collect()
        })
        .collect();
    let vocab = backend.vocab() as u64;
    let prompt = |sequence: usize, length: usize| -> Vec<u32> {
        let draw = |i| rng::below(1, sequence as u64, i as u64, vocab) as u32;
        (0..length).map(draw).collect()
    };
    let mut rates = Vec::with_capacity(repeat);
    for round in 0..=repeat {
        let (tokens, seconds) = match test {
            Test::Prompt(length) => {
                let tokens = prompt(0, length);
                let started = Instant::now();
                prefill(backend, &tokens, &tables[0])?;
                (length, started.elapsed().as_secs_f64())
            }
            Test::Decode { new, batch } => {
                let mut last = Vec::new();
                for (sequence, table) in tables.iter().enumerate() {
                    last.push(prefill(backend, &prompt(sequence, BEFORE), table)?);
                }
                let started = Instant::now();
                for index in 0..new {
                    let steps: Vec<Step<'_>> = last
                        .iter()
                        .zip(&tables)
                        .map(|(token, blocks)| Step {
                            tokens: std::slice::from_ref(token),
                            start: BEFORE + index,
                            blocks,
                            logits: 1,
                        })
                        .collect();
                    last = backend
                        .forward(&steps)?
                        .iter()
                        .map(|logits| likeliest(logits))
                        .collect();
                }
                (new * batch, started.elapsed().as_secs_f64())
            }
        };
        // The first one warms caches and clocks.
        if round > 0 {
            rates.push(tokens as f64 / seconds);
        }
    }
    Ok(rates)
}

/// Computes a prompt in the engine's pieces; the likeliest next token.
fn prefill(backend: &mut dyn Backend, tokens: &[u32], blocks: &[BlockId]) -> anyhow::Result<u32> {
    let mut next = 0;
    for start in (0..tokens.len()).step_by(CHUNK) {
        let end = tokens.len().min(start + CHUNK);
        let step = Step {
            tokens: &tokens[start..end],
            start,
            blocks,
            logits: usize::from(end == tokens.len()),
        };
        if let Some(logits) = backend
            .forward(&[step])?
            .first()
            .filter(|logits| !logits.is_empty())
        {
            next = likeliest(logits);
        }
    }
    Ok(next)
}

fn likeliest(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(id, _)| id as u32)
}

/// Mean, and standard deviation of the sample from two on.
fn spread(rates: &[f64]) -> (Option<f64>, Option<f64>) {
    let count = rates.len() as f64;
    if rates.is_empty() {
        return (None, None);
    }
    let mean = rates.iter().sum::<f64>() / count;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    (
        Some(mean),
        (rates.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
    )
}
