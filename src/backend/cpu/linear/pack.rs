//! Weights as stored to weights as computed with: rows into tiles of 16 outputs.
//!
//! Not rounding: every packed weight is the very number that the file says (a test decodes both). 4-bit weights stay
//! 4 bits, and the stored bytes are dropped once packed.

use half::f16;

use super::super::buffer::{Buffer, Plain};
use super::super::pool::{Parts, Pool};
use super::super::quantize::GROUP;
use super::format::{Format, Kind, Record, TILE, interleave, quant, scales, with_format};
use super::source::{Blocks, Source};
use crate::model::weights::{BlockType, Stored};

/// A quantised matrix in tiles.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) kind: Kind,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Per tile, per group of inputs: [`Format::QUANTS`] bytes.
    pub(super) quants: Buffer<u8>,
    /// Per tile, per record: [`Format::BYTES`] bytes.
    pub(super) records: Buffer<u8>,
}

/// A float matrix in tiles: per tile, per input, 16 outputs.
#[derive(Debug)]
pub(super) struct Floats {
    pub(super) kind: FloatKind,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) bytes: Buffer<u8>,
}

/// How a float is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloatKind {
    F32,
    F16,
    Bf16,
}

impl FloatKind {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// A matrix in the layout of this backend.
#[derive(Debug)]
pub(super) enum Weight {
    Packed(Packed),
    Floats(Floats),
}

/// Why a matrix cannot be packed, in words.
pub(super) type Refusal = String;

impl Weight {
    /// Packs a matrix.
    pub(super) fn pack(stored: &Stored, pool: &Pool) -> Result<Self, Refusal> {
        match stored {
            Stored::Blocks {
                block,
                rows,
                cols,
                bytes,
            } => {
                let float = match block {
                    BlockType::F32 => Some(FloatKind::F32),
                    BlockType::F16 => Some(FloatKind::F16),
                    BlockType::Bf16 => Some(FloatKind::Bf16),
                    _ => None,
                };
                match (float, Kind::of(*block)) {
                    (Some(kind), _) => floats(kind, *rows, *cols, bytes, pool).map(Self::Floats),
                    (None, Some(kind)) => {
                        let rows = Rows {
                            rows: *rows,
                            columns: *cols,
                            source: Blocks::new(*block, bytes, *cols),
                        };
                        with_format!(kind, F => rows.pack::<F>(kind, pool)).map(Self::Packed)
                    }
                    (None, None) => Err(format!("this backend does not compute with {}", block.name())),
                }
            }
            Stored::Awq(awq) => {
                let kind = Kind::of_awq(awq.group).ok_or_else(|| {
                    format!("expected groups of 32, 64 or 128, found groups of {}", awq.group)
                })?;
                let rows = Rows {
                    rows: awq.rows,
                    columns: awq.cols,
                    source: awq,
                };
                with_format!(kind, F => rows.pack::<F>(kind, pool)).map(Self::Packed)
            }
        }
    }

    /// Outputs and inputs.
    pub(super) fn shape(&self) -> (usize, usize) {
        match self {
            Self::Packed(packed) => (packed.rows, packed.columns),
            Self::Floats(floats) => (floats.rows, floats.columns),
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.quants.len() + packed.records.len(),
            Self::Floats(floats) => floats.bytes.len(),
        }
    }

