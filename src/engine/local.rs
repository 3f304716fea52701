//! The engine over a [`Backend`]: a continuous batch with a prefix cache.
//!
//! Not the arithmetic and not the policy of a study: requests go in, completions come out, in whatever order they
//! finish. A prompt is computed in pieces that end at multiples of [`BLOCK`], so what a position is computed from
//! does not depend on what was cached; rows of a batch never see each other.

use super::sampler::{sample, stream};
use super::{
    Completion, Cost, Engine, EngineError, Finished, Identity, Prompt, Request, RequestId, StopReason,
};
use crate::backend::{BLOCK, Backend, BackendError, BlockId, Step};
use crate::model::Model;
use crate::model::chat::Message;
use std::collections::VecDeque;
use std::time::Instant;

/// How much an engine may hold at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that are computed together.
    pub batch: usize,
    /// Bytes of keys and values kept for prompts to come.
    pub prefix_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch: 4,
            prefix_bytes: 1 << 30,
        }
    }
}

struct Running {
    id: RequestId,
    blocks: Vec<BlockId>,
    request: Request,
    stream: u64,
    /// Prompt and completion so far.
    tokens: Vec<u32>,
    /// Positions in the backend's cache.
    computed: usize,
    cost: Cost,
    submitted: Instant,
    started: Instant,
    first_token: Option<Instant>,
}

impl Running {
    fn prompt_len(&self) -> usize {
        self.request.prompt.tokens.len()
    }

    /// The end of the next piece: the next block boundary within the prompt, then token by token.
    fn next_end(&self) -> usize {
        self.tokens.len().min((self.computed / BLOCK + 1) * BLOCK)
    }
}

/// The engine that runs a model in this process.
pub struct LocalEngine {
    model: Model,
    backend: Box<dyn Backend>,
    identity: Identity,
    limits: Limits,
    free: Vec<BlockId>,
    waiting: VecDeque<(RequestId, Request, Instant)>,
    running: Vec<Running>,
    next_id: u64,
    decoded: u64,
}

impl LocalEngine {
    /// An engine over `backend`, which holds the weights of `model`; `name` is what the trace calls it.
    ///
    /// # Errors
    /// The memory for keys and values cannot be had.
    pub fn new(
        name: String,
        model: Model,
        mut backend: Box<dyn Backend>,
        limits: Limits,
    ) -> Result<Self, BackendError> {
        let identity = Identity {
            model: name,
            model_sha256: model.sha256.clone(),
            template_sha256: model.template.sha256().to_owned(),
            backend: backend.name().to_owned(),
        };
        let blocks = limits.prefix_bytes / backend.block_bytes();
        backend.reserve(blocks)?;
        Ok(Self {
            model,
            backend,
            identity,
            limits,
            free: (0..blocks as u32).map(BlockId).collect(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            next_id: 0,
            decoded: 0,
        })
    }

    /// Moves waiting requests into the batch; one that cannot run at all is finished here.
    fn admit(&mut self, finished: &mut Vec<Finished>) {
        while self.running.len() < self.limits.batch.max(1) {
            let Some((id, request, submitted)) = self.waiting.pop_front() else {
                break;
            };
            let (prompt, new, limit) = (
                request.prompt.tokens.len(),
                request.sampling.max_tokens,
                self.backend.context(),
            );
            if prompt == 0 || prompt + new > limit {
                let error = match prompt {
                    0 => EngineError::Encode("it has no tokens".into()),
                    _ => EngineError::Context { prompt, new, limit },
                };
                finished.push(Finished {
                    id,
                    result: Err(error),
                });
                continue;
            }
            let cached = 0;
            let needed = (prompt + new).div_ceil(BLOCK);
            if self.free.len() < needed {
                self.waiting.push_front((id, request, submitted));
                break;
            }
            let blocks = self.free.split_off(self.free.len() - needed);
            let started = Instant::now();
            let cost = Cost {
                cached_tokens: cached,
                queued_us: micros(submitted, started),
                ..Cost::default()
            };
            self.running.push(Running {
                id,
                blocks,
                stream: stream(&request.row, request.call),
                tokens: request.prompt.tokens.clone(),
                request,
                computed: cached,
                cost,
                submitted,
                started,
                first_token: None,
            });
        }
    }

    /// Takes the logits of the last position of `running[index]`; the completion when they end it.
    fn advance(&mut self, index: usize, logits: &[f32]) -> Option<Result<Completion, EngineError>> {
        let row = &mut self.running[index];
        let position = row.tokens.len();
        let token = match sample(
            logits,
            &row.request.sampling,
            row.request.seed,
            row.stream,
            position,
        ) {
            Ok(token) => token,
            Err(error) => return Some(Err(error)),
        };
        self.decoded += 1;
        let first = *row.first_token.get_or_insert_with(Instant::now);
        let stop = if self.model.eos().contains(&token) {
            StopReason::EndOfTurn
        } else {
            row.tokens.push(token);
            if row.tokens.len() - row.prompt_len() < row.request.sampling.max_tokens {
                return None;
            }
            StopReason::MaxTokens
        };
        row.cost.prefill_us = micros(row.started, first);
        row.cost.decode_us = micros(first, Instant::now());
        tracing::debug!(
            row = row.request.row,
            total_us = micros(row.submitted, Instant::now()),
            "completed"
        );
        let tokens = row.tokens[row.prompt_len()..].to_vec();
        let text = self.model.decode(&tokens);
        Some(Ok(Completion {
            text,
            tokens,
            stop,
            cost: row.cost,
        }))
    }

    fn drop_running(&mut self, index: usize) -> RequestId {
        let row = self.running.remove(index);
        self.free.extend(row.blocks);
        row.id
    }
}

fn micros(from: Instant, to: Instant) -> u64 {
    to.saturating_duration_since(from).as_micros() as u64
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
        self.next_id += 1;
        let id = RequestId(self.next_id);
        self.waiting.push_back((id, request, Instant::now()));
        id
    }

    fn step(&mut self) -> Vec<Finished> {
        let mut finished = Vec::new();
        self.admit(&mut finished);
        if self.running.is_empty() {
            return finished;
        }
        let batch: Vec<Step<'_>> = self
            .running
            .iter()
            .map(|row| Step {
                tokens: &row.tokens[row.computed..row.next_end()],
                start: row.computed,
                blocks: &row.blocks,
                logits: usize::from(row.next_end() == row.tokens.len()),
            })
            .collect();
        let logits = match self.backend.forward(&batch) {
            Ok(logits) => logits,
            Err(error) => {
                // The batch is one computation: when it fails, each of its requests fails with the same words.
                let reason = error.to_string();
                while !self.running.is_empty() {
                    let id = self.drop_running(0);
                    let error = crate::backend::BackendError::Compute {
                        op: "forward",
                        reason: reason.clone(),
                    };
                    finished.push(Finished {
                        id,
                        result: Err(error.into()),
                    });
                }
                return finished;
            }
        };
        for (index, logits) in logits.iter().enumerate().rev() {
            let row = &mut self.running[index];
            row.computed = row.next_end();
            let complete = row.computed == row.tokens.len();
            if let Some(result) = complete.then(|| self.advance(index, logits)).flatten() {
                let id = self.drop_running(index);
                finished.push(Finished { id, result });
            }
        }
        finished
    }

    fn pending(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    fn decoded_tokens(&self) -> u64 {
        self.decoded
    }
}
