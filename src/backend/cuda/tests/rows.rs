//! The kernels that have a row, or a row's head, per block.
//! Not attention, and not linear layers.

use super::super::device::{Address, Device, Kernel, upload};
use super::{floats, halves, in_all_orders, near, numbers, read};

#[test]
fn embeddings_are_rows_of_the_table() {
    for (hidden, tokens) in [(64, vec![3, 0, 3]), (300, vec![1]), (128, vec![4, 2])] {
        let table = halves(&numbers(1, 5 * hidden));
        let found = in_all_orders(|device| {
            let to = device.allocate(4 * tokens.len() * hidden).unwrap();
            let arguments = [
                upload(device, &table).unwrap().into(),
                upload(device, &tokens).unwrap().into(),
                to.into(),
                hidden.into(),
            ];
            device
                .launch(Kernel::Embed, [tokens.len(), 1, 1], &arguments)
                .unwrap();
            read::<f32>(device, to, tokens.len() * hidden)
        });
        let rows = tokens
            .iter()
            .map(|token: &i32| &table[*token as usize * hidden..][..hidden]);
        assert_eq!(found, rows.flat_map(floats).collect::<Vec<_>>());
    }
}

/// Root mean square norm in double precision.
fn normed(x: &[f64], weight: &[f32], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + eps).sqrt();
    x.iter()
        .zip(weight)
        .map(|(x, w)| x * scale * f64::from(*w))
        .collect()
}

#[test]
fn norms_are_of_the_sum_and_of_the_rows_that_were_picked() {
    for (hidden, rows, picks) in [
        (64, 3, None),
        (896, 2, Some(vec![1])),
        (300, 4, Some(vec![3, 0, 3])),
    ] {
        let (x, change, weight) = (
            numbers(1, rows * hidden),
            numbers(2, rows * hidden),
            numbers(3, hidden),
        );
        let all: Vec<i32> = (0..rows as i32).collect();
        let chosen = picks.as_ref().unwrap_or(&all);
        for changes in [true, false] {
            let (sums, found) = in_all_orders(|device| {
                let residual = upload(device, &x).unwrap();
                let to = device.allocate(2 * chosen.len() * hidden).unwrap();
                let arguments = [
                    residual.into(),
                    if changes {
                        upload(device, &change).unwrap()
                    } else {
                        Address::NULL
                    }
                    .into(),
                    picks
                        .as_ref()
                        .map_or(Address::NULL, |picks| upload(device, picks).unwrap())
                        .into(),
                    upload(device, &weight).unwrap().into(),
                    to.into(),
                    hidden.into(),
                    1e-6f32.into(),
                ];
                device
                    .launch(Kernel::RmsNorm, [chosen.len(), 1, 1], &arguments)
                    .unwrap();
                (
                    read::<f32>(device, residual, rows * hidden),
                    read::<u16>(device, to, chosen.len() * hidden),
                )
            });
            for (row, found) in chosen.iter().zip(found.chunks_exact(hidden)) {
                let at = *row as usize * hidden..(*row as usize + 1) * hidden;
                let sum: Vec<f32> = x[at.clone()]
                    .iter()
                    .zip(&change[at.clone()])
                    .map(|(x, c)| if changes { x + c } else { *x })
                    .collect();
                let kept = if picks.is_some() { &x[at.clone()] } else { &sum };
                assert_eq!(sums[at], *kept);
                let sum: Vec<f64> = sum.iter().map(|x| f64::from(*x)).collect();
                near(&floats(found), &normed(&sum, &weight, 1e-6), 5e-4);
            }
        }
    }
}

#[test]
fn activations_keep_what_fp16_does_not_hold() {
    for (width, size) in [(64, 1.0), (1000, 30.0), (384, 3e4)] {
        let rows = 3;
        let mut both = numbers(4, rows * 2 * width);
        // The last row is so large that only its factor saves it.
        both[2 * 2 * width..].iter_mut().for_each(|x| *x *= size);
        let (found, factors) = in_all_orders(|device| {
            let y = device.allocate(2 * rows * width).unwrap();
            let factors = device.allocate(4 * rows).unwrap();
            let both = upload(device, &both).unwrap();
            let arguments = [both.into(), y.into(), factors.into(), width.into()];
            device.launch(Kernel::Silu, [rows, 1, 1], &arguments).unwrap();
            (
                read::<u16>(device, y, rows * width),
                read::<f32>(device, factors, rows),
            )
        });
        for (row, factor) in factors.iter().enumerate() {
            let (gate, up) = both[row * 2 * width..][..2 * width].split_at(width);
            let expected: Vec<f64> = gate
                .iter()
                .zip(up)
                .map(|(g, u)| f64::from(*g) / (1.0 + (-f64::from(*g)).exp()) * f64::from(*u))
                .collect();
            let scaled: Vec<f32> = floats(&found[row * width..][..width])
                .iter()
                .map(|y| y * factor)
                .collect();
            near(&scaled, &expected, 5e-4);
            assert_eq!(factor.log2().fract(), 0.0);
            assert_eq!(*factor > 1.0, row == 2 && size == 3e4);
        }
    }
}

