//! How a packed weight is laid out: tiles of 16 outputs, groups of 32 inputs.
//!
//! Not the arithmetic on it. A tile holds 16 consecutive outputs side by side, since the dot products of 16 outputs
//! fill a vector; a group's 512 quants lie so that one vector of bytes has, for each output, 4 consecutive inputs.
//! Scales lie apart, in records of 16 outputs. A record says the same as the file's blocks did, number for number.

use half::f16;

use super::super::quantize::GROUP;
use crate::model::weights::BlockType;

/// Outputs of a tile.
pub(super) const TILE: usize = 16;
/// Vectors of 4 inputs x 16 outputs per group.
pub(super) const STEPS: usize = GROUP / 4;
/// Bytes of such a vector.
pub(super) const VECTOR: usize = 4 * TILE;

/// What a scale record holds, for each of the 16 outputs of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// float16 scale.
    Scale,
    /// float16 scale, float16 value that is added.
    ScaleAdd,
    /// float16 scale, u8 zero point.
    ScaleZero,
    /// float16 scale and minimum; then for each of 8 groups u8 multipliers of the scale, u8 multipliers of the minimum.
    Super,
    /// float16 scale; then for each of 16 half groups i8 multipliers of it.
    SuperHalves,
}

/// A packed format. A weight is `(quant - OFFSET) * scale - minimum`, exactly, before rounding to float32.
pub(super) trait Format {
    /// Bits of a quant: 4, 5, 6 or 8.
    const BITS: usize;
    /// What a quant of zero weight has.
    const OFFSET: i32;
    /// The scale records.
    const RECORD: Record;
    /// Inputs that a record covers; a multiple of [`GROUP`].
    const SPAN: usize;

    /// Bytes of a group's quants. First the low 4 bits (of 8-bit ones all) in `STEPS / 2` vectors whose low halves are
    /// steps 0 to 3 and high halves steps 4 to 7; then the fifth bits, a 64-bit word per step; or the fifth and sixth
    /// bits, two vectors with the steps 0 to 3 and 4 to 7 in pairs of bits.
    const QUANTS: usize = TILE * GROUP / 8 * Self::BITS;
    /// Bytes of a record.
    const BYTES: usize = match Self::RECORD {
        Record::Scale => 2 * TILE,
        Record::ScaleAdd => 4 * TILE,
        Record::ScaleZero => 3 * TILE,
        Record::Super => 4 * TILE + 16 * TILE,
        Record::SuperHalves => 2 * TILE + 16 * TILE,
    };
    /// Whether a minimum is subtracted.
    const MINS: bool = matches!(Self::RECORD, Record::ScaleAdd | Record::ScaleZero | Record::Super);
    /// Whether the two halves of a group have scales of their own.
    const HALVES: bool = matches!(Self::RECORD, Record::SuperHalves);
}

macro_rules! formats {
    ($($name:ident: $bits:literal, $offset:literal, $record:ident, $span:literal;)*) => {
        /// The packed formats by name, for dispatch at run time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind {
            $($name,)*
        }
        /// One type per format, for code that is compiled for each.
        pub(super) mod formats {
            use super::{Format, Record};
            $(
                pub(in super::super) struct $name;
                impl Format for $name {
                    const BITS: usize = $bits;
                    const OFFSET: i32 = $offset;
                    const RECORD: Record = Record::$record;
                    const SPAN: usize = $span;
                }
            )*
        }
        /// Evaluates an expression with `$f` standing for the type of the format that `kind` names.
        macro_rules! with_format {
            ($kind:expr, $f:ident => $body:expr) => {
                match $kind {
                    $($crate::backend::cpu::linear::format::Kind::$name => {
                        type $f = $crate::backend::cpu::linear::format::formats::$name;
                        $body
                    })*
                }
            };
        }
        pub(super) use with_format;
    };
}

formats! {
    Q4_0: 4, 8, Scale, 32;
    Q4_1: 4, 0, ScaleAdd, 32;
    Q5_0: 5, 16, Scale, 32;
    Q5_1: 5, 0, ScaleAdd, 32;
    Q8_0: 8, 128, Scale, 32;
    Q4K: 4, 0, Super, 256;
    Q5K: 5, 0, Super, 256;
    Q6K: 6, 32, SuperHalves, 256;
    Awq32: 4, 0, ScaleZero, 32;
    Awq64: 4, 0, ScaleZero, 64;
    Awq128: 4, 0, ScaleZero, 128;
}

