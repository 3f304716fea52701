//! Stored matrices as their packing wants them: the quants of 16 outputs at a time, and scale records.
//!
//! Not the packed layout (`format`). What a block's bytes mean is written in `model::weights`, number by number; here it
//! is read in runs, since a start reads all of a model.

use super::super::quantize::GROUP;
use super::format::{Format, Record, TILE};
use crate::model::weights::{Awq, BlockType, six_bits};

/// What a format's packing needs to know of a stored matrix.
pub(super) trait Source: Sync {
    /// Writes the 32 quants of a group for each output of a tile; outputs that there are not stay as they are.
    fn quants(&self, tile: usize, group: usize, out: &mut [[u8; GROUP]; TILE]);
    /// Bytes of the record that covers the inputs from `record * F::SPAN` on, in the order of [`Record`], for one row.
    fn record<F: Format>(&self, row: usize, record: usize, out: &mut [u8]);
}

/// A matrix in one of GGUF's block formats.
pub(super) struct Blocks<'a> {
    block: BlockType,
    bytes: &'a [u8],
    /// Bytes of a row.
    row: usize,
}

impl<'a> Blocks<'a> {
    /// Rows of `columns` numbers, a multiple of those of a block.
    pub(super) fn new(block: BlockType, bytes: &'a [u8], columns: usize) -> Self {
        Self {
            block,
            bytes,
            row: columns / block.numbers() * block.bytes(),
        }
    }

    fn block(&self, row: usize, index: usize) -> &[u8] {
        &self.bytes[row * self.row + index * self.block.bytes()..][..self.block.bytes()]
    }
}

impl Source for Blocks<'_> {
    fn quants(&self, tile: usize, group: usize, out: &mut [[u8; GROUP]; TILE]) {
        let per_block = self.block.numbers() / GROUP;
        let (index, within) = (group / per_block, group % per_block);
        let rows = self.bytes.len() / self.row;
        for (row, out) in (tile * TILE..rows).zip(out) {
            let b = self.block(row, index);
            match self.block {
                BlockType::Q4_0 => halves(&b[2..], out),
                BlockType::Q4_1 => halves(&b[4..], out),
                BlockType::Q5_0 => {
                    halves(&b[6..], out);
                    fifths(&b[2..], out);
                }
                BlockType::Q5_1 => {
                    halves(&b[8..], out);
                    fifths(&b[4..], out);
                }
                BlockType::Q8_0 => fill(out, &b[2..], |b| b ^ 128),
                BlockType::Q4K => nibbles(&b[16 + within / 2 * 32..], within % 2, out),
                BlockType::Q5K => {
                    nibbles(&b[48 + within / 2 * 32..], within % 2, out);
                    add(out, &b[16..], |b| (b >> within & 1) << 4);
                }
                BlockType::Q6K => {
                    let (part, quarter) = (within / 4, within % 4);
                    nibbles(&b[part * 64 + quarter % 2 * 32..], quarter / 2, out);
                    add(out, &b[128 + part * 32..], |b| (b >> (2 * quarter) & 3) << 4);
                }
                _ => out.fill(0),
            }
        }
    }

    fn record<F: Format>(&self, row: usize, record: usize, out: &mut [u8]) {
        let b = self.block(row, record);
        match F::RECORD {
            Record::Super => {
                out[..4].copy_from_slice(&b[..4]);
                for group in 0..8 {
                    let (scale, min) = six_bits(&b[4..16], group);
                    (out[4 + 2 * group], out[5 + 2 * group]) = (scale, min);
                }
            }
            Record::SuperHalves => {
                out[..2].copy_from_slice(&b[208..210]);
                out[2..].copy_from_slice(&b[192..208]);
            }
            _ => out.copy_from_slice(&b[..out.len()]),
        }
    }
}

fn fill(out: &mut [u8; GROUP], bytes: &[u8], number: impl Fn(u8) -> u8) {
    for (out, byte) in out.iter_mut().zip(bytes) {
        *out = number(*byte);
    }
}

fn add(out: &mut [u8; GROUP], bytes: &[u8], number: impl Fn(u8) -> u8) {
    for (out, byte) in out.iter_mut().zip(bytes) {
        *out |= number(*byte);
    }
}

/// 32 bytes, of which the low (`half` 0) or the high nibbles are wanted.
fn nibbles(bytes: &[u8], half: usize, out: &mut [u8; GROUP]) {
    match half {
        0 => fill(out, bytes, |b| b & 15),
        _ => fill(out, bytes, |b| b >> 4),
    }
}

/// 16 bytes: first all low nibbles, then all high ones.
fn halves(bytes: &[u8], out: &mut [u8; GROUP]) {
    let (first, second) = out.split_at_mut(GROUP / 2);
    for ((first, second), byte) in first.iter_mut().zip(second).zip(bytes) {
        (*first, *second) = (byte & 15, byte >> 4);
    }
}

/// The fifth bits of a group, as a 32-bit word.
fn fifths(bytes: &[u8], out: &mut [u8; GROUP]) {
    for (out, byte) in out.as_chunks_mut::<8>().0.iter_mut().zip(bytes) {
        for (bit, out) in out.iter_mut().enumerate() {
            *out |= (byte >> bit & 1) << 4;
        }
    }
}

impl Source for &Awq {
    fn quants(&self, tile: usize, group: usize, out: &mut [[u8; GROUP]; TILE]) {
        for (first, out) in (tile * TILE..self.rows)
            .step_by(8)
            .zip(out.as_chunks_mut::<8>().0)
        {
            for input in 0..GROUP {
                let eight = self.eight(first, group * GROUP + input);
                for (out, quant) in out.iter_mut().zip(eight) {
                    out[input] = quant;
                }
            }
        }
    }

    fn record<F: Format>(&self, row: usize, record: usize, out: &mut [u8]) {
        out[..2].copy_from_slice(&self.scale(row, record).to_le_bytes());
        out[2] = self.zero(row, record);
    }
}
