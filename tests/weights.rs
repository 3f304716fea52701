//! What the bytes of a block format mean is what candle's own reading of them says.
//!
//! Not AWQ (`folders.rs`), which is compared with the weights it was made from.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::borrow::Cow;

use candle_core::Device;
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use half::{bf16, f16};
use proptest::prelude::*;
use veriharness::model::weights::{BlockType, Stored};

/// Each format, candle's name of it, and where a block's float16 numbers stand.
const FORMATS: [(BlockType, GgmlDType, &[usize]); 11] = [
    (BlockType::F32, GgmlDType::F32, &[]),
    (BlockType::F16, GgmlDType::F16, &[0]),
    (BlockType::Bf16, GgmlDType::BF16, &[]),
    (BlockType::Q4_0, GgmlDType::Q4_0, &[0]),
    (BlockType::Q4_1, GgmlDType::Q4_1, &[0, 2]),
    (BlockType::Q5_0, GgmlDType::Q5_0, &[0]),
    (BlockType::Q5_1, GgmlDType::Q5_1, &[0, 2]),
    (BlockType::Q8_0, GgmlDType::Q8_0, &[0]),
    (BlockType::Q4K, GgmlDType::Q4K, &[0, 2]),
    (BlockType::Q5K, GgmlDType::Q5K, &[0, 2]),
    (BlockType::Q6K, GgmlDType::Q6K, &[208]),
];

/// Blocks per row, and rows, of a test.
const BLOCKS: usize = 2;
const ROWS: usize = 3;

/// Makes the floats of random bytes finite and of a size that scales have.
fn tame(block: BlockType, halves: &[usize], bytes: &mut [u8]) {
    let small = |bits: u16| f32::from(bits as i16) / 32768.0;
    for one in bytes.chunks_exact_mut(block.bytes()) {
        let bits = |at: usize| u16::from_le_bytes([one[at], one[at + 1]]);
        match block {
            BlockType::F32 => one.copy_from_slice(&small(bits(0)).to_le_bytes()),
            BlockType::Bf16 => one.copy_from_slice(&bf16::from_f32(small(bits(0))).to_le_bytes()),
            _ => {
                for &at in halves {
                    let scale = f16::from_f32(small(u16::from_le_bytes([one[at], one[at + 1]])));
                    one[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_mean_what_candle_says(
        format in prop::sample::select(FORMATS.to_vec()),
        random in prop::collection::vec(any::<u8>(), ROWS * BLOCKS * 210),
    ) {
        let (block, kind, halves) = format;
        let mut bytes = random[..ROWS * BLOCKS * block.bytes()].to_vec();
        tame(block, halves, &mut bytes);
        let cols = BLOCKS * block.numbers();
        let stored = Stored::Blocks { block, rows: ROWS, cols, bytes: bytes.clone() };
        prop_assert_eq!(stored.shape(), (ROWS, cols));
        let ours = stored.decode().unwrap();
        let storage = QStorage::from_data(Cow::Owned(bytes), &Device::Cpu, kind).unwrap();
        let tensor = QTensor::new(storage, (ROWS, cols)).unwrap();
        let theirs = tensor.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        prop_assert_eq!(ours.len(), theirs.len());
        let largest = theirs.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        for (at, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            prop_assert!((a - b).abs() <= largest * 1e-6, "{}: number {at}: {a}, not {b}", block.name());
        }
    }
}

#[test]
fn formats_without_a_meaning_here_are_errors() {
    for block in [BlockType::Q2K, BlockType::Q3K] {
        let bytes = vec![0; block.bytes()];
        let stored = Stored::Blocks {
            block,
            rows: 1,
            cols: 256,
            bytes,
        };
        let said = stored.decode().unwrap_err().to_string();
        assert!(said.contains(block.name()), "{said}");
    }
}
