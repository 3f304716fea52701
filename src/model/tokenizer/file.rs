//! The tokenizer in a `tokenizer.json`: byte-level BPE as the Qwen2 and Llama 3 families write it.
//!
//! Not the library's own reading of that file: its special tokens would match in any text, and ids that it finds
//! missing it would give anew. So the tables are read here, and the library gets only what may come from text.

use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::table::{CONTROL, NORMAL, USER_DEFINED};
use super::{Parts, Tokenizer};
use crate::model::ModelError;
use crate::model::json::{brief, parse};

/// Most bytes of a regular expression. Real ones have a hundred.
const MAX_PATTERN: usize = 1 << 12;

#[derive(serde::Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    normalizer: Option<Normal>,
    pre_tokenizer: Option<Pre>,
    model: Merging,
}

#[derive(serde::Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
}

#[derive(serde::Deserialize)]
#[serde(tag = "type")]
enum Normal {
    #[serde(rename = "NFC")]
    Nfc {},
    Sequence {
        normalizers: Vec<Normal>,
    },
}

#[derive(serde::Deserialize)]
#[serde(tag = "type")]
enum Pre {
    Split {
        pattern: Pattern,
        behavior: Behaviour,
        #[serde(default)]
        invert: bool,
    },
    Digits {
        individual_digits: bool,
    },
    ByteLevel {
        #[serde(default)]
        add_prefix_space: bool,
        #[serde(default = "yes")]
        use_regex: bool,
    },
    Sequence {
        pretokenizers: Vec<Pre>,
    },
}

fn yes() -> bool {
    true
}

#[derive(serde::Deserialize)]
enum Pattern {
    Regex(String),
    String(String),
}

/// The only one that loses no text and joins none.
#[derive(serde::Deserialize)]
enum Behaviour {
    Isolated,
}

#[derive(serde::Deserialize)]
struct Merging {
    #[serde(rename = "type")]
    _kind: Kind,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    vocab: Vocabulary,
    merges: Vec<Merge>,
}

#[derive(serde::Deserialize)]
enum Kind {
    #[serde(rename = "BPE")]
    Bpe,
}

/// New files have pairs, old ones texts with a space between the halves.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Text(String),
}

