//! The small operations: each against its definition in float64, and the same bits on every instruction set.
//!
//! Not products with weights (`linear::tests`) and not whole models.

use super::attention::{Heads, Span, attend};
use super::isa::Isa;
use super::kv::KvCache;
use super::norm::rms_norm;
use super::pool::Pool;
use super::quantize::{GROUP, Quantized, Rows, quantize};
use super::rope::{Rope, rotate};
use super::silu::silu_mul;
use crate::backend::{BLOCK, BlockId};
use crate::model::config::{Architecture, Config};
use crate::rng;

fn numbers(seed: u64, count: usize) -> Vec<f32> {
    (0..count)
        .map(|i| (rng::unit(seed, 4, i as u64) * 6.0 - 3.0) as f32)
        .collect()
}

/// Runs on every instruction set; the results must be equal to the bit, and the first is returned.
fn same(run: impl Fn(Isa) -> Vec<f32>) -> Vec<f32> {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let isas = Isa::available();
    let plain = run(isas[0]);
    for isa in &isas[1..] {
        assert_eq!(bits(&run(*isa)), bits(&plain), "{}", isa.name());
    }
    plain
}

fn near(found: f32, right: f64, allowed: f64) {
    assert!(
        (f64::from(found) - right).abs() <= allowed,
        "{found}, not {right}"
    );
}

#[test]
fn norms() {
    for columns in [1, 7, 16, 17, 64, 251] {
        let (x, weight) = (numbers(1, 3 * columns), numbers(2, columns));
        let found = same(|isa| {
            let mut out = vec![0.0; x.len()];
            rms_norm(isa, &x, &weight, 1e-6, &mut out);
            out
        });
        for (i, found) in found.iter().enumerate() {
            let row = &x[i / columns * columns..][..columns];
            let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / columns as f64;
            let right = f64::from(x[i]) / (mean + 1e-6).sqrt() * f64::from(weight[i % columns]);
            near(*found, right, 1e-6 * right.abs().max(1.0));
        }
    }
}

#[test]
fn gates() {
    let (gate, up) = (numbers(1, 133), numbers(2, 133));
    let found = same(|isa| {
        let mut gate = gate.clone();
        silu_mul(isa, &mut gate, &up);
        gate
    });
    for ((found, gate), up) in found.iter().zip(&gate).zip(&up) {
        let gate = f64::from(*gate);
        near(*found, gate / (1.0 + (-gate).exp()) * f64::from(*up), 3e-6);
    }
}

#[test]
fn activations_round_to_the_nearest() {
    let mut x = numbers(3, 4 * GROUP);
    x[GROUP..2 * GROUP].fill(0.0);
    x[2 * GROUP] = f32::NAN;
    x[3 * GROUP + 5] = 1e-42;
    let run = |isa| {
        let mut q = Quantized::default();
        q.resize(1, x.len());
        // SAFETY: the only row.
        quantize(isa, &x, unsafe { Rows::of(&mut q).row(0) });
        q
    };
    same(|isa| run(isa).quants.iter().map(|&q| f32::from(q)).collect());
    same(|isa| run(isa).halves.iter().map(|&q| q as f32).collect());
    same(|isa| run(isa).scales);
    same(|isa| run(isa).totals[..2 * GROUP / GROUP].to_vec());
    let q = run(Isa::best());
    assert!(q.scales[2].is_nan(), "a NaN must show");
    assert_eq!((q.scales[1], q.halves[2], q.totals[1]), (0.0, 0, 0.0));
    let most = x[..GROUP].iter().fold(0.0f32, |most, x| most.max(x.abs()));
    assert_eq!(q.scales[0], most / 127.0);
    for (x, quant) in x[..GROUP].iter().zip(&q.quants) {
        assert!((x / q.scales[0] - f32::from(*quant)).abs() <= 0.5001);
    }
    let halves = q.quants[..GROUP]
        .chunks(16)
        .map(|h| h.iter().map(|&q| -i32::from(q)).sum());
    let halves: Vec<i32> = halves.collect();
    assert_eq!(halves, q.halves[..2]);
    assert_eq!(q.wholes[0], halves[0] + halves[1]);
}

fn config(heads: usize, kv_heads: usize, head_dim: usize) -> Config {
    Config {
        architecture: Architecture::Llama,
        vocab: 8,
        hidden: heads * head_dim,
        layers: 2,
        heads,
        kv_heads,
        head_dim,
        feed_forward: 32,
        context: 4096,
        rope_theta: 10_000.0,
        rms_eps: 1e-5,
        tied: true,
        rope_factors: vec![1.0; head_dim / 2],
    }
}

