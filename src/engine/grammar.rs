//! A JSON schema over a vocabulary: which tokens keep a reply the beginning of a document of the schema.
//!
//! Not the choice among them (`sampler`), and not which schema a reply is held to. The automata are llguidance's. What
//! a guide says depends on its schema, its vocabulary and the tokens it took, and on nothing that other rows did.

use super::{EngineError, Schema};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Longest token that can be drawn under a schema, in bytes: the trie's nodes count their parents in 10 bits.
const MAX_WORD: usize = 1000;

/// Most bytes of all tokens together: the trie's nodes count what is below them in 22 bits.
const MAX_BYTES: usize = (1 << 22) - 1;

/// Most tokens: the trie's nodes hold ids in 24 bits, and the last of them stands for none.
const MAX_WORDS: usize = (1 << 24) - 1;

/// A vocabulary that schemas are compiled over.
pub struct Words(ParserFactory);

impl Words {
    /// `spelled` has the bytes of each token by its id, none for a token that no text has (control tokens); `ends` are
    /// the ids that end a turn, which are no text either. `encode` gives the tokens that a model expects for a text.
    ///
    /// # Errors
    /// What of the vocabulary is more than the trie holds, or an id of `ends` that is none.
    pub fn new(
        mut spelled: Vec<Vec<u8>>,
        ends: &[u32],
        encode: impl Fn(&str) -> Vec<u32> + Send + Sync + 'static,
    ) -> Result<Self, EngineError> {
        let bad = |what: &str, most: usize, found: usize| {
            EngineError::Vocabulary(format!("expected {what} under {most}, found {found}"))
        };
        if spelled.len() >= MAX_WORDS {
            return Err(bad("a number of tokens", MAX_WORDS, spelled.len()));
        }
        if let Some(&id) = ends.iter().find(|id| **id as usize >= spelled.len()) {
            return Err(bad("ids that end a turn", spelled.len(), id as usize));
        }
        for &id in ends {
            spelled[id as usize].clear();
        }
        // The trie marks its own special tokens with a byte that UTF-8 never has.
        for word in &mut spelled {
            if word.len() > MAX_WORD || word.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
                word.clear();
            }
        }
        let bytes: usize = spelled.iter().map(Vec::len).sum();
        if bytes >= MAX_BYTES {
            return Err(bad("bytes of all tokens", MAX_BYTES, bytes));
        }
        let end = *ends
            .first()
            .ok_or_else(|| EngineError::Vocabulary("expected an id that ends a turn, found none".into()))?;
        // The ids were counted above, so they fit.
        let trie = TokTrie::from(&TokRxInfo::new(spelled.len() as u32, end), &spelled).with_eos_tokens(ends);
        let env: TokEnv = Arc::new(Env {
            trie,
            encode: Box::new(encode),
        });
        let mut factory = ParserFactory::new_simple(&env).map_err(|e| EngineError::Vocabulary(brief(&e)))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self(factory))
    }

    /// Compiles a schema.
    ///
    /// # Errors
    /// [`EngineError::Schema`] naming the smallest part of it that cannot be compiled for this reason.
    pub fn compile(&self, schema: &Schema) -> Result<Grammar, EngineError> {
        let schema = schema.with_layout();
        self.matcher(&schema)
            .map(Grammar)
            .map_err(|reason| EngineError::Schema {
                place: self.place(&schema, &schema, &reason, "#".into()),
                reason,
            })
    }

    fn matcher(&self, schema: &Value) -> Result<Matcher, String> {
        let parser = self
            .0
            .create_parser(TopLevelGrammar::from_json_schema(schema.clone()));
        Ok(Matcher::new(Ok(parser.map_err(|error| brief(&error))?)))
    }

    /// The JSON pointer of the innermost part of `schema`, which is at `at`, that fails for the same reason by itself.
    fn place(&self, root: &Value, schema: &Value, reason: &str, at: String) -> String {
        for (path, part) in parts(schema) {
            let mut alone = part.clone();
            if let Value::Object(object) = &mut alone {
                for key in ["$defs", "definitions"] {
                    if let Some(defs) = root.get(key) {
                        object.entry(key).or_insert_with(|| defs.clone());
                    }
                }
            }
            if self.matcher(&alone).err().as_deref() == Some(reason) {
                return self.place(root, part, reason, format!("{at}/{path}"));
            }
        }
        at
    }
}

