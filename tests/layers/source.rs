//! Enough of Rust's syntax to find the paths that a file names: tokens, `use` groups, inline modules.
//!
//! Not a parser: macros are read as they are written, so a path that only an expansion spells is not seen.

/// An identifier, `::`, or any other single character; comments, literals and lifetimes are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its text.
    pub text: String,
    /// Its line, from 1.
    pub line: usize,
}

/// A path that starts at `crate`, `super`, `self` or `veriharness`, resolved to the crate's root.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Its segments below the root; `*` for a glob. Empty: the root itself.
    pub segments: Vec<String>,
    /// The line of its last segment.
    pub line: usize,
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The index after a string literal that opens at `at` (its quote), `hashes` deep when raw.
fn skip_string(text: &[char], mut at: usize, raw: Option<usize>) -> usize {
    at += 1;
    while at < text.len() {
        match (text[at], raw) {
            ('\\', None) => at += 1,
            ('"', None) => return at + 1,
            ('"', Some(hashes)) if text[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes => {
                return at + 1 + hashes;
            }
            _ => {}
        }
        at += 1;
    }
    at
}

/// The index after a block comment that opens at `at`; they nest.
fn skip_block_comment(text: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

/// The index after a character literal or a lifetime that opens at `at`.
fn skip_quote(text: &[char], at: usize) -> usize {
    if text.get(at + 1) == Some(&'\\') {
        let close = text.iter().skip(at + 3).position(|c| *c == '\'');
        return close.map_or(text.len(), |offset| at + 3 + offset + 1);
    }
    if text.get(at + 2) == Some(&'\'') {
        return at + 3;
    }
    at + 1 + text[at + 1..].iter().take_while(|c| is_word(**c)).count()
}

/// The tokens of `source`.
pub fn tokens(source: &str) -> Vec<Token> {
    let text: Vec<char> = source.chars().collect();
    let (mut tokens, mut at, mut line, mut counted) = (Vec::new(), 0, 1, 0);
    while at < text.len() {
        line += text[counted..at].iter().filter(|c| **c == '\n').count();
        counted = at;
        let next = text.get(at + 1).copied();
        let end = match (text[at], next) {
            (c, _) if c.is_whitespace() => {
                at += 1;
                continue;
            }
            ('/', Some('/')) => at + text[at..].iter().take_while(|c| **c != '\n').count(),
            ('/', Some('*')) => skip_block_comment(&text, at),
            ('"', _) => skip_string(&text, at, None),
            ('\'', _) => skip_quote(&text, at),
            (c, _) if is_word(c) => {
                let end = at + text[at..].iter().take_while(|c| is_word(**c)).count();
                let word: String = text[at..end].iter().collect();
                let hashes = text[end..].iter().take_while(|c| **c == '#').count();
                let opens = text.get(end + hashes) == Some(&'"');
                match word.as_str() {
                    "r" | "br" | "cr" if opens => skip_string(&text, end + hashes, Some(hashes)),
                    "b" | "c" if opens && hashes == 0 => skip_string(&text, end, None),
                    "b" if text.get(end) == Some(&'\'') => skip_quote(&text, end),
                    // A raw identifier: the next round reads its name.
                    "r" if hashes == 1 && text.get(end + 1).is_some_and(|c| is_word(*c)) => end + 1,
                    _ => {
                        tokens.push(Token { text: word, line });
                        end
                    }
                }
            }
            (':', Some(':')) => {
                tokens.push(Token {
                    text: "::".into(),
                    line,
                });
                at + 2
            }
            (c, _) => {
                tokens.push(Token { text: c.into(), line });
                at + 1
            }
        };
        at = end;
    }
    tokens
}

/// Reads the path or `use` tree at token `at` below `prefix` into `paths`; returns the index after it.
fn tree(tokens: &[Token], mut at: usize, prefix: &[String], paths: &mut Vec<(Vec<String>, usize)>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |t| t.text.as_str());
    let mut segments = prefix.to_vec();
    let mut line = tokens.get(at).map_or(0, |t| t.line);
    loop {
        match text(at) {
            "{" => {
                at += 1;
                while !matches!(text(at), "}" | "") {
                    at = if text(at) == "," {
                        at + 1
                    } else {
                        tree(tokens, at, &segments, paths).max(at + 1)
                    };
                }
                return at + 1;
            }
            word if word == "*" || word.starts_with(is_word) => {
                segments.push(word.into());
                line = tokens[at].line;
                at += 1;
            }
            // A leading `::`, or a turbofish after it.
            _ => break,
        }
        if text(at) != "::" {
            break;
        }
        at += 1;
    }
    if text(at) == "as" {
        at += 2;
    }
    paths.push((segments, line));
    at
}

/// The paths in `tokens`, the file being module `file` (empty for `lib.rs`), inline modules followed.
pub fn paths(tokens: &[Token], file: &[String]) -> Vec<Path> {
    let text = |at: usize| tokens.get(at).map_or("", |t| t.text.as_str());
    // The inline modules that are open, each with the brace depth outside it.
    let (mut inline, mut depth, mut at) = (Vec::<(String, usize)>::new(), 0usize, 0);
    let mut found = Vec::new();
    while at < tokens.len() {
        match text(at) {
            "mod" if text(at + 2) == "{" => {
                inline.push((text(at + 1).into(), depth));
                at += 1;
            }
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inline.pop_if(|(_, outside)| *outside == depth);
            }
            start @ ("crate" | "super" | "self" | "veriharness")
                if matches!(text(at + 1), "::" | "as")
                    && !(at > 0 && text(at - 1) == "::" && matches!(start, "super" | "self")) =>
            {
                let mut raw = Vec::new();
                let end = tree(tokens, at, &[], &mut raw);
                let scope: Vec<String> = file
                    .iter()
                    .cloned()
                    .chain(inline.iter().map(|(name, _)| name.clone()))
                    .collect();
                found.extend(raw.into_iter().map(|(segments, line)| Path {
                    segments: resolve(&segments, &scope),
                    line,
                }));
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// `segments`, as written in module `scope`, from the crate's root.
fn resolve(segments: &[String], scope: &[String]) -> Vec<String> {
    let mut resolved = match segments[0].as_str() {
        "crate" | "veriharness" => Vec::new(),
        _ => scope.to_vec(),
    };
    for (i, segment) in segments.iter().enumerate() {
        match segment.as_str() {
            "crate" | "veriharness" if i == 0 => {}
            "self" => {}
            "super" => {
                resolved.pop();
            }
            _ => resolved.push(segment.clone()),
        }
    }
    resolved
}
