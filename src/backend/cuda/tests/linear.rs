//! Linear layers: every size of kernel gives the same bits, and they are those of the stored weights within rounding.
//! Not which size is chosen for how many rows: any is right.

use half::f16;

use super::super::device::{Address, Device, Size, upload};
use super::super::linear::{Input, Linear};
use super::{halves, in_all_orders, near, numbers, read};
use crate::model::weights::{Awq, BlockType, Stored};
use crate::rng;

const SIZES: [Size; 4] = [Size::S8, Size::S16, Size::S32, Size::Large];

fn awq(stream: u64, rows: usize, cols: usize, group: usize) -> Stored {
    let mut awq = Awq::zeroed(rows, cols, group);
    let word = |i: usize| rng::value(23, stream, i as u64) as u32;
    awq.qweight.iter_mut().enumerate().for_each(|(i, w)| *w = word(i));
    awq.qzeros
        .iter_mut()
        .enumerate()
        .for_each(|(i, w)| *w = word(i + (1 << 40)));
    for (i, scale) in awq.scales.iter_mut().enumerate() {
        *scale = f16::from_f64(0.002 + 0.01 * rng::unit(29, stream, i as u64)).to_bits();
    }
    Stored::Awq(awq)
}

fn fp16(stream: u64, rows: usize, cols: usize) -> Stored {
    let numbers = halves(&numbers(stream, rows * cols));
    Stored::Blocks {
        block: BlockType::F16,
        rows,
        cols,
        bytes: numbers.iter().flat_map(|half| half.to_le_bytes()).collect(),
    }
}

/// `parts` side by side with `rows` rows of activations: all kernels against the numbers that the parts decode to.
fn check(parts: &[Stored], rows: usize, biased: bool, factored: bool) {
    let inputs = parts[0].shape().1;
    let outputs: usize = parts.iter().map(|part| part.shape().0).sum();
    let x = halves(&numbers(1, rows * inputs));
    let bias = biased.then(|| numbers(2, outputs));
    let factors: Vec<f32> = (0..rows)
        .map(|row| {
            if factored {
                f32::exp2(row as f32 % 5.0)
            } else {
                1.0
            }
        })
        .collect();
    let weights: Vec<f32> = parts.iter().flat_map(|part| part.decode().unwrap()).collect();
    let mut expected = Vec::new();
    for (row, factor) in x.chunks_exact(inputs).zip(&factors) {
        let row = super::floats(row);
        for (output, weights) in weights.chunks_exact(inputs).enumerate() {
            let products = row
                .iter()
                .zip(weights)
                .map(|(x, w)| f64::from(*x) * f64::from(*w));
            let bias = bias.as_ref().map_or(0.0, |bias| f64::from(bias[output]));
            expected.push(products.sum::<f64>() * f64::from(*factor) + bias);
        }
    }
    let found = SIZES.map(|size| {
        in_all_orders(|device| {
            let linear = Linear::new(device, parts, bias.as_deref()).unwrap();
            let input = Input {
                x: upload(device, &x).unwrap(),
                factors: match factored {
                    true => upload(device, &factors).unwrap(),
                    false => Address::NULL,
                },
                rows,
            };
            let y = device.allocate(4 * rows * outputs).unwrap();
            linear.forward_as(device, input, y, size).unwrap();
            read::<u32>(device, y, rows * outputs)
        })
    });
    for (found, size) in found.iter().zip(SIZES) {
        let numbers: Vec<f32> = found.iter().map(|bits| f32::from_bits(*bits)).collect();
        near(&numbers, &expected, 3e-6);
        assert_eq!(found.len(), rows * outputs, "{size:?}");
    }
    assert!(
        found.iter().all(|other| *other == found[0]),
        "sizes differ in their bits"
    );
}

#[test]
fn four_bits_are_what_they_decode_to_in_every_size() {
    for (stream, (rows, cols, group, tokens)) in [
        (64, 256, 128, 1),
        (40, 384, 128, 9),
        (136, 1280, 128, 67),
        (24, 320, 64, 33),
        (16, 192, 32, 3),
        (8, 64, 64, 17),
    ]
    .into_iter()
    .enumerate()
    {
        let part = awq(stream as u64, rows, cols, group);
        check(&[part], tokens, stream % 2 == 0, stream % 3 == 0);
    }
}

#[test]
fn halves_are_what_they_are_in_every_size() {
    for (stream, (rows, cols, tokens)) in [(16, 64, 1), (50, 640, 8), (131, 192, 65), (7, 1088, 20)]
        .into_iter()
        .enumerate()
    {
        check(
            &[fp16(stream as u64, rows, cols)],
            tokens,
            stream % 2 == 1,
            stream % 2 == 0,
        );
    }
}

#[test]
fn layers_side_by_side_are_each_on_its_own() {
    let parts = [awq(1, 48, 256, 128), awq(2, 16, 256, 128), awq(3, 24, 256, 128)];
    check(&parts[..2], 5, true, false);
    check(&[fp16(1, 32, 128), fp16(2, 16, 128)], 5, true, false);
}

#[test]
fn what_no_kernel_takes_is_said() {
    let said = |parts: &[Stored]| {
        let mut device = super::Emulator::new(super::Order::Ascending, 1);
        Linear::new(&mut device, parts, None).unwrap_err()
    };
    assert!(said(&[awq(1, 16, 96, 32)]).contains("multiples of 64, found 96"));
    assert!(said(&[awq(1, 16, 256, 256)]).contains("groups of 256"));
    assert!(said(&[awq(1, 24, 128, 64), awq(2, 16, 128, 64)]).contains("(24, 128)"));
    assert!(said(&[awq(1, 16, 128, 64), fp16(2, 16, 128)]).contains("different ways"));
    let large = Stored::Blocks {
        block: BlockType::F32,
        rows: 1,
        cols: 64,
        bytes: [7e4f32; 64].iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    assert!(said(&[large]).contains("70000 is more than fp16 holds"));
    let q8 = Stored::Blocks {
        block: BlockType::Q8_0,
        rows: 1,
        cols: 64,
        bytes: vec![0; 68],
    };
    assert!(said(&[q8]).contains("found Q8_0"));
}
