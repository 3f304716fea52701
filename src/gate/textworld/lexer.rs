//! The rule text cut into tokens.
//!
//! Not the grammar (`rules.rs`): any token may follow any other here.

use super::error::{GameError, quoted};

/// A token of the rule text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'t> {
    /// A type, rule, predicate or placeholder name.
    Word(&'t str),
    /// The inside of `"…"` or `"""…"""`.
    Text(&'t str),
    /// `::`, `->` or one of `{ } ( ) : ; , = & $`.
    Mark(&'t str),
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(w) | Self::Mark(w) => f.write_str(&quoted(w)),
            Self::Text(_) => f.write_str("a quoted text"),
        }
    }
}

/// Cuts `text` into tokens, each with its line, from 1.
///
/// # Errors
/// [`GameError::Rules`] at an unknown character or an unclosed text.
pub fn tokens<'t>(text: &'t str, file: &str) -> Result<Vec<(Token<'t>, usize)>, GameError> {
    let mut out = Vec::new();
    let mut line = 1;
    let mut rest = text;
    let fail = |line, expected: &str, found: String| {
        Err(GameError::Rules {
            file: file.into(),
            line,
            expected: expected.into(),
            found,
        })
    };
    while let Some(c) = rest.chars().next() {
        let at = line;
        let length = match c {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' => {
                let quotes = if rest.starts_with("\"\"\"") {
                    "\"\"\""
                } else {
                    "\""
                };
                let body = &rest[quotes.len()..];
                let Some(end) = body.find(quotes) else {
                    return fail(line, &format!("a closing {quotes}"), "the end of the text".into());
                };
                out.push((Token::Text(&body[..end]), at));
                end + 2 * quotes.len()
            }
            _ if c.is_whitespace() => c.len_utf8(),
            _ if is_word(c) || c == '!' => {
                let first = c.len_utf8();
                let end = rest[first..]
                    .find(|d| !is_word(d))
                    .map_or(rest.len(), |i| i + first);
                out.push((Token::Word(&rest[..end]), at));
                end
            }
            _ => {
                let Some(mark) = MARKS.iter().find(|m| rest.starts_with(**m)) else {
                    return fail(
                        line,
                        "a name, a text or a mark",
                        quoted(c.encode_utf8(&mut [0; 4])),
                    );
                };
                out.push((Token::Mark(&rest[..mark.len()]), at));
                mark.len()
            }
        };
        let (taken, after) = rest.split_at(length);
        line += taken.bytes().filter(|b| *b == b'\n').count();
        rest = after;
    }
    Ok(out)
}

const MARKS: [&str; 12] = ["::", "->", "{", "}", "(", ")", ":", ";", ",", "=", "&", "$"];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '/' | '\'')
}
