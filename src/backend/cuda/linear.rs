//! Linear layers on a device: weights in the layout of `kernels/linear.cu`, and which of its kernels computes what.
//!
//! Not the arithmetic. Several layers with the same inputs become one, with their outputs side by side.

use rayon::prelude::*;

use super::device::{Address, Argument, Device, Format, Group, Kernel, Size, upload};
use crate::backend::BackendError;
use crate::model::weights::{Awq, BlockType, Stored};

/// Inputs of a unit, of which inputs are multiples.
const UNIT: usize = 64;
/// Outputs of a tile, of which the outputs of layers side by side are multiples.
const TILE: usize = 16;

/// A linear layer `(outputs, inputs)` on a device, its bias included.
#[derive(Debug)]
pub(super) struct Linear {
    format: Format,
    weights: Vec<Address>,
    bias: Option<Address>,
    inputs: usize,
    outputs: usize,
    bytes: usize,
}

/// The rows that a layer takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    /// `(rows, inputs)` fp16.
    pub(super) x: Address,
    /// `(rows,)` fp32, by which the rows are to be multiplied; absent: by 1.
    pub(super) factors: Address,
    pub(super) rows: usize,
}

impl Linear {
    /// Layers with the same inputs, one after the other in the outputs; `bias` `(outputs,)` of all.
    ///
    /// # Errors
    /// In words: a format or a shape that no kernel takes, or a failure of the device.
    pub(super) fn new(
        device: &mut dyn Device,
        parts: &[Stored],
        bias: Option<&[f32]>,
    ) -> Result<Self, String> {
        let inputs = parts.first().map_or(0, |part| part.shape().1);
        let outputs: usize = parts.iter().map(|part| part.shape().0).sum();
        if inputs == 0 || !inputs.is_multiple_of(UNIT) {
            return Err(format!(
                "its kernels take inputs in multiples of {UNIT}, found {inputs}"
            ));
        }
        for part in parts {
            let (rows, cols) = part.shape();
            if cols != inputs || (parts.len() > 1 && rows % TILE != 0) {
                return Err(format!(
                    "its kernels take outputs in multiples of {TILE} and {inputs} inputs, found ({rows}, {cols})"
                ));
            }
        }
        let said = |error: BackendError| error.to_string();
        let (format, weights, bytes) = match &parts[0] {
            Stored::Awq(first) => {
                let parts: Option<Vec<&Awq>> = parts
                    .iter()
                    .map(|part| match part {
                        Stored::Awq(awq) if awq.group == first.group => Some(awq),
                        _ => None,
                    })
                    .collect();
                let parts = parts.ok_or("layers side by side are stored in different ways")?;
                let group = Group::of(first.group);
                let group = group.ok_or(format!("no kernel takes groups of {}", first.group))?;
                let (words, scales, zeros) = pack(&parts, outputs.next_multiple_of(TILE));
                let bytes = 4 * words.len() + 2 * scales.len() + 4 * zeros.len();
                let weights = [
                    upload(device, &words).map_err(said)?,
                    upload(device, &scales).map_err(said)?,
                    upload(device, &zeros).map_err(said)?,
                ];
                (Format::Awq(group), weights.to_vec(), bytes)
            }
            Stored::Blocks { .. } => {
                let mut numbers = Vec::new();
                for part in parts {
                    numbers.extend(halves(part)?);
                }
                numbers.resize(outputs.next_multiple_of(TILE) * inputs, 0);
                let weights = upload(device, &numbers).map_err(said)?;
                (Format::Fp16, vec![weights], 2 * numbers.len())
            }
        };
        Ok(Self {
            format,
            weights,
            bias: bias.map(|bias| upload(device, bias)).transpose().map_err(said)?,
            inputs,
            outputs,
            bytes,
        })
    }

    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    pub(super) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Bytes that a pass reads.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// fp16 rows `(outputs, inputs)`, where the weights are that: an embedding table.
    pub(super) fn table(&self) -> Option<Address> {
        (self.format == Format::Fp16).then(|| self.weights[0])
    }

