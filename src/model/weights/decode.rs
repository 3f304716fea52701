//! The plain meaning of ggml's block formats: bytes to float32.
//!
//! Not fast: backends compute with the bytes themselves and are compared with this. Source: the layouts of ggml's
//! quantised blocks; all scales are float16, little-endian.

use half::{bf16, f16};

use super::BlockType;
use crate::model::ModelError;

/// Decodes consecutive blocks.
///
/// # Errors
/// A format that is known by name and size only.
pub(super) fn blocks(block: BlockType, bytes: &[u8]) -> Result<Vec<f32>, ModelError> {
    let decode: fn(&[u8], &mut Vec<f32>) = match block {
        BlockType::F32 => |b, out| out.push(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        BlockType::F16 => |b, out| out.push(half(b, 0)),
        BlockType::Bf16 => |b, out| out.push(bf16::from_le_bytes([b[0], b[1]]).to_f32()),
        BlockType::Q4_0 => |b, out| halves(&b[2..], |q, _| half(b, 0) * (q - 8.0), out),
        BlockType::Q4_1 => |b, out| halves(&b[4..], |q, _| half(b, 0) * q + half(b, 2), out),
        BlockType::Q5_0 => |b, out| {
            let high = u32::from_le_bytes([b[2], b[3], b[4], b[5]]);
            halves(&b[6..], |q, i| half(b, 0) * (q + fifth(high, i) - 16.0), out);
        },
        BlockType::Q5_1 => |b, out| {
            let high = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
            halves(
                &b[8..],
                |q, i| half(b, 0) * (q + fifth(high, i)) + half(b, 2),
                out,
            );
        },
        BlockType::Q8_0 => |b, out| out.extend(b[2..].iter().map(|&q| half(b, 0) * f32::from(q as i8))),
        BlockType::Q4K => |b, out| {
            for i in 0..256 {
                let (scale, min) = scale_min(&b[4..16], i / 32);
                let q = b[16 + i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15;
                out.push(half(b, 0) * scale * f32::from(q) - half(b, 2) * min);
            }
        },
        BlockType::Q5K => |b, out| {
            for i in 0..256 {
                let (scale, min) = scale_min(&b[4..16], i / 32);
                let low = b[48 + i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15;
                let high = (b[16 + i % 32] >> (i / 32) & 1) << 4;
                out.push(half(b, 0) * scale * f32::from(low | high) - half(b, 2) * min);
            }
        },
        BlockType::Q6K => |b, out| {
            for i in 0..256 {
                let (part, within) = (i / 128, i % 128);
                let low = b[part * 64 + within % 64] >> (4 * (within / 64)) & 15;
                let high = b[128 + part * 32 + within % 32] >> (2 * (within / 32)) & 3;
                let q = f32::from(low | high << 4) - 32.0;
                out.push(half(b, 208) * f32::from(b[192 + i / 16] as i8) * q);
            }
        },
        BlockType::Q2K | BlockType::Q3K => {
            return Err(ModelError::NoDecoder { block: block.name() });
        }
    };
    let mut out = Vec::with_capacity(bytes.len() / block.bytes() * block.numbers());
    for one in bytes.chunks_exact(block.bytes()) {
        decode(one, &mut out);
    }
    Ok(out)
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Number `i` of a 32-block lies in the low half of byte `i`, number `16 + i` in the high one.
fn halves(bytes: &[u8], value: impl Fn(f32, usize) -> f32, out: &mut Vec<f32>) {
    for i in 0..32 {
        out.push(value(f32::from(bytes[i % 16] >> (4 * (i / 16)) & 15), i));
    }
}

/// The fifth bit of number `i`, as its weight.
fn fifth(high: u32, i: usize) -> f32 {
    (high >> i & 1) as f32 * 16.0
}

/// Scale and minimum of 32-group `j` out of the 12 bytes that hold eight of each in 6 bits.
pub(crate) fn six_bits(packed: &[u8], j: usize) -> (u8, u8) {
    match j {
        0..4 => (packed[j] & 63, packed[j + 4] & 63),
        _ => (
            packed[j + 4] & 15 | packed[j - 4] >> 6 << 4,
            packed[j + 4] >> 4 | packed[j] >> 6 << 4,
        ),
    }
}

fn scale_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = six_bits(packed, j);
    (scale.into(), min.into())
}
