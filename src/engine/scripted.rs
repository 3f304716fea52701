//! Plays back stored completions: a study without a model.
//!
//! Not a mock that invents: it answers from a file of JSON lines, one `{"row", "call", "reply"}` each, which is what
//! `trace export` writes; so a recorded run can be replayed through changed gates or reports, and tests can drive
//! the whole loop.

use super::{
    Completion, Cost, Engine, EngineError, Finished, Identity, Prompt, Request, RequestId, Sampling, Stats,
    StopReason,
};
use crate::model::chat::Message;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::path::Path;

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    row: Option<String>,
    #[serde(default)]
    call: Option<u32>,
    #[serde(default)]
    reply: Option<String>,
    #[serde(default)]
    stop: Option<StopReason>,
}

/// An engine that answers from a script.
pub struct ScriptedEngine {
    file: String,
    identity: Identity,
    replies: HashMap<(String, u32), (String, StopReason)>,
    queue: VecDeque<(RequestId, Request)>,
    next_id: u64,
    stats: Stats,
}

impl ScriptedEngine {
    /// Reads a script. Lines without a `reply` (rows without calls in an export) are passed over.
    ///
    /// # Errors
    /// [`EngineError::Script`] naming file and line.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| EngineError::Script {
            file: file.clone(),
            place: "the file".into(),
            reason: error.to_string(),
        })?;
        Self::parse(&file, &text)
    }

    /// Reads a script from memory; `file` is what errors and the trace call it.
    ///
    /// # Errors
    /// As [`ScriptedEngine::open`].
    pub fn parse(file: &str, text: &str) -> Result<Self, EngineError> {
        let mut replies = HashMap::new();
        for (index, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let script_error = |reason: String| EngineError::Script {
                file: file.to_owned(),
                place: format!("line {}", index + 1),
                reason,
            };
            let line: Line = serde_json::from_str(line).map_err(|error| script_error(error.to_string()))?;
            let Some(reply) = line.reply else { continue };
            let (Some(row), Some(call)) = (line.row, line.call) else {
                return Err(script_error(
                    "expected the fields row and call beside reply".into(),
                ));
            };
            let stop = line.stop.unwrap_or(StopReason::EndOfTurn);
            if replies.insert((row.clone(), call), (reply, stop)).is_some() {
                return Err(script_error(format!(
                    "a second reply for call {call} of row {row}"
                )));
            }
        }
        let identity = Identity {
            model: "scripted".into(),
            model_sha256: format!("{:x}", Sha256::digest(text)),
            template_sha256: String::new(),
            backend: "scripted".into(),
        };
        let file = file.to_owned();
        Ok(Self {
            file,
            identity,
            replies,
            queue: VecDeque::new(),
            next_id: 0,
            stats: Stats::default(),
        })
    }
}

impl Engine for ScriptedEngine {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn encode(&self, messages: &[Message]) -> Result<Prompt, EngineError> {
        let text = messages
            .iter()
            .map(|m| m.content.as_str())
            .collect::<Vec<_>>()
            .join("\n\n");
        Ok(Prompt {
            text,
            tokens: Vec::new(),
        })
    }

    /// Refuses a schema: what is played back was drawn already.
    fn prepare(&mut self, sampling: &Sampling) -> Result<(), EngineError> {
        match &sampling.schema {
            Some(_) => Err(EngineError::Fixed),
            None => Ok(()),
        }
    }

    fn submit(&mut self, request: Request) -> RequestId {
        self.next_id += 1;
        self.queue.push_back((RequestId(self.next_id), request));
        RequestId(self.next_id)
    }

    fn step(&mut self) -> Vec<Finished> {
        let Some((id, request)) = self.queue.pop_front() else {
            return Vec::new();
        };
        let key = (request.row, request.call);
        let result = match self.replies.get(&key) {
            Some((text, stop)) => {
                self.stats.decoded += 1;
                Ok(Completion {
                    text: text.clone(),
                    tokens: Vec::new(),
                    stop: *stop,
                    cost: Cost::default(),
                })
            }
            None => Err(EngineError::NoReply {
                file: self.file.clone(),
                row: key.0,
                call: key.1,
            }),
        };
        vec![Finished { id, result }]
    }

    fn pending(&self) -> usize {
        self.queue.len()
    }

    /// A reply counts as one token: it has no others.
    fn stats(&self) -> Stats {
        self.stats
    }
}
