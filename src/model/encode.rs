//! Messages to token ids: the chat template's control tokens are recognised, those in the messages' text are not.
//!
//! Not a tokenizer and not a template: it keeps the two apart. A control string splits the text before anything
//! else, so encoding the stretches between the template's own ones gives exactly the ids of the whole text.

use super::ModelError;
use super::chat::Message;
use super::template::Template;
use super::tokenizer::Tokenizer;

/// A rendered and tokenised prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The text that the template produced.
    pub text: String,
    /// Its token ids.
    pub tokens: Vec<u32>,
}

/// Renders and tokenises messages.
///
/// # Errors
/// The template or the tokenizer fails.
pub fn encode_chat(
    tokenizer: &Tokenizer,
    template: &Template,
    messages: &[Message],
) -> Result<Encoded, ModelError> {
    let control = tokenizer.control();
    let mask = Mask::for_texts(control, messages, template.source());
    let masked: Vec<Message> = messages
        .iter()
        .map(|message| Message {
            role: message.role,
            content: mask.hide(&message.content, control),
        })
        .collect();
    let rendered = template.render(&masked)?;
    let mut tokens = Vec::new();
    let (mut plain, mut rest) = (0, 0);
    while rest < rendered.len() {
        match control_at(&rendered[rest..], control) {
            Some((text, id)) => {
                tokens.extend(tokenizer.encode(&mask.reveal(&rendered[plain..rest]))?);
                tokens.push(id);
                rest += text.len();
                plain = rest;
            }
            None => rest += rendered[rest..].chars().next().map_or(1, char::len_utf8),
        }
    }
    tokens.extend(tokenizer.encode(&mask.reveal(&rendered[plain..]))?);
    Ok(Encoded {
        text: mask.reveal(&rendered),
        tokens,
    })
}

/// The longest control string that `text` begins with.
fn control_at<'a>(text: &str, control: &'a [(String, u32)]) -> Option<(&'a str, u32)> {
    let matching = control.iter().filter(|(name, _)| text.starts_with(name.as_str()));
    matching
        .max_by_key(|(name, _)| name.len())
        .map(|(name, id)| (name.as_str(), *id))
}

/// Stands in for single characters of the messages, so that no control string can be read in or out of them.
struct Mask(Vec<(char, char)>);

impl Mask {
    /// Pairs every first and last character of a control string with a private-use character that occurs nowhere.
    fn for_texts(control: &[(String, u32)], messages: &[Message], template: &str) -> Self {
        let mut edges: Vec<char> = control
            .iter()
            .flat_map(|(name, _)| name.chars().next().into_iter().chain(name.chars().next_back()))
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let taken =
            |c: char| template.contains(c) || messages.iter().any(|message| message.content.contains(c));
        let private = ('\u{F0000}'..='\u{FFFFD}').filter(|&c| !taken(c));
        Self(edges.into_iter().zip(private).collect())
    }

    /// Hides what the template must not see as control strings, and nothing else: templates may look for
    /// ordinary markup in a message.
    fn hide(&self, text: &str, control: &[(String, u32)]) -> String {
        let mut hidden: Vec<usize> = Vec::new();
        let (head, tail) = (text.len() - text.trim_start().len(), text.trim_end().len());
        for (at, c) in text.char_indices() {
            if !self.0.iter().any(|(real, _)| *real == c) {
                continue;
            }
            let after = at + c.len_utf8();
            for (name, _) in control {
                let whole = text[at..].starts_with(name.as_str());
                // A control string might begin in this text and end in the template's, or the other way round,
                // also where the template trims the text.
                let begins = name.starts_with(&text[at..]) || at < tail && name.starts_with(&text[at..tail]);
                let ends =
                    name.ends_with(&text[..after]) || head < after && name.ends_with(&text[head..after]);
                if whole || begins || ends {
                    hidden.push(at);
                }
            }
        }
        let show = |(at, c): (usize, char)| match hidden.binary_search(&at) {
            Ok(_) => self
                .0
                .iter()
                .find(|(real, _)| *real == c)
                .map_or(c, |(_, stand_in)| *stand_in),
            Err(_) => c,
        };
        text.char_indices().map(show).collect()
    }

    fn reveal(&self, text: &str) -> String {
        let real = |c| {
            self.0
                .iter()
                .find(|(_, stand_in)| *stand_in == c)
                .map_or(c, |(real, _)| *real)
        };
        text.chars().map(real).collect()
    }
}
