//! The engine that runs a model in this process: a continuous batch over paged KV blocks with a prefix cache.
//!
//! Not the batch itself (`batcher`) and not the arithmetic (`backend`): a model's tokenizer and template around
//! them.

use super::batcher::Batcher;
use super::row::Vocabulary;
use super::{Engine, EngineError, Finished, Identity, Prompt, Request, RequestId, Stats};
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
        })
    }
}

impl LocalEngine {
    /// Forgets all requests and the prefix cache; the weights stay.
    ///
    /// # Errors
    /// The memory for keys and values cannot be had.
    pub fn restart(&mut self, limits: Limits) -> Result<(), BackendError> {
        self.batcher.restart(limits)
    }
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

    fn submit(&mut self, request: Request) -> RequestId {
        self.batcher.submit(request)
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