#[test]
fn rotations_keep_lengths_and_turn_by_the_position() {
    let (config, mut rope) = (config(2, 1, 10), Rope::default());
    rope.extend(&config, 40);
    rope.extend(&config, 20);
    let x = numbers(5, 20);
    let found = same(|isa| {
        let mut x = x.clone();
        let (cos, sin) = rope.at(37);
        rotate(isa, &mut x, cos, sin, 1.0);
        x
    });
    for pair in 0..5 {
        let angle = 37.0 * 10_000f64.powf(-2.0 * pair as f64 / 10.0);
        let (a, b) = (f64::from(x[10 + pair]), f64::from(x[15 + pair]));
        near(found[10 + pair], a * angle.cos() - b * angle.sin(), 2e-5);
        near(found[15 + pair], b * angle.cos() + a * angle.sin(), 2e-5);
    }
}

/// Attention of the positions `start .. end` after all were stored, in one span or several.
fn attention(isa: Isa, shape: (usize, usize, usize), end: usize, cuts: &[usize], garbage: f32) -> Vec<f32> {
    let (heads, kv_heads, dim) = shape;
    let config = config(heads, kv_heads, dim);
    let mut cache = KvCache::new(&config, 8).unwrap();
    // Blocks in no order, full of something that must not be looked at.
    let blocks = [5, 2, 7, 0, 3].map(BlockId);
    let rubbish = vec![garbage; kv_heads * dim];
    for position in 0..5 * BLOCK {
        cache.write(blocks[position / BLOCK], 1, position % BLOCK, &rubbish, &rubbish);
    }
    let (keys, values) = (numbers(1, end * kv_heads * dim), numbers(2, end * kv_heads * dim));
    let width = kv_heads * dim;
    for position in 0..end {
        cache.write(
            blocks[position / BLOCK],
            1,
            position % BLOCK,
            &keys[position * width..][..width],
            &values[position * width..][..width],
        );
    }
    let queries = numbers(3, end * heads * dim);
    let mut out = vec![0.0; queries.len()];
    let pool = Pool::new(2).unwrap();
    let heads = Heads {
        query: heads,
        kv: kv_heads,
        dim,
    };
    let mut start = 0;
    for cut in cuts.iter().chain([&end]) {
        let span = Span {
            row: start,
            count: cut - start,
            start,
            blocks: &blocks,
        };
        let mut part = vec![0.0; out.len()];
        attend(isa, &pool, heads, &queries, (&cache, 1), &[span], &mut part);
        let range = start * heads.query * dim..cut * heads.query * dim;
        out[range.clone()].copy_from_slice(&part[range]);
        start = *cut;
    }
    out
}

#[test]
fn attention_is_the_softmax_of_what_came_before() {
    for (shape, end) in [
        ((4, 2, 64), 70),
        ((6, 1, 24), 33),
        ((2, 2, 128), 1),
        ((3, 3, 40), 130),
    ] {
        let found = same(|isa| attention(isa, shape, end, &[], f32::NAN));
        let (heads, kv_heads, dim) = shape;
        let (keys, values) = (numbers(1, end * kv_heads * dim), numbers(2, end * kv_heads * dim));
        let queries = numbers(3, end * heads * dim);
        for position in 0..end {
            for head in 0..heads {
                let kv = head / (heads / kv_heads);
                let query = &queries[(position * heads + head) * dim..][..dim];
                let row = |x: &'_ [f32], i: usize| x[(i * kv_heads + kv) * dim..][..dim].to_vec();
                let weights: Vec<f64> = (0..=position)
                    .map(|i| {
                        let key = row(&keys, i);
                        let score: f64 = query
                            .iter()
                            .zip(&key)
                            .map(|(q, k)| f64::from(*q) * f64::from(*k))
                            .sum();
                        score.exp()
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                for d in 0..dim {
                    let right: f64 = (0..=position)
                        .map(|i| weights[i] / total * f64::from(row(&values, i)[d]))
                        .sum();
                    near(found[(position * heads + head) * dim + d], right, 2e-4);
                }
            }
        }
    }
}

#[test]
fn cuts_and_what_lies_beyond_change_no_bit_of_attention() {
    let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let shape = (4, 2, 64);
    let whole = bits(attention(Isa::best(), shape, 101, &[], f32::NAN));
    for cuts in [&[1][..], &[32, 64], &[5, 6, 7, 40, 41, 99], &[100]] {
        assert_eq!(
            bits(attention(Isa::best(), shape, 101, cuts, 1e30)),
            whole,
            "{cuts:?}"
        );
    }
}