/// The schemas inside a schema, with their paths in it.
fn parts(schema: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (key, value) in schema.as_object().into_iter().flat_map(Map::iter) {
        match (key.as_str(), value) {
            ("items" | "additionalProperties" | "not", part @ Value::Object(_)) => {
                found.push((key.clone(), part))
            }
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(named)) => {
                found.extend(named.iter().map(|(name, part)| (format!("{key}/{name}"), part)));
            }
            ("anyOf" | "allOf" | "oneOf" | "prefixItems", Value::Array(listed)) => {
                found.extend(
                    listed
                        .iter()
                        .enumerate()
                        .map(|(i, part)| (format!("{key}/{i}"), part)),
                );
            }
            _ => {}
        }
    }
    found
}

/// What llguidance says, on one line.
fn brief(error: &anyhow::Error) -> String {
    let said = error.to_string();
    said.lines().next().unwrap_or_default().to_owned()
}

/// A schema compiled over a vocabulary. Made once and shared by all requests.
pub struct Grammar(Matcher);

impl Grammar {
    /// A guide for a reply that has no token yet.
    pub fn guide(&self) -> Guide {
        // A plain clone would share its automaton, whose limits would then depend on what other replies were.
        Guide(self.0.deep_clone())
    }
}

/// Where a reply is in its document.
pub struct Guide(Matcher);

impl Guide {
    /// The tokens that must come next, spelled as the tokenizer spells them: the bytes that nothing can change, but for
    /// the last of them when a longer token may begin there.
    pub fn forced(&mut self) -> Vec<u32> {
        self.0.compute_ff_tokens()
    }

    /// The tokens that may come next; among them those that end a turn when the document is complete.
    ///
    /// # Errors
    /// [`EngineError::Grammar`] when there is none, or the schema needs more work here than is bearable.
    pub fn allowed(&mut self) -> Result<Mask, EngineError> {
        self.0
            .compute_mask()
            .map(Mask)
            .map_err(|e| EngineError::Grammar(brief(&e)))
    }

    /// Takes the token that came next.
    ///
    /// # Errors
    /// [`EngineError::Grammar`] when it may not.
    pub fn take(&mut self, token: u32) -> Result<(), EngineError> {
        self.0
            .consume_token(token)
            .map_err(|e| EngineError::Grammar(brief(&e)))
    }

    /// Whether the document is complete and nothing can follow it.
    pub fn complete(&self) -> bool {
        self.0.is_stopped() && !self.0.is_error()
    }
}

/// A set of tokens.
pub struct Mask(SimpleVob);

impl Mask {
    /// Whether a token is in it.
    pub fn allows(&self, id: usize) -> bool {
        id < self.0.len() && self.0.get(id)
    }
}

/// A text to the tokens that a model expects for it.
type Encode = dyn Fn(&str) -> Vec<u32> + Send + Sync;

/// A tokenizer as llguidance knows it.
struct Env {
    trie: TokTrie,
    encode: Box<Encode>,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// What the tokenizer makes of the bytes; the longest tokens from the left when they are no text, or a text that
    /// it spells in another way (it may compose characters).
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let spelled = |ids: &[u32]| ids.iter().flat_map(|&id| self.trie.token(id)).eq(bytes);
        let ids = std::str::from_utf8(bytes).ok().map(|text| (self.encode)(text));
        ids.filter(|ids| spelled(ids))
            .unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }
}
