//! Text to token ids and back, built from the tables inside a GGUF file or a `tokenizer.json`.
//!
//! Not the chat format (that is `template` and `encode`). Text given here never becomes a control token: the merges
//! do not know the control tokens at all, so only code that names one can produce it.

mod file;
mod table;

use std::collections::HashSet;
use std::path::Path;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior};

use table::{CONTROL, UNKNOWN, USER_DEFINED, join, spell, strings};

use super::ModelError;
use super::gguf::Gguf;

/// How a pre-tokenizer cuts digits: the only point in which the two regular expressions differ.
const SPLIT_BEFORE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|";
const SPLIT_AFTER: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Control tokens that end a turn in the chat formats of the two families.
const ENDS: [&str; 5] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
];

/// A byte-level BPE tokenizer.
pub struct Tokenizer {
    merges: tokenizers::Tokenizer,
    control: Vec<(String, u32)>,
    is_control: HashSet<u32>,
    /// The bytes of all tokens, one after the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    name: String,
    eos: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokenizer({}, {} tokens)", self.name, self.ends.len())
    }
}

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file.
    ///
    /// # Errors
    /// Another kind of tokenizer than byte-level BPE, an unknown pre-tokenizer, or tables that contradict each other.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let bad = |reason: String| ModelError::Tokenizer {
            file: gguf.path().into(),
            reason,
        };
        let kind = gguf.required("tokenizer.ggml.model", gguf.text("tokenizer.ggml.model")?)?;
        if kind != "gpt2" {
            return Err(bad(format!(
                "expected the model gpt2 (byte-level BPE), found {kind:?}"
            )));
        }
        let texts = strings(gguf, "tokenizer.ggml.tokens")?;
        let pairs = strings(gguf, "tokenizer.ggml.merges")?;
        let types = gguf.required(
            "tokenizer.ggml.token_type",
            gguf.list("tokenizer.ggml.token_type")?,
        )?;
        if types.len() != texts.len() {
            return Err(bad(format!(
                "expected {} token types, found {}",
                texts.len(),
                types.len()
            )));
        }
        let types: Vec<usize> = types.iter().map(|kind| kind.as_count().unwrap_or(0)).collect();
        if let Some(id) = texts.iter().position(|text| text.is_empty()) {
            return Err(bad(format!("token {id}: expected a text of its own, found \"\"")));
        }
        let mut merges = Vec::with_capacity(pairs.len());
        for (rank, pair) in pairs.iter().enumerate() {
            let halves = pair.split_once(' ');
            merges.push(
                halves.ok_or_else(|| bad(format!("merge {rank}: expected two halves, found {pair:?}")))?,
            );
        }
        let pre = gguf.required("tokenizer.ggml.pre", gguf.text("tokenizer.ggml.pre")?)?;
        let fail = |error: tokenizers::Error| bad(error.to_string());
        let split: PreTokenizerWrapper = match pre {
            "qwen2" => pattern(r"\p{N}").map_err(fail)?,
            "llama-bpe" => pattern(r"\p{N}{1,3}").map_err(fail)?,
            "smollm" => Digits::new(true).into(),
            other => {
                return Err(bad(format!(
                    "expected the pre-tokenizer qwen2, llama-bpe or smollm, found {other:?}"
                )));
            }
        };
        let words = texts
            .iter()
            .zip(&types)
            .filter(|(_, kind)| **kind == USER_DEFINED);
        let parts = Parts {
            name: pre,
            merges,
            ignore_merges: pre == "llama-bpe",
            pre: vec![split, ByteLevel::new(false, true, pre == "smollm").into()],
            nfc: (pre == "qwen2").then_some(NFC),
            words: words
                .map(|(text, _)| AddedToken::from(*text, false).normalized(false))
                .collect(),
            ends: ends(gguf)?,
            texts,
            types,
        };
        parts.assemble(gguf.path())
    }

    /// The tokenizer as `tokenizer.json` has it, control tokens included.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::to_value(&self.merges).unwrap_or_default();
        let control = self.control.iter().map(|(text, id)| {
            serde_json::json!({
                "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        });
        if let Some(added) = json["added_tokens"].as_array_mut() {
            added.extend(control);
            added.sort_by_key(|token| token["id"].as_u64());
        }
        json
    }

    /// The name of the pre-tokenizer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of token ids.
    pub fn vocab(&self) -> usize {
        self.ends.len()
    }

    /// Ids that end a turn, ascending, never empty.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// The control tokens: text and id.
    pub fn control(&self) -> &[(String, u32)] {
        &self.control
    }

    /// Bytes that no token spells: a text loses them. Real files lack some control characters and bytes that UTF-8
    /// never uses.
    pub fn unspelled(&self) -> Vec<u8> {
        let spelled: HashSet<&[u8]> = (0u32..).take(self.ends.len()).map(|id| self.bytes(id)).collect();
        (0..=255u8)
            .filter(|byte| !spelled.contains([*byte].as_slice()))
            .collect()
    }

    /// Token ids of a text; no control token among them, whatever the text says.
    ///
    /// # Errors
    /// The library fails.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        let encoding = self
            .merges
            .encode_fast(text, false)
            .map_err(|error| ModelError::Encode {
                bytes: text.len(),
                reason: error.to_string(),
            })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The bytes that a token stands for: possibly a part of a character; nothing for a control token or an id
    /// outside the vocabulary. Concatenate them before decoding UTF-8.
    pub fn bytes(&self, id: u32) -> &[u8] {
        if self.is_control.contains(&id) {
            return &[];
        }
        self.spelling(id)
    }

    /// The text of some tokens, control tokens left out; broken UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.bytes(id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The text of some tokens, control tokens spelled out.
    pub fn decode_all(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.spelling(id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn spelling(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = id
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0);
        self.ends.get(id).map_or(&[], |&end| &self.bytes[start..end])
    }
}

/// What a file says of a tokenizer.
struct Parts<'a> {
    name: &'a str,
    /// By id; empty where no token has the id.
    texts: Vec<&'a str>,
    /// By id, the types of GGUF.
    types: Vec<usize>,
    merges: Vec<(&'a str, &'a str)>,
    /// Whether a word that is a token is taken whole.
    ignore_merges: bool,
    pre: Vec<PreTokenizerWrapper>,
    nfc: Option<NFC>,
    /// Ordinary text that is matched before anything else.
    words: Vec<AddedToken>,
    /// Ids that end a turn, and where that is said.
    ends: Vec<(String, u32)>,
}

impl Parts<'_> {
    /// Builds the tokenizer; `file` is for messages only.
    fn assemble(self, file: &Path) -> Result<Tokenizer, ModelError> {
        let bad = |reason: String| ModelError::Tokenizer {
            file: file.into(),
            reason,
        };
        let fail = |error: tokenizers::Error| bad(error.to_string());
        let mut vocab = Vocab::default();
        let mut control = Vec::new();
        let mut seen = HashSet::new();
        for (id, (text, kind)) in (0u32..).zip(self.texts.iter().zip(&self.types)) {
            if text.is_empty() {
                continue;
            }
            if !seen.insert(*text) {
                return Err(bad(format!(
                    "token {id}: expected a text of its own, found {text:?}"
                )));
            }
            match *kind {
                CONTROL | UNKNOWN => control.push(((*text).to_owned(), id)),
                _ => drop(vocab.insert((*text).to_owned(), id)),
            }
        }
        let merges = join(&self.merges, &vocab).map_err(bad)?;
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .ignore_merges(self.ignore_merges)
            .build()
            .map_err(fail)?;
        let mut library = tokenizers::Tokenizer::new(bpe);
        library.with_pre_tokenizer(Some(Sequence::new(self.pre)));
        if let Some(nfc) = self.nfc {
            library.with_normalizer(Some(nfc)).map_err(fail)?;
        }
        library.add_tokens(self.words).map_err(fail)?;

        let mut eos = Vec::new();
        for (place, id) in self.ends {
            if id as usize >= self.texts.len() {
                return Err(bad(format!(
                    "{place}: expected an id under {}, found {id}",
                    self.texts.len()
                )));
            }
            eos.push(id);
        }
        let named = control.iter().filter(|(text, _)| ENDS.contains(&text.as_str()));
        eos.extend(named.map(|(_, id)| *id));
        eos.sort_unstable();
        eos.dedup();
        if eos.is_empty() {
            return Err(bad("expected an id that ends a turn, found none".into()));
        }
        let (bytes, ends) = spell(&self.texts, &self.types);
        Ok(Tokenizer {
            merges: library,
            is_control: control.iter().map(|(_, id)| *id).collect(),
            control,
            bytes,
            ends,
            name: self.name.to_owned(),
            eos,
        })
    }
}

/// The ids that a GGUF file names as ends, one of which must be `eos`.
fn ends(gguf: &Gguf) -> Result<Vec<(String, u32)>, ModelError> {
    let mut ends = Vec::new();
    for name in ["eos", "eot", "eom"] {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let id = gguf.count(&key)?;
        if name == "eos" {
            gguf.required(&key, id)?;
        }
        // What no id can be is reported as the largest, which is no token either.
        ends.extend(id.map(|id| (key, u32::try_from(id).unwrap_or(u32::MAX))));
    }
    Ok(ends)
}

fn pattern(digits: &str) -> Result<PreTokenizerWrapper, tokenizers::Error> {
    let regex = SplitPattern::Regex(format!("{SPLIT_BEFORE}{digits}{SPLIT_AFTER}"));
    Ok(Split::new(regex, SplitDelimiterBehavior::Isolated, false)?.into())
}
