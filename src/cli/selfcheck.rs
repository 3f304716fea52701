//! `doctor --gpu`: whether this machine's GPU keeps the promise that a row's bits depend on the row alone.
//!
//! Not a comparison with another backend, and not a measurement. The weights are seeded noise in a model's true shape.

use super::open::BackendArgs;
use crate::backend::{BLOCK, Backend, BackendError, BlockId, Step};
use crate::model::Network;
use crate::model::weights::{Weights, synthetic};
use crate::rng;
use anyhow::{Context, ensure};
use std::path::Path;

/// Lengths of the rows: for each size of kernel, and beyond a part of attention.
const LENGTHS: [usize; 7] = [1, 8, 15, 31, 67, 129, 300];
/// KV blocks of a row, and of one that is computed again.
const ROOM: usize = 10;

/// Checks the GPU with the shapes of a name in [`synthetic::NAMES`], and says what was found equal.
///
/// # Errors
/// There is no GPU, or some bits differ.
pub(super) fn run(name: &str) -> anyhow::Result<String> {
    let config = synthetic::config(name).with_context(|| {
        let known = synthetic::NAMES.join(", ");
        format!("--gpu: expected one of {known}, found {name}")
    })?;
    let weights = Weights::synthetic(&config);
    let network = Network {
        config: &config,
        weights: &weights,
        source: Path::new(name),
    };
    let mut backend = BackendArgs::default().on_gpu(network)?;
    let backend = &mut *backend;
    backend.reserve((LENGTHS.len() + 1) * ROOM)?;
    let rows: Vec<Vec<u32>> = LENGTHS
        .iter()
        .map(|length| tokens(config.vocab, *length))
        .collect();
    let tables: Vec<Vec<BlockId>> = (0..=LENGTHS.len() as u32).map(blocks).collect();
    let spare = &tables[LENGTHS.len()];
    // Alone and whole; token by token behind a first piece; all at once, the last tokens of each.
    let mut alone = Vec::new();
    for row in &rows {
        alone.push(bits(backend, row, 0, spare)?);
        let mut start = row.len().saturating_sub(9);
        if start > 0 {
            bits(backend, &row[..start], 0, spare)?;
        }
        let mut last = Vec::new();
        while start < row.len() {
            last = bits(backend, &row[start..=start], start, spare)?;
            start += 1;
        }
        ensure!(
            alone.last() == Some(&last),
            "a row of {} tokens has other bits token by token than whole",
            row.len()
        );
    }
    for (row, table) in rows.iter().zip(&tables) {
        let start = row.len() / 2;
        if start > 0 {
            bits(backend, &row[..start], 0, table)?;
        }
    }
    let steps: Vec<Step<'_>> = rows
        .iter()
        .zip(&tables)
        .map(|(row, blocks)| Step {
            tokens: &row[row.len() / 2..],
            start: row.len() / 2,
            blocks,
            logits: 1,
        })
        .collect();
    let together = backend.forward(&steps)?;
    for ((row, alone), together) in rows.iter().zip(&alone).zip(&together) {
        ensure!(
            to_bits(together) == *alone,
            "a row of {} tokens has other bits in a batch than alone",
            row.len()
        );
        ensure!(
            together.iter().all(|logit| logit.is_finite()),
            "a row of {} tokens has logits that are not finite",
            row.len()
        );
    }
    Ok(format!(
        "{}: {} rows of 1 to {} tokens have the same bits alone, in pieces and together",
        backend.name(),
        rows.len(),
        LENGTHS[LENGTHS.len() - 1]
    ))
}

fn tokens(vocab: usize, length: usize) -> Vec<u32> {
    (0..length as u64)
        .map(|i| rng::below(vocab as u64, 7, length as u64, i) as u32)
        .collect()
}

/// The blocks of a row, the last first.
fn blocks(row: u32) -> Vec<BlockId> {
    (0..ROOM as u32)
        .rev()
        .map(|i| BlockId(row * ROOM as u32 + i))
        .collect()
}

fn to_bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The bits of the logits behind `tokens`, which start at `start`.
fn bits(
    backend: &mut dyn Backend,
    tokens: &[u32],
    start: usize,
    blocks: &[BlockId],
) -> Result<Vec<u32>, BackendError> {
    debug_assert!(start + tokens.len() <= ROOM * BLOCK);
    let step = Step {
        tokens,
        start,
        blocks,
        logits: 1,
    };
    Ok(backend
        .forward(&[step])?
        .first()
        .map_or_else(Vec::new, |l| to_bits(l)))
}
