//! Every kernel on the emulator against plain arithmetic in double precision, on random shapes with tails, with the
//! threads of a block in three orders.
//!
//! Not the decoder as a whole (that is `tests/cuda.rs`).

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says what it did not check

mod attention;
mod linear;
mod mutants;
mod rows;

use half::f16;

use super::device::{Address, Device, Kernel};
use super::emulator::{Emulator, Order};
use crate::rng;

/// All that a kernel's result must not depend on.
const ORDERS: [Order; 3] = [Order::Ascending, Order::Descending, Order::Shuffled(5)];

/// `count` numbers in -1 to 1.
fn numbers(stream: u64, count: usize) -> Vec<f32> {
    (0..count as u64)
        .map(|i| (2.0 * rng::unit(19, stream, i) - 1.0) as f32)
        .collect()
}

fn halves(numbers: &[f32]) -> Vec<u16> {
    numbers.iter().map(|x| f16::from_f32(*x).to_bits()).collect()
}

fn floats(halves: &[u16]) -> Vec<f32> {
    halves.iter().map(|x| f16::from_bits(*x).to_f32()).collect()
}

/// Reads `count` numbers.
fn read<T: bytemuck::Pod>(device: &mut dyn Device, from: Address, count: usize) -> Vec<T> {
    let mut found = vec![T::zeroed(); count];
    device.read(from, bytemuck::cast_slice_mut(&mut found)).unwrap();
    found
}

/// What `run` gives on an emulator, the same bits in every order.
fn in_all_orders<T: PartialEq + std::fmt::Debug>(run: impl Fn(&mut Emulator) -> T) -> T {
    let mut found = ORDERS.map(|order| run(&mut Emulator::new(order, 1))).into_iter();
    let first = found.next().unwrap();
    for other in found {
        assert!(first == other, "the result depends on the order of threads");
    }
    first
}

/// No number may be further from its twin than `bound` of the largest.
fn near(found: &[f32], expected: &[f64], bound: f64) {
    assert_eq!(found.len(), expected.len());
    let most = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (f64::from(*found) - expected).abs();
        assert!(
            off <= bound * most,
            "number {index}: {found}, not {expected} (largest {most})"
        );
    }
}

#[test]
fn the_emulator_has_the_kernels_that_the_backend_names() {
    let (mut have, mut named) = (
        Emulator::kernels(),
        Kernel::all().into_iter().map(Kernel::name).collect::<Vec<_>>(),
    );
    have.sort();
    named.sort();
    assert_eq!(have, named);
}
