//! Models of true shapes whose weights are seeded noise: what a machine would do with a model, before it is downloaded.
//!
//! Not models: there is no tokenizer, and what they say means nothing. The numbers are of a size that keeps activations
//! finite, so that every kernel does what it does on real weights.

use half::f16;
use rayon::prelude::*;

use super::{Awq, BlockType, Entry, Storage, Stored};
use crate::model::config::{Architecture, Config};
use crate::rng;

const SEED: u64 = 20_260_714;
/// Inputs that share a scale, as the published checkpoints have it.
const GROUP: usize = 128;

/// Names of shapes: those of two checkpoints on the hub, whose `config.json` is the source, and one that is nobody's, to
/// see in a second that everything works.
pub const NAMES: [&str; 3] = ["qwen2.5-coder-14b-awq", "llama-3.1-8b-awq", "tiny-awq"];

/// The configuration of a name in [`NAMES`].
pub fn config(name: &str) -> Option<Config> {
    let qwen = |hidden, layers, heads, kv_heads, feed_forward, vocab, tied| Config {
        architecture: Architecture::Qwen2,
        vocab,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim: hidden / heads,
        feed_forward,
        context: 32_768,
        rope_theta: 1e6,
        rms_eps: 1e-6,
        tied,
        rope_factors: vec![1.0; hidden / heads / 2],
    };
    Some(match name {
        "qwen2.5-coder-14b-awq" => qwen(5120, 48, 40, 8, 13_824, 152_064, false),
        "tiny-awq" => qwen(512, 2, 8, 2, 1024, 1000, true),
        // Its divisors of the rotary frequencies change no cost.
        "llama-3.1-8b-awq" => Config {
            architecture: Architecture::Llama,
            context: 131_072,
            rope_theta: 5e5,
            rms_eps: 1e-5,
            ..qwen(4096, 32, 32, 8, 14_336, 128_256, false)
        },
        _ => return None,
    })
}

/// Whether a tensor is one of the layers' matrices, which are quantised.
fn quantised(name: &str, shape: &[usize]) -> bool {
    shape.len() == 2 && name.starts_with("blk.")
}

/// What is known of each tensor.
pub(super) fn entries(config: &Config) -> Vec<(String, Entry)> {
    let entry = |(name, shape): (String, Vec<usize>)| {
        let numbers = shape.iter().product::<usize>();
        let (storage, bytes) = match quantised(&name, &shape) {
            true => {
                let groups = numbers / GROUP;
                (
                    Storage::Awq { group: GROUP },
                    numbers / 2 + 2 * groups + groups / 2,
                )
            }
            false => (Storage::Blocks(BlockType::F16), 2 * numbers),
        };
        let entry = Entry {
            shape,
            storage,
            bytes: bytes as u64,
        };
        (name, entry)
    };
    config.shapes().into_iter().map(entry).collect()
}

/// A tensor's numbers: of a matrix as large as keeps a row of products near the size of its inputs; of a norm, 1.
pub(super) fn read(name: &str, entry: &Entry) -> Stored {
    let stream = name.bytes().fold(0, |hash: u64, byte| {
        hash.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let cols = entry.shape.last().copied().unwrap_or(1);
    let rows = entry.shape.iter().product::<usize>() / cols;
    let size = 1.0 / (cols as f64).sqrt();
    match entry.storage {
        Storage::Awq { group } => {
            let mut awq = Awq::zeroed(rows, cols, group);
            fill(&mut awq.qweight, stream);
            awq.qzeros.fill(0x8888_8888);
            // Sixteen steps around the middle deviate by 4.6 of them.
            awq.scales.fill(f16::from_f64(size / 4.6).to_bits());
            Stored::Awq(awq)
        }
        Storage::Blocks(block) => {
            let bytes = match name.ends_with("norm.weight") {
                true => vec![f16::ONE.to_bits(); cols],
                false => {
                    let mut words = vec![0u32; (rows * cols).div_ceil(2)];
                    fill(&mut words, stream);
                    let half = |bits: u32| {
                        let unit = f64::from(bits & 0xffff) / 32_768.0 - 1.0;
                        f16::from_f64(1.7 * size * unit).to_bits()
                    };
                    let halves: Vec<[u16; 2]> = words
                        .par_iter()
                        .map(|word| [half(*word), half(*word >> 16)])
                        .collect();
                    halves.as_flattened()[..rows * cols].to_vec()
                }
            };
            Stored::Blocks {
                block,
                rows,
                cols,
                bytes: bytes.iter().flat_map(|half| half.to_le_bytes()).collect(),
            }
        }
    }
}

/// Random words, the same for a stream.
fn fill(words: &mut [u32], stream: u64) {
    const PIECE: usize = 1 << 14;
    words
        .par_chunks_mut(PIECE)
        .enumerate()
        .for_each(|(piece, words)| {
            for (index, words) in words.chunks_mut(4).enumerate() {
                let at = (piece * PIECE / 4 + index) as u64;
                let counter = [at as u32, (at >> 32) as u32, stream as u32, (stream >> 32) as u32];
                let random = rng::philox(counter, [SEED as u32, (SEED >> 32) as u32]);
                words.copy_from_slice(&random[..words.len()]);
            }
        });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::weights::Weights;

    #[test]
    fn shapes_are_those_of_the_published_checkpoints() {
        let sizes = NAMES.map(|name| {
            let config = config(name).unwrap();
            let entries = entries(&config);
            let numbers: usize = entries
                .iter()
                .map(|(_, e)| e.shape.iter().product::<usize>())
                .sum();
            let bytes: u64 = entries.iter().map(|(_, e)| e.bytes).sum();
            (numbers as f64 / 1e9, bytes as f64 / 1e9)
        });
        let near = |(numbers, bytes): (f64, f64), n: f64, b: f64| {
            assert!(
                (numbers - n).abs() < 0.01 && (bytes - b).abs() < 0.05,
                "{numbers} {bytes}"
            );
        };
        near(sizes[0], 14.77, 9.98);
        near(sizes[1], 8.03, 5.73);
        near(sizes[2], 0.005, 0.003);
        assert!(config("gpt-2").is_none());
    }

    #[test]
    fn numbers_are_the_same_each_time_and_of_their_size() {
        let weights = Weights::synthetic(&config("tiny-awq").unwrap());
        for name in [
            "blk.0.attn_k.weight",
            "blk.1.attn_norm.weight",
            "blk.1.attn_q.bias",
        ] {
            let stored = weights.read(name).unwrap();
            assert_eq!(stored, weights.read(name).unwrap());
            let numbers = stored.decode().unwrap();
            let square: f32 = numbers.iter().map(|x| x * x).sum::<f32>() / numbers.len() as f32;
            let (_, cols) = stored.shape();
            let expected = if name.contains("norm") {
                1.0
            } else {
                1.0 / cols as f32
            };
            assert!((square / expected - 1.0).abs() < 0.1, "{name}: {square}");
            assert_eq!(
                stored.shape().1,
                *weights.get(name).unwrap().shape.last().unwrap()
            );
        }
        let (a, b) = (
            weights.read("blk.0.attn_k.weight"),
            weights.read("blk.1.attn_k.weight"),
        );
        assert_ne!(a.unwrap(), b.unwrap());
        assert!(weights.read("blk.99.attn_k.weight").is_err());
    }
}
