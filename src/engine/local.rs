//! The engine that runs a model in this process: a continuous batch over paged KV blocks with a prefix cache.
//!
//! Not the batch itself (`batcher`) and not the arithmetic (`backend`): a model's tokenizer and template around
//! them.

use super::batcher::Batcher;
use super::grammar::{Grammar, Words};
use super::row::Vocabulary;
use super::{Engine, EngineError, Finished, Identity, Prompt, Request, RequestId, Sampling, Schema, Stats};
use crate::backend::{Backend, BackendError};
use crate::model::Model;
use crate::model::chat::Message;
use std::sync::Arc;

pub use super::scheduler::Limits;

/// The engine over a [`Backend`].
pub struct LocalEngine {
    model: Arc<Model>,
    identity: Identity,
    batcher: Batcher,
    grammars: Grammars,
}

impl LocalEngine {
    /// An engine over `backend`, which holds the weights of `model`; `name` is what the trace calls it.
    ///
    /// # Errors
    /// The memory for keys and values cannot be had.
    pub fn new(
        name: String,
        model: impl Into<Arc<Model>>,
        backend: Box<dyn Backend>,
        limits: Limits,
    ) -> Result<Self, BackendError> {
        let model = model.into();
        let identity = Identity {
            model: name,
            model_sha256: model.sha256.clone(),
            template_sha256: model.template.sha256().to_owned(),
            backend: backend.name().to_owned(),
        };
        Ok(Self {
            model,
            identity,
            batcher: Batcher::new(backend, limits)?,
            grammars: Grammars::default(),
        })
    }

    /// Forgets all requests and the prefix cache; the weights stay.
    ///
    /// # Errors
    /// The memory for keys and values cannot be had.
    pub fn restart(&mut self, limits: Limits) -> Result<(), BackendError> {
        self.batcher.restart(limits)
    }
}

/// The schemas that replies were held to so far, compiled.
#[derive(Default)]
struct Grammars {
    words: Option<Words>,
    compiled: Vec<(Schema, Arc<Grammar>)>,
}

impl Grammars {
    /// The schema over the vocabulary of `model`, compiled once.
    fn get(&mut self, model: &Arc<Model>, schema: &Schema) -> Result<Arc<Grammar>, EngineError> {
        if let Some((_, known)) = self.compiled.iter().find(|(known, _)| known == schema) {
            return Ok(Arc::clone(known));
        }
        let words = match &mut self.words {
            Some(words) => words,
            none => none.insert(words(model)?),
        };
        let grammar = Arc::new(words.compile(schema)?);
        self.compiled.push((schema.clone(), Arc::clone(&grammar)));
        Ok(grammar)
    }
}

/// The spelling of a model's tokens.
fn words(model: &Arc<Model>) -> Result<Words, EngineError> {
    let tokenizer = &model.tokenizer;
    let spelled = (0..tokenizer.vocab() as u32).map(|id| tokenizer.bytes(id).to_vec());
    let encoder = Arc::clone(model);
    // A text that cannot be encoded is spelled by the longest tokens.
    let encode = move |text: &str| encoder.tokenizer.encode(text).unwrap_or_default();
    Words::new(spelled.collect(), model.eos(), encode)
}

impl Vocabulary for Model {
    fn ends(&self, id: u32) -> bool {
        self.eos().contains(&id)
    }

    fn bytes(&self, id: u32) -> &[u8] {
        self.tokenizer.bytes(id)
    }
}

impl Engine for LocalEngine {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn encode(&self, messages: &[Message]) -> Result<Prompt, EngineError> {
        let encoded = self
            .model
            .encode_chat(messages)
            .map_err(|error| EngineError::Encode(error.to_string()))?;
        Ok(Prompt {
            text: encoded.text,
            tokens: encoded.tokens,
        })
    }

    fn prepare(&mut self, sampling: &Sampling) -> Result<(), EngineError> {
        match &sampling.schema {
            Some(schema) => self.grammars.get(&self.model, schema).map(drop),
            None => Ok(()),
        }
    }

    fn submit(&mut self, request: Request) -> RequestId {
        let schema = request.sampling.schema.as_ref();
        match schema
            .map(|schema| self.grammars.get(&self.model, schema))
            .transpose()
        {
            Ok(grammar) => self.batcher.submit(request, grammar.as_deref(), &*self.model),
            Err(error) => self.batcher.refuse(error),
        }
    }

    fn step(&mut self) -> Vec<Finished> {
        self.batcher.step(&*self.model)
    }

    fn pending(&self) -> usize {
        self.batcher.pending()
    }

    fn stats(&self) -> Stats {
        self.batcher.stats()
    }

    fn partial(&self, id: RequestId) -> Option<String> {
        self.batcher.partial(id)
    }
}