    /// Writes `y` `(rows, outputs)` fp32.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn forward(
        &self,
        device: &mut dyn Device,
        input: Input,
        y: Address,
    ) -> Result<(), BackendError> {
        self.forward_as(device, input, y, size_for(input.rows))
    }

    /// As [`Self::forward`] by the kernel of this size: all give the same bits.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn forward_as(
        &self,
        device: &mut dyn Device,
        input: Input,
        y: Address,
        size: Size,
    ) -> Result<(), BackendError> {
        let padded = self.outputs.next_multiple_of(TILE);
        // Outputs and tokens of a block, as linear.cu has them.
        let wide = if self.format == Format::Awq(Group::G32) {
            2
        } else {
            4
        };
        let grid = match size {
            Size::S8 => [padded.div_ceil(2 * TILE), input.rows.div_ceil(8), 1],
            Size::S16 => [padded.div_ceil(4 * TILE), input.rows.div_ceil(16), 1],
            Size::S32 => [padded.div_ceil(wide * TILE), input.rows.div_ceil(32), 1],
            Size::Large => [input.rows.div_ceil(64), padded.div_ceil(8 * TILE), 1],
        };
        let mut arguments: Vec<Argument> = self.weights.iter().map(|w| Argument::from(*w)).collect();
        let more: [Argument; 8] = [
            padded.into(),
            input.x.into(),
            input.factors.into(),
            self.bias.unwrap_or(Address::NULL).into(),
            y.into(),
            input.rows.into(),
            self.inputs.into(),
            self.outputs.into(),
        ];
        arguments.extend(more);
        device.launch(Kernel::Linear(self.format, size), grid, &arguments)
    }
}

/// The kernel for this many rows. Up to 32 a pass reads every weight once; beyond, the tensor cores are busy for longer
/// than that takes, and it matters more that 64 tokens share what was unpacked.
fn size_for(rows: usize) -> Size {
    match rows {
        ..=8 => Size::S8,
        9..=16 => Size::S16,
        17..=32 => Size::S32,
        _ => Size::Large,
    }
}

/// Words, scales `(groups, outputs)` and zeros `(groups, outputs / 8)` of layers side by side, the outputs padded with
/// zeros; see `kernels/linear.cu`.
fn pack(parts: &[&Awq], padded: usize) -> (Vec<u32>, Vec<u16>, Vec<u32>) {
    let (inputs, group) = (parts[0].cols, parts[0].group);
    let groups = inputs / group;
    let mut words = vec![0; padded * inputs / 8];
    let mut scales = vec![0; groups * padded];
    let mut zeros = vec![0; groups * padded / 8];
    let (mut first, mut rest) = (0, words.as_mut_slice());
    for part in parts {
        let tiles;
        (tiles, rest) = rest.split_at_mut(part.rows.next_multiple_of(TILE) * inputs / 8);
        tiles
            .par_chunks_exact_mut(TILE * inputs / 8)
            .enumerate()
            .for_each(|(tile, words)| pack_tile(part, tile * TILE, words));
        for line in 0..groups {
            for row in 0..part.rows {
                let output = line * padded + first + row;
                scales[output] = part.scale(row, line);
                zeros[output / 8] |= u32::from(part.zero(row, line)) << (4 * (output % 8));
            }
        }
        first += part.rows;
    }
    (words, scales, zeros)
}

/// The words of one tile, whose outputs start at `first`: `(inputs / UNIT, 32 lanes, 4)`.
fn pack_tile(awq: &Awq, first: usize, words: &mut [u32]) {
    for half in 0..2 {
        let row = first + 8 * half;
        if row >= awq.rows {
            continue;
        }
        for input in 0..awq.cols {
            let (unit, within) = (input / UNIT, input % UNIT);
            // Input 32 h + 8 t + 4 j + r is number r of word 2 h + j of the lanes with this t.
            let (h, t, j, r) = (within / 32, within / 8 % 4, within / 4 % 2, within % 4);
            let nibble = half + 2 * (r / 2) + 4 * (r % 2);
            for (g, number) in awq.eight(row, input).into_iter().enumerate() {
                let lane = 4 * g + t;
                words[(unit * 32 + lane) * 4 + 2 * h + j] |= u32::from(number) << (4 * nibble);
            }
        }
    }
}

/// Numbers as fp16, row after row.
///
/// # Errors
/// In words: blocks of a quantised format, or a number that fp16 does not hold.
pub(super) fn halves(stored: &Stored) -> Result<Vec<u16>, String> {
    let block = match stored {
        Stored::Blocks { block, .. } => *block,
        Stored::Awq(_) => return Err("fp16, bf16 or fp32 numbers were expected, found AWQ".into()),
    };
    match (block, stored) {
        (BlockType::F16, Stored::Blocks { bytes, .. }) => {
            let pairs = bytes.chunks_exact(2);
            Ok(pairs.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect())
        }
        (BlockType::F32 | BlockType::Bf16, _) => {
            let numbers = stored.decode().map_err(|error| error.to_string())?;
            let half = |x: &f32| {
                let half = half::f16::from_f32(*x);
                match half.is_finite() || !x.is_finite() {
                    true => Ok(half.to_bits()),
                    false => Err(format!("{x} is more than fp16 holds")),
                }
            };
            numbers.iter().map(half).collect()
        }
        _ => Err(format!(
            "the cuda backend computes with AWQ, fp16, bf16 and fp32 weights, found {}; the cpu backend takes it",
            block.name()
        )),
    }
}
