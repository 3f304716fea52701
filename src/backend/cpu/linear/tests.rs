//! Packing loses nothing, products are what the weights say, and all instruction sets give the plain version's bits.
//!
//! Not speed. Shapes have tails: outputs that fill no tile, rows that fill no register block.

use half::f16;

use super::super::single::weight;
use super::*;
use crate::model::weights::{Awq, BlockType};
use crate::rng;

const BLOCKS: [BlockType; 8] = [
    BlockType::Q4_0,
    BlockType::Q4_1,
    BlockType::Q5_0,
    BlockType::Q5_1,
    BlockType::Q8_0,
    BlockType::Q4K,
    BlockType::Q5K,
    BlockType::Q6K,
];

fn awq(group: usize, rows: usize, cols: usize, seed: u64) -> Stored {
    let word = |stream, i: usize| (rng::value(seed, stream, i as u64) >> 7) as u32;
    let scale = |i| f16::from_f64(rng::unit(seed, 3, i as u64) * 0.02 + 1e-4).to_bits();
    Stored::Awq(Awq {
        rows,
        cols,
        group,
        qweight: (0..cols * rows / 8).map(|i| word(1, i)).collect(),
        qzeros: (0..cols / group * rows / 8).map(|i| word(2, i)).collect(),
        scales: (0..cols / group * rows).map(scale).collect(),
    })
}

/// A matrix of each kind that this backend computes with.
fn matrices(rows: usize, cols: usize, seed: u64) -> Vec<Stored> {
    let quantised = BLOCKS
        .into_iter()
        .filter(|block| cols.is_multiple_of(block.numbers()));
    let floats = [BlockType::F32, BlockType::F16, BlockType::Bf16];
    let mut all: Vec<Stored> = quantised
        .chain(floats)
        .map(|block| weight(block, rows, cols, seed))
        .collect();
    if rows.is_multiple_of(8) {
        let groups = [32, 64, 128]
            .into_iter()
            .filter(|group| cols.is_multiple_of(*group));
        all.extend(groups.map(|group| awq(group, rows, cols, seed)));
    }
    all
}

fn activations(rows: usize, cols: usize, seed: u64) -> Vec<f32> {
    let mut x: Vec<f32> = (0..rows * cols)
        .map(|i| (rng::unit(seed, 9, i as u64) * 4.0 - 2.0) as f32)
        .collect();
    // A group of zeros and one with an outlier.
    x[..32.min(cols)].fill(0.0);
    x[rows * cols - 1] = 90.0;
    x
}