#[test]
fn numbers_that_are_none_stay_so_in_their_row() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut both = numbers(4, 2 * 2 * 64);
        both[70] = bad;
        let found = in_all_orders(|device| {
            let y = device.allocate(2 * 2 * 64).unwrap();
            let factors = device.allocate(8).unwrap();
            let both = upload(device, &both).unwrap();
            let arguments = [both.into(), y.into(), factors.into(), 64usize.into()];
            device.launch(Kernel::Silu, [2, 1, 1], &arguments).unwrap();
            read::<u16>(device, y, 2 * 64)
        });
        let found = floats(&found);
        assert!(found[..64].iter().any(|x| !x.is_finite()));
        assert!(found[64..].iter().all(|x| x.is_finite()));
    }
}

/// A layer's part of a cache of two layers, before and after some rows were placed.
#[test]
fn rotations_turn_by_the_position_and_keys_and_values_lie_in_their_block() {
    const KV: usize = 2;
    for (dim, heads, norms) in [(64, 6, false), (128, 2, true)] {
        let (rows, blocks, layers) = (3, 4, 2);
        let places: [i32; 6] = [0, 2, 37, 0, 95, 3];
        let width = (heads + 2 * KV) * dim;
        let qkv = numbers(5, rows * width);
        let weights = numbers(6, 2 * dim);
        let half = dim / 2;
        let angle = |position: usize, i: usize| position as f64 * 1e4f64.powf(-2.0 * i as f64 / dim as f64);
        let mut angles = Vec::new();
        for position in 0..96 {
            angles.extend((0..half).map(|i| angle(position, i).cos() as f32));
            angles.extend((0..half).map(|i| angle(position, i).sin() as f32));
        }
        let part = KV * 64 * dim;
        let stride = layers * part;
        let (queries, cache) = in_all_orders(|device| {
            let queries = device.allocate(2 * rows * heads * dim).unwrap();
            let cache = device.allocate(2 * blocks * stride).unwrap();
            let arguments = [
                upload(device, &qkv).unwrap().into(),
                upload(device, &angles).unwrap().into(),
                upload(device, &places).unwrap().into(),
                if norms {
                    upload(device, &weights).unwrap()
                } else {
                    Address::NULL
                }
                .into(),
                queries.into(),
                cache.of::<u16>(part).into(),
                heads.into(),
                KV.into(),
                dim.into(),
                stride.into(),
                1e-6f32.into(),
            ];
            device
                .launch(Kernel::Rope, [rows, heads + 2 * KV, 1], &arguments)
                .unwrap();
            (
                read::<u16>(device, queries, rows * heads * dim),
                read::<u16>(device, cache, blocks * stride),
            )
        });
        let (queries, cache) = (floats(&queries), floats(&cache));
        let mut written = 0;
        for row in 0..rows {
            let (position, block) = (places[2 * row] as usize, places[2 * row + 1] as usize);
            for head in 0..heads + 2 * KV {
                let mut x: Vec<f64> = qkv[row * width + head * dim..][..dim]
                    .iter()
                    .map(|x| f64::from(*x))
                    .collect();
                let (is_query, is_value) = (head < heads, head >= heads + KV);
                if norms && !is_value {
                    x = normed(&x, &weights[if is_query { 0 } else { dim }..][..dim], 1e-6);
                }
                if !is_value {
                    for i in 0..half {
                        let (sin, cos) = angle(position, i).sin_cos();
                        (x[i], x[i + half]) =
                            (x[i] * cos - x[i + half] * sin, x[i + half] * cos + x[i] * sin);
                    }
                }
                let lies = block * stride + part + (head.wrapping_sub(heads) % KV) * 64 * dim;
                let place = position % 32;
                let values = lies + 32 * dim;
                let found: Vec<f32> = match (is_query, is_value) {
                    (true, _) => queries[(row * heads + head) * dim..][..dim].to_vec(),
                    (_, false) => cache[lies + place * dim..][..dim].to_vec(),
                    (_, true) => (0..dim).map(|i| cache[values + i * 32 + place]).collect(),
                };
                near(&found, &x, 5e-4);
                written += if is_query { 0 } else { dim };
            }
        }
        let nonzero = cache.iter().filter(|x| **x != 0.0).count();
        assert!(
            nonzero <= written && nonzero > written * 9 / 10,
            "nothing else is written"
        );
    }
}

#[test]
fn the_largest_is_the_first_of_equals_and_what_is_not_finite_is_counted() {
    let (vocab, rows) = (3001, 4);
    let mut logits = numbers(7, rows * vocab);
    logits[700] = 2.0;
    logits[2999] = 2.0;
    logits[vocab] = f32::NAN;
    logits[vocab + 5] = f32::INFINITY;
    logits[vocab + 3000] = 1.5;
    logits[2 * vocab..3 * vocab].fill(-3.0);
    logits[3 * vocab..].fill(f32::NEG_INFINITY);
    let found = in_all_orders(|device| {
        let to = device.allocate(8 * rows).unwrap();
        let arguments = [upload(device, &logits).unwrap().into(), to.into(), vocab.into()];
        device.launch(Kernel::Argmax, [rows, 1, 1], &arguments).unwrap();
        read::<i32>(device, to, 2 * rows)
    });
    assert_eq!(found[..6], [700, 0, 3000, 2, 0, 0]);
    assert_eq!(found[7], vocab as i32);
}
