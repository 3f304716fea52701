//! Guesses at a row's next tokens, copied from earlier in the row: a retry repeats most of the rejected plan, and takes
//! what it changes from the alternatives in the feedback (prompt lookup; speculative decoding without a second model).
//!
//! Not a choice of tokens: a guess is computed together with the token before it and kept only where the sampler
//! chooses the same, so drafts change how many passes a completion takes and no bit of it.

use serde::{Deserialize, Serialize};

/// Tokens at the end of a row that must have occurred before.
const LEAST: usize = 2;
/// Longer matches are not preferred to this one: the later place is then the better guess.
const LONGEST: usize = 8;

/// Guessed and confirmed tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drafts {
    /// Tokens that were computed on a guess.
    pub guessed: u64,
    /// Of these, those that the sampler chose.
    pub confirmed: u64,
}

impl std::ops::AddAssign for Drafts {
    fn add_assign(&mut self, other: Self) {
        self.guessed += other.guessed;
        self.confirmed += other.confirmed;
    }
}

/// How many tokens are worth guessing behind a match of `length` tokens, in a pass of `rows` rows. The more rows share a
/// pass, the less a guess spares, while it always costs a row of arithmetic: short matches, of which less than every
/// second comes true, are for passes that wait for memory anyway (measured: `benches/LOG.md`).
fn worth(length: usize, rows: usize) -> usize {
    match length {
        LONGEST.. => usize::MAX,
        6.. if rows <= 8 => 4,
        LEAST.. if rows <= 2 => 2,
        _ => 0,
    }
}

/// At most `most` tokens that followed the end of `tokens` where it occurred before: the longest such end, and of
/// several places the last. Empty when there is none, or none that is worth a guess in a pass of `rows` rows.
pub fn lookup(tokens: &[u32], most: usize, rows: usize) -> &[u32] {
    let mut best = (0, 0);
    // A place is given by where its continuation starts.
    for place in (LEAST..tokens.len()).rev() {
        let earlier = tokens[..place].iter().rev();
        let same = earlier.zip(tokens.iter().rev()).take(LONGEST);
        let length = same.take_while(|(a, b)| a == b).count();
        if length > best.0 {
            best = (length, place);
            if length == LONGEST {
                break;
            }
        }
    }
    let (length, place) = best;
    let most = most.min(worth(length, rows));
    &tokens[place..tokens.len().min(place.saturating_add(most))]
}

/// How far a row's guesses are worth computing, from how the last ones fared.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    length: usize,
}

impl Default for Reach {
    fn default() -> Self {
        Self { length: 4 }
    }
}

impl Reach {
    /// Tokens that the next guess may have.
    pub fn length(self) -> usize {
        self.length
    }

    /// Takes note of a guess: all right doubles the reach, otherwise it is what was right and one more.
    pub fn learn(&mut self, guessed: usize, confirmed: usize) {
        if guessed == 0 {
            return;
        }
        self.length = match confirmed == guessed {
            true => self.length.max(2 * guessed).min(64),
            false => confirmed + 1,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_match_wins_then_the_last() {
        assert_eq!(lookup(&[1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 1, 1), [9]);
        assert_eq!(lookup(&[2, 3, 9, 2, 3, 8, 2, 3], 5, 1), [8, 2]);
        assert_eq!(lookup(&[1, 9, 1], 5, 1), [] as [u32; 0], "one token is no match");
        assert_eq!(lookup(&[5, 5, 5], 5, 1), [5], "matches may overlap");
        for few in [&[] as &[u32], &[1], &[1, 1]] {
            assert!(lookup(few, 4, 1).is_empty());
        }
    }

    #[test]
    fn crowded_passes_take_only_long_matches() {
        let sequence = |length: u32| -> Vec<u32> { (0..length).chain(50..60).chain(0..length).collect() };
        let guessed = |length, rows| lookup(&sequence(length), 9, rows).len();
        assert_eq!([1, 2, 3].map(|rows| guessed(3, rows)), [2, 2, 0]);
        assert_eq!([1, 8, 9].map(|rows| guessed(6, rows)), [4, 4, 0]);
        assert_eq!([1, 8, 99].map(|rows| guessed(8, rows)), [9, 9, 9]);
    }

    #[test]
    fn reach_follows_success() {
        let mut reach = Reach::default();
        reach.learn(0, 0);
        assert_eq!(reach.length(), 4);
        for (guessed, confirmed, length) in [
            (4, 4, 8),
            (8, 8, 16),
            (3, 3, 16),
            (16, 2, 3),
            (3, 0, 1),
            (1, 1, 2),
        ] {
            reach.learn(guessed, confirmed);
            assert_eq!(reach.length(), length);
        }
    }

    proptest! {
        /// The rule itself, in the plainest words.
        #[test]
        fn lookup_is_what_it_says(tokens in prop::collection::vec(0u32..3, 0..40), most in 0usize..10, rows in 1usize..20) {
            let end = |place: usize, n: usize| n <= place && tokens[..place].ends_with(&tokens[tokens.len() - n..]);
            let places = |n: usize| (n..tokens.len()).rev().find(|&place| end(place, n));
            let best = (LEAST..=LONGEST.min(tokens.len())).rev().find_map(places);
            let length = |place: &usize| (LEAST..=LONGEST).rev().find(|&n| n <= tokens.len() && end(*place, n));
            let most = best.as_ref().and_then(length).map_or(0, |length| most.min(worth(length, rows)));
            let right = best.map_or(&[][..], |place| &tokens[place..tokens.len().min(place + most)]);
            prop_assert_eq!(lookup(&tokens, most, rows), right);
        }
    }
}
