//! What a prompt has that the one before it has not.
//!
//! Not a full comparison of two texts: a retry adds its feedback in one or two places between what stays the same.

/// What a prompt has that the one before has not.
pub(super) struct NewPart<'a> {
    /// Itself.
    pub(super) text: &'a str,
    /// Whole lines before it that both share.
    pub(super) head: usize,
    /// Whole lines after it that both share.
    pub(super) tail: usize,
}

/// The lines of `now` between those it shares with `before` at the start and at the end.
pub(super) fn new_part<'a>(before: &str, now: &'a str) -> NewPart<'a> {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = now.split_inclusive('\n').collect();
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, rest) = (&old[head..], &new[head..]);
    let shared = old.iter().rev().zip(rest.iter().rev());
    let tail = shared.take_while(|(a, b)| a == b).count();
    let bytes = |lines: &[&str]| lines.iter().map(|line| line.len()).sum::<usize>();
    let start = bytes(&new[..head]);
    let end = now.len() - bytes(&rest[rest.len() - tail..]);
    NewPart {
        text: &now[start..end],
        head,
        tail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_part_is_what_the_ends_do_not_share() {
        let part = |before, now| {
            let NewPart { text, head, tail } = new_part(before, now);
            (text, head, tail)
        };
        assert_eq!(part("a\nb\nc\n", "a\nx\ny\nc\n"), ("x\ny\n", 1, 1));
        assert_eq!(part("a\nb", "a\nb\nc"), ("b\nc", 1, 0));
        assert_eq!(part("a\na\n", "a\na\na\n"), ("a\n", 2, 0));
        assert_eq!(part("é\n", "è\n"), ("è\n", 0, 0));
        assert_eq!(part("a\nb\n", "a\n"), ("", 1, 0));
    }
}