impl Kind {
    /// The packed format of a block format; none for floats and for formats that nothing here computes with.
    pub(super) fn of(block: BlockType) -> Option<Self> {
        Some(match block {
            BlockType::Q4_0 => Self::Q4_0,
            BlockType::Q4_1 => Self::Q4_1,
            BlockType::Q5_0 => Self::Q5_0,
            BlockType::Q5_1 => Self::Q5_1,
            BlockType::Q8_0 => Self::Q8_0,
            BlockType::Q4K => Self::Q4K,
            BlockType::Q5K => Self::Q5K,
            BlockType::Q6K => Self::Q6K,
            _ => return None,
        })
    }

    /// The packed format of an AWQ group size.
    pub(super) fn of_awq(group: usize) -> Option<Self> {
        Some(match group {
            32 => Self::Awq32,
            64 => Self::Awq64,
            128 => Self::Awq128,
            _ => return None,
        })
    }
}

/// Scales and minimums of one output in one group: the plain reading of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scales {
    /// Of the two halves of the group.
    pub(super) halves: [f32; 2],
    pub(super) min: f32,
}

/// Reads output `lane` of a tile in group number `group` of its row from the tile's records.
pub(super) fn scales<F: Format>(records: &[u8], group: usize, lane: usize) -> Scales {
    let per_record = F::SPAN / GROUP;
    let record = &records[group / per_record * F::BYTES..][..F::BYTES];
    let within = group % per_record;
    let half = |at: usize| f16::from_le_bytes([record[at + 2 * lane], record[at + 2 * lane + 1]]).to_f32();
    let byte = |at: usize| record[at + lane];
    let scale = half(0);
    match F::RECORD {
        Record::Scale => Scales {
            halves: [scale; 2],
            min: 0.0,
        },
        Record::ScaleAdd => Scales {
            halves: [scale; 2],
            min: -half(2 * TILE),
        },
        Record::ScaleZero => Scales {
            halves: [scale; 2],
            min: scale * f32::from(byte(2 * TILE)),
        },
        Record::Super => Scales {
            halves: [scale * f32::from(byte(4 * TILE + within * 2 * TILE)); 2],
            min: half(2 * TILE) * f32::from(byte(4 * TILE + within * 2 * TILE + TILE)),
        },
        Record::SuperHalves => Scales {
            halves: [0, 1].map(|h| scale * f32::from(byte(2 * TILE + (2 * within + h) * TILE) as i8)),
            min: 0.0,
        },
    }
}

/// Reads one quant of a group's bytes: of output `lane`, input `input` of the 32.
pub(super) fn quant<F: Format>(group: &[u8], lane: usize, input: usize) -> u8 {
    let (step, byte) = (input / 4, lane * 4 + input % 4);
    if F::BITS == 8 {
        return group[step * VECTOR + byte];
    }
    let low = group[step % 4 * VECTOR + byte] >> (step / 4 * 4) & 15;
    let rest = &group[4 * VECTOR..];
    match F::BITS {
        5 => low | (rest[step * 8 + byte / 8] >> (byte % 8) & 1) << 4,
        6 => low | (rest[step / 4 * VECTOR + byte] >> (step % 4 * 2) & 3) << 4,
        _ => low,
    }
}

/// Writes the quants of a group, 32 of each output, to its bytes, which were zero: the inverse of [`quant`].
pub(super) fn interleave<F: Format>(quants: &[[u8; GROUP]; TILE], group: &mut [u8]) {
    for (lane, quants) in quants.iter().enumerate() {
        // Four consecutive inputs are a word, whose bytes are worked on at once.
        let mut words = [0; STEPS];
        for (word, bytes) in words.iter_mut().zip(quants.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let mut set = |vector: usize, word: u32| {
            group[vector * VECTOR + 4 * lane..][..4].copy_from_slice(&word.to_le_bytes());
        };
        if F::BITS == 8 {
            words
                .into_iter()
                .enumerate()
                .for_each(|(step, word)| set(step, word));
            continue;
        }
        let low = words.map(|word| word & 0x0f0f_0f0f);
        for step in 0..STEPS / 2 {
            set(step, low[step] | low[step + STEPS / 2] << 4);
        }
        let high = words.map(|word| word >> 4 & 0x0303_0303);
        match F::BITS {
            5 => {
                for (step, word) in high.iter().enumerate() {
                    let nibble = (word | word >> 7 | word >> 14 | word >> 21) as u8 & 15;
                    group[4 * VECTOR + step * 8 + lane / 2] |= nibble << (4 * (lane % 2));
                }
            }
            6 => {
                for (half, high) in high.as_chunks::<4>().0.iter().enumerate() {
                    set(4 + half, high[0] | high[1] << 2 | high[2] << 4 | high[3] << 6);
                }
            }
            _ => (),
        }
    }
}
