//! Prompt and decode throughput of a backend: `ppN`, a prompt of N tokens; `tgN xB`, N new tokens of B sequences.
//!
//! Not scheduling or sampling: steps go straight to the backend, tokens are drawn by seed or are the likeliest.

use super::BenchArgs;
use super::table::{Cell, Figures, number, three_digits, words};
use crate::backend::{BLOCK, Backend, BlockId, Bounds, Step};
use crate::cli::complain;
use crate::cli::model::Bar;
use crate::model::weights::{Weights, synthetic};
use crate::model::{self, Model, Network, manifest};
use crate::rng;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Prompt tokens before the first measured one of a decode test.
const BEFORE: usize = 32;
/// Largest number that a test may have.
const MOST: usize = 1 << 16;
/// Seed of the prompts.
const SEED: u64 = 1;

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

    /// Tokens per second that no kernel can pass.
    fn limit(self, bounds: &Bounds) -> f64 {
        match self {
            Self::Prompt(n) => n as f64 / bounds.floor(n, 1),
            Self::Decode { batch, .. } => batch as f64 / bounds.floor(batch, batch),
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
    check("--repeat", &[args.repeat], 2)?;
    for (flag, sizes) in [("--pp", &args.pp), ("--tg", &args.tg), ("--batch", &args.batch)] {
        check(flag, sizes, 1)?;
    }
    let models = match (args.model.is_empty(), args.synthetic.is_empty()) {
        (true, true) => vec![manifest::default()?.name],
        _ => args.model.clone(),
    };
    let models = models.iter().map(|spec| stored(spec, args));
    let noise = args.synthetic.iter().map(|name| noise(name, args));
    let prompts = args.pp.iter().map(|&n| Test::Prompt(n));
    let decodes = args
        .tg
        .iter()
        .flat_map(|&new| args.batch.iter().map(move |&batch| Test::Decode { new, batch }));
    let tests: Vec<Test> = prompts.chain(decodes).collect();
    let mut figures = Figures {
        columns: vec![
            words("model", "model"),
            number("bytes", "size"),
            number("parameters", "params"),
            words("backend", "backend"),
            number("threads", "thr"),
            words("test", "test"),
            number("tokens_per_second", "t/s"),
            number("deviation", ""),
            number("limit_percent", "limit"),
            words("note", ""),
        ],
        rows: Vec::new(),
    };
    for subject in models.chain(noise) {
        let Subject {
            name,
            bytes,
            parameters,
            mut backend,
        } = subject?;
        let before = backend.bounds();
        let mut measured = Vec::with_capacity(tests.len());
        for test in &tests {
            let (needed, held) = (test.size().0, backend.context());
            let (rates, note) = match needed <= held {
                true => (measure(&mut *backend, *test, args.repeat)?, Value::Null),
                false => (
                    Vec::new(),
                    json!(format!("{needed} positions needed, the context holds {held}")),
                ),
            };
            measured.push((test, rates, note));
        }
        // A moment that others disturb makes limits look low: the better of two counts.
        let bounds = before
            .zip(backend.bounds())
            .map(|(before, after)| before.better(after));
        if let Some(bounds) = &bounds {
            complain(&describe(&name, bounds));
        }
        for (test, rates, note) in measured {
            let (mean, deviation) = spread(&rates);
            let share = bounds.as_ref().zip(mean);
            let share = share.map(|(bounds, mean)| 100.0 * mean / test.limit(bounds));
            let rate = match (mean, deviation) {
                (None, _) => "over context".to_owned(),
                (Some(mean), None) => three_digits(mean),
                (Some(mean), Some(sd)) => format!("{} ± {}", three_digits(mean), three_digits(sd)),
            };
            figures.rows.push(vec![
                Cell::plain(json!(name)),
                Cell::shown(json!(bytes), format!("{:.2} GB", bytes as f64 / 1e9)),
                Cell::shown(json!(parameters), format!("{:.2} B", parameters as f64 / 1e9)),
                Cell::plain(json!(backend.name())),
                Cell::plain(json!(args.backend.threads())),
                Cell::plain(json!(test.name())),
                Cell::shown(json!(mean), rate),
                Cell::plain(json!(deviation)),
                Cell::shown(
                    json!(share),
                    share.map_or_else(|| "-".into(), |share| format!("{share:.0} %")),
                ),
                Cell::plain(note),
            ]);
        }
    }
    figures.print(args.format, &args.backend)?;
    Ok(crate::cli::DONE)
}

/// What the machine reaches and what the model asks of it.
fn describe(name: &str, bounds: &Bounds) -> String {
    format!(
        "{name}: here {:.1} GB/s read and {:.2} T products/s; a pass reads {:.2} GB,\n\
         a position takes {:.2} G products, {:.2} G more with logits",
        bounds.bytes_per_second / 1e9,
        bounds.products_per_second / 1e12,
        bounds.pass_bytes as f64 / 1e9,
        bounds.position_products as f64 / 1e9,
        bounds.logits_products as f64 / 1e9,
    )
}

fn check(flag: &str, sizes: &[usize], least: usize) -> anyhow::Result<()> {
    let wrong = sizes.iter().find(|n| !(least..=MOST).contains(*n));
    ensure!(
        wrong.is_none(),
        "{flag}: expected {least} to {MOST}, found {}",
        wrong.unwrap_or(&0)
    );
    Ok(())
}

/// What is measured.
struct Subject {
    name: String,
    /// Of the file, or of a folder's tensors.
    bytes: u64,
    parameters: usize,
    backend: Box<dyn Backend>,
}

/// A model by name or path.
fn stored(spec: &str, args: &BenchArgs) -> anyhow::Result<Subject> {
    let located = model::obtain(spec, &mut Bar::default())?;
    let model = Model::open(&located.path)?;
    let (mut bytes, parameters) = sizes(&model.weights);
    if model.path.is_file() {
        bytes = model.path.metadata().context("cannot stat the model")?.len();
    }
    Ok(Subject {
        name: located.name,
        bytes,
        parameters,
        backend: args.backend.load(&model)?,
    })
}

/// Seeded noise in the shape of a model, on a GPU.
fn noise(name: &str, args: &BenchArgs) -> anyhow::Result<Subject> {
    let config = synthetic::config(name).with_context(|| {
        let known = synthetic::NAMES.join(", ");
        format!("--synthetic: expected one of {known}, found {name}")
    })?;
    let weights = Weights::synthetic(&config);
    let (bytes, parameters) = sizes(&weights);
    let network = Network {
        config: &config,
        weights: &weights,
        source: Path::new(name),
    };
    Ok(Subject {
        name: format!("{name}, synthetic"),
        bytes,
        parameters,
        backend: args.backend.on_gpu(network)?,
    })
}

/// Bytes of all tensors, and numbers in them.
fn sizes(weights: &Weights) -> (u64, usize) {
    let entries = || weights.entries().map(|(_, entry)| entry);
    let numbers = entries().map(|entry| entry.shape.iter().product::<usize>());
    (entries().map(|entry| entry.bytes).sum(), numbers.sum())
}

/// Tokens per second, of every round but the first, which warms caches and clocks.
fn measure(backend: &mut dyn Backend, test: Test, repeat: usize) -> anyhow::Result<Vec<f64>> {
    let (positions, batch) = test.size();
    let per_sequence = positions.div_ceil(BLOCK);
    let blocks = per_sequence.saturating_mul(batch);
    let ids: Vec<BlockId> = (0..u32::try_from(blocks).context("too many KV blocks")?)
        .map(BlockId)
        .collect();
    backend.reserve(blocks)?;
    let tables: Vec<&[BlockId]> = ids.chunks(per_sequence).collect();
    let mut rates = Vec::with_capacity(repeat);
    for round in 0..repeat {
        let (tokens, seconds) = match test {
            Test::Prompt(length) => {
                let tokens = prompt(backend.vocab(), 0, length);
                let started = Instant::now();
                prefill(backend, &tokens, tables[0])?;
                (length, started.elapsed().as_secs_f64())
            }
            Test::Decode { new, batch } => {
                let mut last = Vec::with_capacity(batch);
                for (sequence, table) in tables.iter().enumerate() {
                    let tokens = prompt(backend.vocab(), sequence, BEFORE);
                    last.push(prefill(backend, &tokens, table)?);
                }
                let started = Instant::now();
                for index in 0..new {
                    last = decode(backend, &last, BEFORE + index, &tables)?;
                }
                (new * batch, started.elapsed().as_secs_f64())
            }
        };
        if round > 0 {
            rates.push(tokens as f64 / seconds);
        }
    }
    Ok(rates)
}

/// Token ids of a sequence's prompt, the same in every round.
fn prompt(vocab: usize, sequence: usize, length: usize) -> Vec<u32> {
    (0..length)
        .map(|i| rng::below(vocab as u64, SEED, sequence as u64, i as u64) as u32)
        .collect()
}

/// Computes a prompt in one pass; the likeliest next token.
fn prefill(backend: &mut dyn Backend, tokens: &[u32], blocks: &[BlockId]) -> anyhow::Result<u32> {
    let step = Step {
        tokens,
        start: 0,
        blocks,
        logits: 1,
    };
    let logits = backend.forward(&[step])?;
    Ok(likeliest(logits.first().context("the backend returned nothing")?))
}

/// One more token of every sequence: `last` at `position`; the likeliest after it.
fn decode(
    backend: &mut dyn Backend,
    last: &[u32],
    position: usize,
    tables: &[&[BlockId]],
) -> anyhow::Result<Vec<u32>> {
    let steps: Vec<Step<'_>> = last
        .iter()
        .zip(tables)
        .map(|(token, blocks)| Step {
            tokens: std::slice::from_ref(token),
            start: position,
            blocks,
            logits: 1,
        })
        .collect();
    let logits = backend.forward(&steps)?;
    Ok(logits.iter().map(|logits| likeliest(logits)).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_vary_and_are_the_same_again() {
        let first = prompt(1000, 0, 64);
        assert!(first.iter().all(|&id| id < 1000));
        assert!(first.iter().collect::<std::collections::BTreeSet<_>>().len() > 50);
        assert_eq!(first, prompt(1000, 0, 64));
        assert_ne!(first, prompt(1000, 1, 64));
    }

    #[test]
    fn mean_and_deviation() {
        assert_eq!(spread(&[]), (None, None));
        assert_eq!(spread(&[3.0]), (Some(3.0), None));
        assert_eq!(spread(&[2.0, 4.0, 6.0]), (Some(4.0), Some(2.0)));
    }
}