    /// Writes the numbers of output `row` to `out` `(columns,)`.
    pub(super) fn row(&self, row: usize, out: &mut [f32]) {
        let (tile, lane) = (row / TILE, row % TILE);
        match self {
            Self::Packed(packed) => with_format!(packed.kind, F => {
                let (quants, records) = packed.tile::<F>(tile);
                for (group, out) in out.chunks_exact_mut(GROUP).enumerate() {
                    let scales = scales::<F>(records, group, lane);
                    let bytes = &quants[group * F::QUANTS..][..F::QUANTS];
                    for (input, out) in out.iter_mut().enumerate() {
                        let q = i32::from(quant::<F>(bytes, lane, input)) - F::OFFSET;
                        *out = (q as f32).mul_add(scales.halves[input / (GROUP / 2)], -scales.min);
                    }
                }
            }),
            Self::Floats(floats) => {
                let bytes = floats.tile(tile);
                for (column, out) in out.iter_mut().enumerate() {
                    *out = floats.kind.read(bytes, column * TILE + lane);
                }
            }
        }
    }
}

impl Packed {
    /// Quants and records of a tile.
    pub(super) fn tile<F: Format>(&self, tile: usize) -> (&[u8], &[u8]) {
        let (quants, records) = (
            self.columns / GROUP * F::QUANTS,
            self.columns / F::SPAN * F::BYTES,
        );
        (
            &self.quants[tile * quants..][..quants],
            &self.records[tile * records..][..records],
        )
    }
}

impl Floats {
    /// The bytes of a tile.
    pub(super) fn tile(&self, tile: usize) -> &[u8] {
        let bytes = self.columns * TILE * self.kind.bytes();
        &self.bytes[tile * bytes..][..bytes]
    }
}

impl FloatKind {
    /// Number `index` of `bytes`.
    pub(super) fn read(self, bytes: &[u8], index: usize) -> f32 {
        let at = &bytes[index * self.bytes()..];
        match self {
            Self::F32 => f32::from_le_bytes([at[0], at[1], at[2], at[3]]),
            Self::F16 => f16::from_le_bytes([at[0], at[1]]).to_f32(),
            Self::Bf16 => half::bf16::from_le_bytes([at[0], at[1]]).to_f32(),
        }
    }
}

struct Rows<S> {
    rows: usize,
    columns: usize,
    source: S,
}

impl<S: Source> Rows<S> {
    fn pack<F: Format>(&self, kind: Kind, pool: &Pool) -> Result<Packed, Refusal> {
        if !self.columns.is_multiple_of(F::SPAN) {
            return Err(format!(
                "expected a multiple of {} inputs, found {}",
                F::SPAN,
                self.columns
            ));
        }
        let (tiles, groups, spans) = (
            self.rows.div_ceil(TILE),
            self.columns / GROUP,
            self.columns / F::SPAN,
        );
        let mut quants = zeroed(tiles * groups * F::QUANTS)?;
        let mut records = zeroed(tiles * spans * F::BYTES)?;
        let (quant_parts, record_parts) = (Parts::of(&mut quants), Parts::of(&mut records));
        pool.each(tiles, |tile| {
            // SAFETY: each tile has its own range of both buffers.
            let quants = unsafe { quant_parts.part(tile * groups * F::QUANTS, groups * F::QUANTS) };
            // SAFETY: as above.
            let records = unsafe { record_parts.part(tile * spans * F::BYTES, spans * F::BYTES) };
            let mut unpacked = [[0; GROUP]; TILE];
            for (group, bytes) in quants.chunks_exact_mut(F::QUANTS).enumerate() {
                self.source.quants(tile, group, &mut unpacked);
                interleave::<F>(&unpacked, bytes);
            }
            for lane in 0..TILE.min(self.rows - tile * TILE) {
                self.records::<F>(tile * TILE + lane, lane, records);
            }
        });
        Ok(Packed {
            kind,
            rows: self.rows,
            columns: self.columns,
            quants,
            records,
        })
    }

    /// Fills one output's place in the records of a tile.
    fn records<F: Format>(&self, row: usize, lane: usize, records: &mut [u8]) {
        // One row's share of a record, and where each of its fields goes.
        let mut share = [0; 20];
        let share = &mut share[..F::BYTES / TILE];
        for (record, bytes) in records.chunks_exact_mut(F::BYTES).enumerate() {
            self.source.record::<F>(row, record, share);
            let floats = match F::RECORD {
                Record::ScaleAdd | Record::Super => 2,
                _ => 1,
            };
            for field in 0..floats {
                let at = field * 2 * TILE + 2 * lane;
                bytes[at..at + 2].copy_from_slice(&share[2 * field..2 * field + 2]);
            }
            for (byte, &value) in share[2 * floats..].iter().enumerate() {
                bytes[2 * floats * TILE + byte * TILE + lane] = value;
            }
        }
    }
}

fn floats(
    kind: FloatKind,
    rows: usize,
    columns: usize,
    bytes: &[u8],
    pool: &Pool,
) -> Result<Floats, Refusal> {
    let (size, tiles) = (kind.bytes(), rows.div_ceil(TILE));
    let mut out = zeroed(tiles * columns * TILE * size)?;
    let parts = Parts::of(&mut out);
    pool.each(tiles, |tile| {
        // SAFETY: each tile has its own range.
        let part = unsafe { parts.part(tile * columns * TILE * size, columns * TILE * size) };
        for lane in 0..TILE.min(rows - tile * TILE) {
            let row = &bytes[(tile * TILE + lane) * columns * size..][..columns * size];
            for (column, number) in row.chunks_exact(size).enumerate() {
                part[(column * TILE + lane) * size..][..size].copy_from_slice(number);
            }
        }
    });
    Ok(Floats {
        kind,
        rows,
        columns,
        bytes: out,
    })
}

fn zeroed<T: Plain>(len: usize) -> Result<Buffer<T>, Refusal> {
    Buffer::zeroed(len).ok_or_else(|| format!("there is no memory for {} bytes", len * size_of::<T>()))
}
