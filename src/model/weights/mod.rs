//! The tensors of a model, whatever file format they lie in: name, shape, storage, bytes.
//!
//! Not arithmetic: a backend reads each tensor once and keeps it in its own layout. Names are GGUF's (`blk.0.attn_q.weight`).
//! Rows are in Hugging Face's order: the permutation that GGUF gives Llama's q and k is undone here. Files are read,
//! not mapped: what was never mapped cannot be cut short under a running program.

mod awq;
mod block;
mod decode;
pub mod synthetic;
pub(crate) use decode::six_bits;

pub use awq::Awq;
pub use block::BlockType;

use std::collections::BTreeMap;

use super::ModelError;
use super::config::{Architecture, Config};
use super::folder::Tensors;
use super::gguf::Gguf;

/// How the numbers of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Row after row, in blocks of one of ggml's formats (plain floats are blocks of one number).
    Blocks(BlockType),
    /// AutoAWQ's 4-bit `gemm` layout with this group size along the inputs.
    Awq {
        /// Inputs that share a scale and a zero point.
        group: usize,
    },
}

impl Storage {
    /// A short name.
    pub fn name(self) -> String {
        match self {
            Self::Blocks(block) => block.name().to_owned(),
            Self::Awq { group } => format!("AWQ/{group}"),
        }
    }
}

/// What is known of a tensor without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Shape, slowest dimension first: a weight is `(out, in)`, also where the file stores it the other way round.
    pub shape: Vec<usize>,
    /// How its numbers are stored.
    pub storage: Storage,
    /// Bytes in the file.
    pub bytes: u64,
}

/// A tensor as stored, seen as a matrix `(rows, cols)`; a vector is one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    /// Blocks of `block`, row after row.
    Blocks {
        /// The format.
        block: BlockType,
        /// Outputs of a weight.
        rows: usize,
        /// Inputs of a weight; a multiple of `block.numbers()`.
        cols: usize,
        /// `rows * cols / block.numbers() * block.bytes()` bytes.
        bytes: Vec<u8>,
    },
    /// 4-bit numbers with scales and zero points.
    Awq(Awq),
}

impl Stored {
    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Self::Blocks { rows, cols, .. } => (*rows, *cols),
            Self::Awq(awq) => (awq.rows, awq.cols),
        }
    }

    /// All numbers `(rows, cols)` as float32: the plain meaning of the bytes, by which faster code is checked.
    ///
    /// # Errors
    /// A block format that nothing here decodes.
    pub fn decode(&self) -> Result<Vec<f32>, ModelError> {
        match self {
            Self::Blocks { block, bytes, .. } => decode::blocks(*block, bytes),
            Self::Awq(awq) => Ok(awq.decode()),
        }
    }
}

/// The tensors of one model.
#[derive(Debug)]
pub struct Weights {
    source: Source,
    entries: BTreeMap<String, Entry>,
}

/// Where they lie.
#[derive(Debug)]
enum Source {
    Gguf {
        gguf: Gguf,
        /// Width of a head where q and k are stored with their rows permuted.
        permuted: Option<usize>,
    },
    Folder(Tensors),
    Synthetic,
}

impl Weights {
    /// Those of a GGUF file with this configuration.
    pub fn from_gguf(gguf: Gguf, config: &Config) -> Self {
        let entry = |(name, tensor): (&String, &super::gguf::TensorEntry)| {
            let entry = Entry {
                shape: tensor.shape.clone(),
                storage: Storage::Blocks(tensor.block),
                bytes: tensor.bytes as u64,
            };
            (name.clone(), entry)
        };
        Self {
            entries: gguf.tensors().iter().map(entry).collect(),
            source: Source::Gguf {
                permuted: (config.architecture == Architecture::Llama).then_some(config.head_dim),
                gguf,
            },
        }
    }

    /// Those of a Hugging Face folder.
    pub fn from_folder(tensors: Tensors) -> Self {
        Self {
            entries: tensors.entries(),
            source: Source::Folder(tensors),
        }
    }

    /// Seeded noise of a configuration's shapes.
    pub fn synthetic(config: &Config) -> Self {
        Self {
            entries: synthetic::entries(config).into_iter().collect(),
            source: Source::Synthetic,
        }
    }

    /// All tensors, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// One tensor, if the model has it.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// There is none of that name, or its file became unreadable or shorter.
    pub fn read(&self, name: &str) -> Result<Stored, ModelError> {
        let absent = || ModelError::NoTensor { name: name.into() };
        let (gguf, permuted) = match &self.source {
            Source::Folder(tensors) => return tensors.read(name)?.ok_or_else(absent),
            Source::Synthetic => {
                let entry = self.get(name).ok_or_else(absent)?;
                return Ok(synthetic::read(name, entry));
            }
            Source::Gguf { gguf, permuted } => (gguf, *permuted),
        };
        let Some((shape, Storage::Blocks(block))) = self.get(name).map(|e| (&e.shape, e.storage)) else {
            return Err(absent());
        };
        let bytes = gguf.read(name)?;
        let cols = shape.last().copied().unwrap_or(1);
        let rows = shape.iter().product::<usize>() / cols;
        let projected = name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight");
        let bytes = match permuted.filter(|_| projected) {
            Some(head) => unpermute(&bytes, bytes.len() / rows, head),
            None => bytes,
        };
        Ok(Stored::Blocks {
            block,
            rows,
            cols,
            bytes,
        })
    }
}

/// Rows of `row` bytes in Hugging Face's order, from GGUF's: within a head, GGUF's row `2 i + j` is row
/// `j * head / 2 + i`.
fn unpermute(bytes: &[u8], row: usize, head: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for block in bytes.chunks(head * row) {
        for r in 0..block.len() / row {
            let (i, j) = (r % (head / 2), r / (head / 2));
            let from = (2 * i + j) * row;
            out.extend_from_slice(&block[from..from + row]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::unpermute;

    #[test]
    fn rows_of_q_and_k_come_back_in_their_order() {
        // Two heads of six rows of three bytes; a row's bytes are its number in Hugging Face's order. GGUF's writer
        // takes a head as (2, 3) rows and swaps the two dimensions.
        let (heads, head, row) = (2, 6, 3);
        let mut gguf = Vec::new();
        for h in 0..heads {
            for i in 0..head / 2 {
                for j in 0..2 {
                    gguf.extend(vec![(h * head + j * (head / 2) + i) as u8; row]);
                }
            }
        }
        let order: Vec<u8> = gguf.iter().copied().step_by(row).collect();
        assert_eq!(order, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        let rows: Vec<u8> = (0..(heads * head) as u8).flat_map(|n| vec![n; row]).collect();
        assert_eq!(unpermute(&gguf, row, head), rows);
    }
}