fn compute(
    isa: Isa,
    arithmetic: Arithmetic,
    threads: usize,
    layer: &Linear,
    x: &[f32],
    cols: usize,
) -> Vec<f32> {
    let pool = Pool::new(threads).unwrap();
    let context = Context {
        isa,
        arithmetic,
        pool: &pool,
    };
    let mut quantized = Quantized::default();
    let mut out = vec![0.0; x.len() / cols * layer.outputs()];
    let mut x = x.to_vec();
    let input = prepare(context, &mut x, cols, &mut quantized, |_, _| ());
    forward(context, &input, &mut [(layer, &mut out)]);
    out
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn packed_rows_are_the_numbers_of_the_file() {
    let pool = Pool::new(1).unwrap();
    for (rows, cols) in [(16, 256), (40, 512), (3, 256), (24, 128), (17, 32), (5, 7)] {
        for stored in matrices(rows, cols, 5) {
            let layer = Linear::new(&stored, None, &pool);
            let Ok(layer) = layer else {
                panic!("{:?}: {}", stored.shape(), layer.unwrap_err())
            };
            let right = stored.decode().unwrap();
            let mut row = vec![0.0; cols];
            for (r, right) in right.chunks_exact(cols).enumerate() {
                layer.row(r, &mut row);
                assert_eq!(row, right, "row {r} of {rows} x {cols}");
            }
        }
    }
}

#[test]
fn every_instruction_set_gives_the_plain_bits() {
    let pool = Pool::new(2).unwrap();
    let isas = Isa::available();
    for (seed, (outputs, cols, rows)) in [
        (16, 256, 1),
        (40, 512, 3),
        (19, 256, 8),
        (33, 768, 5),
        (8, 128, 17),
        (50, 96, 9),
        (7, 37, 4),
        // More groups than a panel, more rows than a pass, more rows than a task.
        (24, 1280, 21),
        (20, 544, 16),
        (16, 512, 300),
    ]
    .into_iter()
    .enumerate()
    {
        let x = activations(rows, cols, seed as u64);
        for stored in matrices(outputs, cols, 40 + seed as u64) {
            let bias = || (0..outputs).map(|i| i as f32 * 0.25).collect();
            let bias = seed.is_multiple_of(2).then(bias);
            let layer = Linear::new(&stored, bias, &pool).unwrap();
            for arithmetic in [Arithmetic::Fast, Arithmetic::Exact] {
                let plain = compute(isas[0], arithmetic, 1, &layer, &x, cols);
                assert!(plain.iter().all(|x| x.is_finite()));
                for &isa in &isas[1..] {
                    let fast = compute(isa, arithmetic, 2, &layer, &x, cols);
                    let name = isa.name();
                    assert_eq!(
                        bits(&fast),
                        bits(&plain),
                        "{name} {arithmetic:?} {outputs} x {cols}, {rows} rows"
                    );
                }
                // A row alone has the bits that it has among others.
                let last = compute(Isa::best(), arithmetic, 1, &layer, &x[(rows - 1) * cols..], cols);
                assert_eq!(bits(&last), bits(&plain[(rows - 1) * outputs..]));
            }
        }
    }
}

#[test]
fn products_are_what_the_weights_say() {
    let pool = Pool::new(1).unwrap();
    let (outputs, cols, rows) = (24, 256, 3);
    let mut x = activations(rows, cols, 3);
    let mut rounded = Quantized::default();
    let context = Context {
        isa: Isa::best(),
        arithmetic: Arithmetic::Fast,
        pool: &pool,
    };
    prepare(context, &mut x, cols, &mut rounded, |_, _| ());
    let dequantised: Vec<f32> = rounded
        .quants
        .iter()
        .enumerate()
        .map(|(i, &q)| f32::from(q) * rounded.scales[i / GROUP])
        .collect();
    for stored in matrices(outputs, cols, 8) {
        let weights = stored.decode().unwrap();
        let layer = Linear::new(&stored, None, &pool).unwrap();
        let floats = matches!(layer.weight, Weight::Floats(_));
        for (arithmetic, x) in [(Arithmetic::Exact, &x), (Arithmetic::Fast, &dequantised)] {
            let input = if floats { x } else { &activations(rows, cols, 3) };
            let found = compute(Isa::best(), arithmetic, 1, &layer, input, cols);
            for (i, found) in found.iter().enumerate() {
                let (row, output) = (i / outputs, i % outputs);
                let pairs = x[row * cols..][..cols]
                    .iter()
                    .zip(&weights[output * cols..][..cols]);
                let terms: Vec<f64> = pairs.map(|(x, w)| f64::from(*x) * f64::from(*w)).collect();
                let size: f64 = terms.iter().map(|term| term.abs()).sum();
                let right: f64 = terms.iter().sum();
                assert!(
                    (f64::from(*found) - right).abs() <= 2e-6 * size + 1e-6,
                    "{arithmetic:?}: {found}, not {right}"
                );
            }
        }
    }
}

#[test]
fn what_cannot_be_packed_is_refused_in_words() {
    let pool = Pool::new(1).unwrap();
    let refused = |stored: &Stored| Linear::new(stored, None, &pool).unwrap_err();
    let mut odd = awq(32, 8, 64, 1);
    if let Stored::Awq(awq) = &mut odd {
        awq.group = 16;
    }
    assert_eq!(
        refused(&odd),
        "expected groups of 32, 64 or 128, found groups of 16"
    );
    let q2 = Stored::Blocks {
        block: BlockType::Q2K,
        rows: 1,
        cols: 256,
        bytes: vec![0; 84],
    };
    assert_eq!(refused(&q2), "this backend does not compute with Q2_K");
}
