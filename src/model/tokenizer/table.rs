//! The tables of a tokenizer, and the bytes that its tokens spell.
//!
//! Not the merging of them.

use tokenizers::models::bpe::Vocab;

use crate::model::ModelError;
use crate::model::gguf::{Gguf, Value};

/// `tokenizer.ggml.token_type` of what the merges make.
pub(super) const NORMAL: usize = 1;
/// That of a stand-in for what has no token.
pub(super) const UNKNOWN: usize = 2;
/// That of a control token.
pub(super) const CONTROL: usize = 3;
/// That of a word added whole, which is ordinary text.
pub(super) const USER_DEFINED: usize = 4;

/// The strings of an array.
pub(super) fn strings<'a>(gguf: &'a Gguf, key: &str) -> Result<Vec<&'a str>, ModelError> {
    let items = gguf.required(key, gguf.list(key)?)?;
    let texts: Option<Vec<&str>> = items.iter().map(Value::as_text).collect();
    texts.ok_or_else(|| ModelError::Malformed {
        file: gguf.path().into(),
        place: format!("metadata key {key}"),
        expected: "an array of strings".into(),
        found: "an array of something else".into(),
    })
}

/// The merges as the library takes them; the reason if one does not join two tokens of `vocab` to a third.
pub(super) fn join(pairs: &[(&str, &str)], vocab: &Vocab) -> Result<Vec<(String, String)>, String> {
    let mut merges = Vec::with_capacity(pairs.len());
    for (rank, (left, right)) in pairs.iter().enumerate() {
        // The library indexes without looking, so every merge is checked before it is handed over.
        let joined = format!("{left}{right}");
        if [*left, *right, &joined]
            .iter()
            .any(|text| !vocab.contains_key(*text))
        {
            return Err(format!(
                "merge {rank}: {left:?} and {right:?} do not join two tokens to a token"
            ));
        }
        merges.push(((*left).to_owned(), (*right).to_owned()));
    }
    Ok(merges)
}

/// Undoes the byte-to-character alphabet of byte-level BPE for every token that is written in it.
pub(super) fn spell(texts: &[&str], types: &[usize]) -> (Vec<u8>, Vec<usize>) {
    let printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let shifted: Vec<u8> = (0..=255).filter(|&byte| !printable(byte)).collect();
    let byte_of = |letter: char| match u32::from(letter) {
        code @ 0..=255 => u8::try_from(code).ok().filter(|&byte| printable(byte)),
        code => shifted.get(code as usize - 256).copied(),
    };
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(texts.len()));
    for (text, kind) in texts.iter().zip(types) {
        let spelled: Option<Vec<u8>> = match *kind {
            CONTROL | UNKNOWN | USER_DEFINED => None,
            _ => text.chars().map(byte_of).collect(),
        };
        bytes.extend(spelled.unwrap_or_else(|| text.as_bytes().to_vec()));
        ends.push(bytes.len());
    }
    (bytes, ends)
}
