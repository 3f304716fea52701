//! The text of a completion while it grows, and the strings that end it.
//!
//! Not the tokenizer: it is given bytes, which may cut a character anywhere. A stop string is found wherever it
//! lies across tokens, and text that may yet turn out to begin one is not shown before that is settled.

use std::fmt::Write;

/// The bytes of a completion so far.
#[derive(Clone, Debug, Default)]
pub struct Text {
    bytes: Vec<u8>,
}

impl Text {
    /// Appends the bytes of a token. When the text then contains one of the `stop` strings, it is cut before the
    /// first of them, and the answer is true.
    pub fn push(&mut self, token: &[u8], stop: &[String]) -> bool {
        let old = self.bytes.len();
        self.bytes.extend_from_slice(token);
        let first = stop
            .iter()
            .filter_map(|stop| find(&self.bytes, old, stop.as_bytes()))
            .min();
        if let Some(start) = first {
            self.bytes.truncate(start);
        }
        first.is_some()
    }

    /// The whole text; bytes that are not UTF-8 become U+FFFD.
    pub fn whole(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// What the text begins with whatever follows: without an unfinished character at its end, and without an end
    /// that may grow into a stop string.
    pub fn settled(&self, stop: &[String]) -> String {
        let begun = stop
            .iter()
            .map(|stop| overlap(&self.bytes, stop.as_bytes()))
            .max()
            .unwrap_or(0);
        let bytes = &self.bytes[..self.bytes.len() - begun];
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() && chunks.peek().is_some() {
                // Writing to a string cannot fail.
                let _ = text.write_char(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }
}

/// Where `needle` first ends behind the first `old` bytes, which do not contain it.
fn find(bytes: &[u8], old: usize, needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return None;
    }
    let from = old.saturating_sub(needle.len() - 1);
    let at = bytes[from..]
        .windows(needle.len())
        .position(|window| window == needle)?;
    Some(from + at)
}

/// How many of the last bytes are the beginning of `needle`, but not all of it.
fn overlap(bytes: &[u8], needle: &[u8]) -> usize {
    (1..needle.len())
        .rev()
        .find(|&n| bytes.ends_with(&needle[..n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strings(stop: &[&str]) -> Vec<String> {
        stop.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn a_stop_string_may_lie_across_tokens_and_within_characters() {
        let stop = strings(&["\n\n", "«ende»"]);
        let mut text = Text::default();
        let whole = "plan: ü «ende» more";
        let ended = whole.bytes().position(|byte| text.push(&[byte], &stop));
        assert_eq!(ended, Some("plan: ü «ende»".len() - 1));
        assert_eq!(text.whole(), "plan: ü ");
    }

    #[test]
    fn the_first_of_several_cuts_and_an_empty_one_never_does() {
        let mut text = Text::default();
        assert!(!text.push(b"ab", &strings(&["", "abc"])));
        assert!(text.push(b"cdef", &strings(&["ef", "d", ""])));
        assert_eq!(text.whole(), "abc");
    }

    #[test]
    fn what_is_not_settled_is_not_shown() {
        let stop = strings(&["</plan>", "<<"]);
        let mut text = Text::default();
        text.push("go north \u{fc}".as_bytes(), &stop);
        assert_eq!(text.settled(&stop), "go north \u{fc}");
        text.push(b"</pl", &stop);
        assert_eq!(text.settled(&stop), "go north \u{fc}");
        text.push(&"ä".as_bytes()[..1], &stop);
        assert_eq!(text.settled(&stop), "go north \u{fc}</pl");
        assert_eq!(text.whole(), "go north \u{fc}</pl\u{fffd}");
        text.push(b"x", &stop);
        assert_eq!(text.settled(&stop), "go north \u{fc}</pl\u{fffd}x");
    }

    proptest! {
        #[test]
        fn what_is_shown_stays_and_the_cut_is_the_first_one(
            tokens in prop::collection::vec(prop::collection::vec(prop::sample::select(b"ab\xc3\xa4\xe2".to_vec()), 0..4), 0..20),
            stop in prop::collection::vec("[abä]{1,3}", 0..3),
        ) {
            let mut text = Text::default();
            let (mut shown, mut all, mut ended) = (Vec::new(), Vec::new(), false);
            for token in &tokens {
                all.extend_from_slice(token);
                ended = text.push(token, &stop);
                if ended {
                    break;
                }
                shown.push(text.settled(&stop));
            }
            let first = stop.iter().filter_map(|s| find(&all, 0, s.as_bytes())).min();
            prop_assert_eq!(first.is_some(), ended);
            let whole = String::from_utf8_lossy(&all[..first.unwrap_or(all.len())]).into_owned();
            prop_assert_eq!(text.whole(), &whole[..]);
            for early in shown {
                prop_assert!(whole.starts_with(&early), "{:?} {:?}", whole, early);
            }
        }
    }
}