/// Texts and ids in the file's order, doubles included: they are found later.
struct Vocabulary(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocabulary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of token ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Vocabulary(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl Tokenizer {
    /// Builds the tokenizer in the `bytes` of a `tokenizer.json`, for an embedding table of `rows` rows. `ends` are
    /// the ids that end a turn, each with the place that says so; `file` is for messages only.
    ///
    /// # Errors
    /// Another kind of tokenizer than byte-level BPE, tables that contradict each other, ids outside the embedding
    /// table or outside the tokenizer.
    pub fn from_json(
        file: &Path,
        bytes: &[u8],
        rows: usize,
        ends: Vec<(String, u32)>,
    ) -> Result<Self, ModelError> {
        let bad = |reason: String| ModelError::Tokenizer {
            file: file.into(),
            reason,
        };
        let parsed: File = parse(file, bytes)?;
        let model = &parsed.model;
        let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
        for (wrong, found) in [
            (model.byte_fallback, "byte_fallback"),
            (model.dropout.is_some_and(|p| p != 0.0), "dropout"),
            (
                affixes.into_iter().flatten().any(|affix| !affix.is_empty()),
                "affixes of parts of words",
            ),
        ] {
            if wrong {
                return Err(bad(format!("expected plain byte-level BPE, found {found}")));
            }
        }
        let (texts, types) = tokens(&parsed, rows).map_err(bad)?;
        let mut merges = Vec::with_capacity(model.merges.len());
        for (rank, merge) in model.merges.iter().enumerate() {
            merges.push(match merge {
                Merge::Pair(left, right) => (left.as_str(), right.as_str()),
                Merge::Text(text) => text
                    .split_once(' ')
                    .ok_or_else(|| bad(format!("merge {rank}: expected two halves, found one")))?,
            });
        }
        let mut pre = Vec::new();
        if let Some(stage) = &parsed.pre_tokenizer {
            stages(stage, &mut pre).map_err(bad)?;
        }
        let byte_levels = pre
            .iter()
            .filter(|stage| matches!(stage, PreTokenizerWrapper::ByteLevel(_)));
        match byte_levels.count() {
            1 => (),
            n => return Err(bad(format!("expected one ByteLevel pre-tokenizer, found {n}"))),
        }
        let ordinary = parsed.added_tokens.iter().filter(|added| !added.special);
        let words = ordinary.map(|added| {
            AddedToken::from(added.content.as_str(), false)
                .single_word(added.single_word)
                .lstrip(added.lstrip)
                .rstrip(added.rstrip)
                .normalized(added.normalized)
        });
        let parts = Parts {
            name: "byte-level BPE",
            texts,
            types,
            merges,
            ignore_merges: model.ignore_merges,
            pre,
            nfc: parsed.normalizer.as_ref().is_some_and(composes).then_some(NFC),
            words: words.collect(),
            ends,
        };
        parts.assemble(file)
    }
}

/// Texts and types of the tokens by id; an id that no token has gets an empty text.
fn tokens(file: &File, rows: usize) -> Result<(Vec<&str>, Vec<usize>), String> {
    let model = file
        .model
        .vocab
        .0
        .iter()
        .map(|(text, id)| (text.as_str(), *id, NORMAL));
    let added = file.added_tokens.iter().map(|added| {
        let kind = match added.special {
            true => CONTROL,
            false => USER_DEFINED,
        };
        (added.content.as_str(), added.id, kind)
    });
    let (mut texts, mut types) = (Vec::new(), Vec::new());
    for (text, id, kind) in model.chain(added) {
        let at = id as usize;
        if at >= rows {
            return Err(format!(
                "token {:?}: expected an id under {rows}, the rows of the embedding table, found {id}",
                brief(text)
            ));
        }
        if at >= texts.len() {
            texts.resize(at + 1, "");
            types.resize(at + 1, NORMAL);
        }
        // An added token may stand in the vocabulary too; its kind is then that of the added one.
        let same = kind != NORMAL && texts[at] == text;
        if text.is_empty() || !(texts[at].is_empty() || same) {
            let (found, other) = (brief(text), brief(texts[at]));
            return Err(format!(
                "token {id}: expected a text of its own, found {found:?} beside {other:?}"
            ));
        }
        (texts[at], types[at]) = (text, kind);
    }
    if let Some(added) = file
        .added_tokens
        .iter()
        .find(|added| added.special && (added.lstrip || added.rstrip || added.single_word))
    {
        return Err(format!(
            "special token {:?}: expected one that changes no text around it, found lstrip, rstrip or single_word",
            brief(&added.content)
        ));
    }
    Ok((texts, types))
}

/// Whether text is brought to Unicode's composed form.
fn composes(normal: &Normal) -> bool {
    match normal {
        Normal::Nfc {} => true,
        Normal::Sequence { normalizers } => normalizers.iter().any(composes),
    }
}

/// The stages of a pre-tokenizer, one after the other.
fn stages(stage: &Pre, out: &mut Vec<PreTokenizerWrapper>) -> Result<(), String> {
    match stage {
        Pre::Sequence { pretokenizers } => {
            for stage in pretokenizers {
                stages(stage, out)?;
            }
        }
        Pre::Digits { individual_digits } => out.push(Digits::new(*individual_digits).into()),
        Pre::ByteLevel {
            add_prefix_space: true,
            ..
        } => return Err("expected no space added before a text, found add_prefix_space".into()),
        Pre::ByteLevel { use_regex, .. } => out.push(ByteLevel::new(false, true, *use_regex).into()),
        Pre::Split {
            pattern,
            behavior: Behaviour::Isolated,
            invert,
        } => {
            let (Pattern::Regex(text) | Pattern::String(text)) = pattern;
            if text.len() > MAX_PATTERN {
                let found = text.len();
                return Err(format!(
                    "expected patterns of at most {MAX_PATTERN} bytes, found {found}"
                ));
            }
            let pattern = match pattern {
                Pattern::Regex(text) => SplitPattern::Regex(text.clone()),
                Pattern::String(text) => SplitPattern::String(text.clone()),
            };
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, *invert);
            out.push(split.map_err(|error| brief(&error.to_string()))?.into());
        }
    }
    Ok(())
}
