//! What a model will take of a GPU's memory, before any of it is taken.
//!
//! Not the allocations: those are made as planned, so a model that does not fit is refused before it is read.

use std::fmt;

use super::workspace::Workspace;
use crate::backend::{BLOCK, BackendError};
use crate::model::Network;
use crate::model::weights::{Entry, Storage};

/// Bytes that are left to the driver: recorded passes, and what it aligns.
const SPARE: usize = 256 << 20;

/// Bytes by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The weights: as stored in 4 bits, else as fp16; vectors in fp32.
    pub weights: usize,
    /// Keys and values.
    pub cache: usize,
    /// Positions that those are of.
    pub positions: usize,
    /// Activations of a pass, and the driver's.
    pub workspace: usize,
    /// What is free now.
    pub free: usize,
}

impl Plan {
    /// For a model with `cache` bytes of keys and values, where `free` bytes are free.
    pub fn new(model: Network<'_>, cache: usize, free: usize) -> Self {
        let config = model.config;
        let size = |entry: &Entry| {
            let numbers = entry.shape.iter().product::<usize>();
            match entry.storage {
                Storage::Awq { .. } => entry.bytes as usize,
                Storage::Blocks(_) => numbers * if entry.shape.len() == 1 { 4 } else { 2 },
            }
        };
        let position = 2 * config.numbers_per_position();
        let blocks = cache / (position * BLOCK);
        Self {
            weights: model.weights.entries().map(|(_, entry)| size(entry)).sum(),
            cache: (blocks + 1) * BLOCK * position,
            positions: blocks * BLOCK,
            workspace: Workspace::bytes(config)
                + 4 * config.head_dim * config.context.min(blocks * BLOCK)
                + SPARE,
            free,
        }
    }

    /// All of it.
    pub fn total(&self) -> usize {
        self.weights + self.cache + self.workspace
    }

    /// Whether it fits.
    ///
    /// # Errors
    /// [`BackendError::Memory`], with what is missing and what would help.
    pub fn check(&self) -> Result<(), BackendError> {
        if self.total() <= self.free {
            return Ok(());
        }
        let missing = self.total() - self.free;
        let help = match missing < self.cache {
            true => format!("--kv-mib {} would fit", (self.cache - missing) >> 20),
            false => "this GPU is too small for the model".to_owned(),
        };
        Err(BackendError::Memory {
            bytes: self.total(),
            reason: format!("{self}: {} more are needed; {help}", gigabytes(missing)),
        })
    }
}

fn gigabytes(bytes: usize) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "weights {}, keys and values {} ({} positions), workspace {}; {} of {} free",
            gigabytes(self.weights),
            gigabytes(self.cache),
            self.positions,
            gigabytes(self.workspace),
            gigabytes(self.total()),
            gigabytes(self.free),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_plan_counts_what_is_stored_and_says_what_would_fit() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny/qwen2-untied-awq");
        let model = crate::model::Model::open(&folder).unwrap();
        let plan = Plan::new(model.network(), 64 << 20, 1 << 30);
        let files = [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ];
        let stored: u64 = files
            .iter()
            .map(|file| folder.join(file).metadata().unwrap().len())
            .sum();
        // Vectors double, headers do not count.
        assert!(plan.weights.abs_diff(stored as usize) < 20_000, "{plan}");
        assert_eq!(plan.positions, (64 << 20) / (2 * 2 * 2 * 2 * 64));
        plan.check().unwrap();
        let tight = Plan {
            free: plan.total() - (3 << 20),
            ..plan
        };
        let said = tight.check().unwrap_err().to_string();
        assert!(said.contains("more are needed; --kv-mib 61 would fit"), "{said}");
        let small = Plan {
            free: 1 << 20,
            ..plan
        };
        let said = small.check().unwrap_err().to_string();
        assert!(said.contains("too small for the model"), "{said}");
    }
}
