//! Counter-based random numbers: value = f(seed, stream, index), by Philox 4×32-10.
//!
//! Not a stateful generator: any value can be had again, in any order, from its coordinates alone, which is what
//! lets a resumed row draw the numbers of an uninterrupted one.
//! Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).

const M0: u32 = 0xD251_1F53;
const M1: u32 = 0xCD9E_8D57;
const W0: u32 = 0x9E37_79B9;
const W1: u32 = 0xBB67_AE85;

/// One Philox 4×32-10 block: four random words for one counter under one key.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = u64::from(M0) * u64::from(counter[0]);
        let p1 = u64::from(M1) * u64::from(counter[2]);
        counter = [
            (p1 >> 32) as u32 ^ counter[1] ^ key[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ counter[3] ^ key[1],
            p0 as u32,
        ];
        key = [key[0].wrapping_add(W0), key[1].wrapping_add(W1)];
    }
    counter
}

/// The 64-bit value at `index` of `stream` under `seed`.
pub fn value(seed: u64, stream: u64, index: u64) -> u64 {
    let counter = [
        index as u32,
        (index >> 32) as u32,
        stream as u32,
        (stream >> 32) as u32,
    ];
    let word = philox(counter, [seed as u32, (seed >> 32) as u32]);
    u64::from(word[0]) | u64::from(word[1]) << 32
}

/// A uniform number in `[0, 1)` with 53 random bits.
pub fn unit(seed: u64, stream: u64, index: u64) -> f64 {
    (value(seed, stream, index) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A uniform integer in `0..bound` by Lemire's multiplication; the bias is below `bound / 2^64`.
///
/// Returns 0 for a bound of 0 or 1.
pub fn below(bound: u64, seed: u64, stream: u64, index: u64) -> u64 {
    ((u128::from(value(seed, stream, index)) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with Random123 (file kat_vectors, philox4x32 with 10 rounds).
    #[test]
    fn known_answers() {
        assert_eq!(
            philox([0; 4], [0; 2]),
            [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]
        );
        assert_eq!(
            philox(
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0]
            ),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn coordinates_are_independent_and_bounded() {
        let a = value(1, 2, 3);
        assert!(a != value(1, 2, 4) && a != value(1, 3, 3) && a != value(2, 2, 3));
        assert_eq!(a, value(1, 2, 3));
        assert!((0..10_000).all(|i| below(7, 9, 0, i) < 7 && unit(9, 0, i) < 1.0));
        let mean = (0..10_000).map(|i| unit(9, 1, i)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "mean of 10,000 uniforms is {mean}");
        assert_eq!(below(0, 1, 1, 1), 0);
    }
}
