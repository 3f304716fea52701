//! A page of 80 columns: escaping what a terminal would act on, and wrapping what is too long.
//!
//! Not a layout: it takes text and gives lines. Model output passes through here before anyone sees it.

/// Columns of a page.
pub const WIDTH: usize = 80;

/// Control and invisible formatting characters as `\u{..}`; line ends stay.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push('\n'),
            '\t' | '\r' => out.extend(c.escape_default()),
            c if c.is_control() || acts(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Characters that are no control characters and still change how others look: direction marks, zero-width ones,
/// line separators, tags.
fn acts(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes `text` and breaks it into lines of at most [`WIDTH`] columns that start with `margin`. A line that goes on
/// keeps its indentation.
pub fn wrap(text: &str, margin: &str) -> Vec<String> {
    let room = WIDTH.saturating_sub(columns(margin)).max(20);
    let mut lines = Vec::new();
    for line in escape(text).lines() {
        let indent = line.chars().take_while(|c| *c == ' ').count().min(room / 2);
        let mut rest = line.trim_end();
        let mut first = true;
        loop {
            let pad = if first { 0 } else { indent };
            let (head, tail) = split(rest, room - pad);
            lines.push(format!("{margin}{}{head}", " ".repeat(pad)).trim_end().to_owned());
            if tail.is_empty() {
                break;
            }
            (rest, first) = (tail, false);
        }
    }
    if lines.is_empty() {
        lines.push(format!("{margin}(empty)"));
    }
    lines
}

/// The longest head of at most `room` columns that ends before a space, or else that fits; and what follows.
fn split(text: &str, room: usize) -> (&str, &str) {
    let (mut used, mut space) = (0, None);
    for (at, c) in text.char_indices() {
        used += width(c);
        if used > room && c != ' ' {
            let end = space.unwrap_or(at);
            return (text[..end].trim_end(), text[end..].trim_start());
        }
        // A break inside the indentation would leave an empty line.
        if c == ' ' && !text[..at].trim_start().is_empty() {
            space = Some(at);
        }
    }
    (text.trim_end(), "")
}

/// Columns that a text takes.
pub fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// Columns of a character: two for East Asian wide forms and pictographs. Combining marks count as one: a line is
/// then a little short, never too long.
fn width(c: char) -> usize {
    match c {
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{a4cf}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe10}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{231a}'..='\u{23ff}'
        | '\u{2600}'..='\u{27bf}'
        | '\u{2b00}'..='\u{2bff}'
        | '\u{1f000}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        assert_eq!(
            escape("a\u{1b}[2Jb\r\n\tc\u{202e}d\u{9b}"),
            "a\\u{1b}[2Jb\\r\n\\tc\\u{202e}d\\u{9b}"
        );
    }

    #[test]
    fn long_lines_break_at_spaces_and_keep_their_indentation() {
        let lines = wrap(
            "    one two three four five six seven eight nine ten eleven twelve thirteen fourteen",
            "| ",
        );
        assert_eq!(
            lines,
            [
                "|     one two three four five six seven eight nine ten eleven twelve thirteen",
                "|     fourteen"
            ]
        );
        assert_eq!(wrap("", "| "), ["| (empty)"]);
        assert_eq!(wrap("a\n\nb", "| "), ["| a", "|", "| b"]);
        assert!(
            wrap(&"x".repeat(500), "  ")
                .iter()
                .all(|line| columns(line) <= WIDTH)
        );
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide_and_none_loses_a_word(text in "[ a-z\u{1b}\u{4e00}\n]{0,300}") {
            let lines = wrap(&text, "  | ");
            prop_assert!(lines.iter().all(|line| columns(line) <= WIDTH));
            let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>();
            if !text.is_empty() && text.lines().next().is_some() {
                prop_assert_eq!(letters(&lines.concat()), letters(&escape(&text)));
            }
        }
    }
}
