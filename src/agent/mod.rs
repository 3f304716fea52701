//! The loop of one row, as a state machine: a first prompt, then a next prompt or the end, after each call.
//!
//! Not a driver: it calls no engine and writes no trace, so any scheduler can run a hundred rows on one thread.
//! Every prompt after the first is built from the [`Committed`] of the call before: what is not durable cannot be
//! answered.

use crate::candidate::{self, Fences, Plan};
use crate::engine::{Completion, Prompt, Sampling};
use crate::feedback::{self, Caps, Policy};
use crate::gate::chain::{Task, judge};
use crate::gate::{GateError, TaskView, Verdict};
use crate::model::chat::{Message, Role};
use crate::prompt::{Attempt, Profile, Rejected};
use crate::trace::{CallRecord, Committed, Outcome, PlannedRow};
use std::sync::Arc;
use std::time::Instant;

/// Everything that decides what a row does.
pub struct RowSpec {
    /// The row.
    pub planned: PlannedRow,
    /// Its policy, by type.
    pub policy: Policy,
    /// What it is about.
    pub task: Task,
    /// What its prompts may know of it.
    pub view: TaskView,
    /// How prompts are laid out.
    pub profile: Profile,
    /// How much of a failure is shown.
    pub caps: Caps,
    /// What happens to code fences.
    pub fences: Fences,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

/// What the model is to be asked next. Made by [`RowLoop`] only, and after the first call only for a [`Committed`]:
///
/// ```
/// use veriharness::{agent::{Next, RowLoop}, trace::Committed};
/// fn next(row: &RowLoop, proof: Committed) -> Option<Next> {
///     row.next(proof)
/// }
/// ```
/// It cannot be made by hand,
/// ```compile_fail,E0451
/// use veriharness::agent::NextPrompt;
/// let forged = NextPrompt { call: 2, messages: Vec::new() };
/// ```
/// nor from anything but the proof: not from the call's own record.
/// ```compile_fail,E0308
/// use veriharness::{agent::{Next, RowLoop}, trace::CallRecord};
/// fn next(row: &RowLoop, record: CallRecord) -> Option<Next> {
///     row.next(record)
/// }
/// ```
#[derive(Debug)]
pub struct NextPrompt {
    call: u32,
    messages: Vec<Message>,
}

impl NextPrompt {
    /// Which call of the row, from 1.
    pub fn call(&self) -> u32 {
        self.call
    }

    /// The messages to render.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Joins the prompt with its rendering.
    pub fn asked(self, prompt: Prompt) -> Asked {
        Asked {
            call: self.call,
            messages: self.messages,
            prompt,
            reused_from: None,
        }
    }
}

/// A prompt as it was put to the engine.
#[derive(Debug)]
pub struct Asked {
    /// Which call of the row, from 1.
    pub call: u32,
    /// The messages.
    pub messages: Vec<Message>,
    /// The messages rendered.
    pub prompt: Prompt,
    /// The earlier call whose reply answers it, when no engine is needed.
    pub reused_from: Option<u32>,
}

/// What follows a committed call.
#[derive(Debug)]
pub enum Next {
    /// The row goes on.
    Prompt(NextPrompt),
    /// The row is over.
    Done(Outcome),
}

/// A row between two calls.
pub struct RowLoop {
    spec: Arc<RowSpec>,
    calls: Vec<CallRecord>,
}

impl RowLoop {
    /// A row with the calls that it has already made.
    pub fn new(spec: Arc<RowSpec>, calls: Vec<CallRecord>) -> Self {
        Self { spec, calls }
    }

    /// What the row is.
    pub fn spec(&self) -> &Arc<RowSpec> {
        &self.spec
    }

    /// The prompt of the first call, free of feedback; `None` when it has been made.
    pub fn first(&self) -> Option<NextPrompt> {
        self.calls.is_empty().then(|| self.prompt(1, None))
    }

    /// The prompt after the call that `committed` proves durable, or the end of the row.
    ///
    /// `None` when the proof is of another row or another call than the last.
    pub fn next(&self, committed: Committed) -> Option<Next> {
        let last = self.calls.last()?;
        if committed.row() != self.spec.planned.key || committed.call() != last.call {
            return None;
        }
        if let Some(outcome) = self.ends_with(last) {
            return Some(Next::Done(outcome));
        }
        let feedback = last.feedback.as_ref()?;
        let rejected = Rejected {
            plan: last.candidate.plan.as_ref(),
            answer: last.candidate.envelope.as_ref().map_or("", |e| &e.answer),
            reply: &last.reply,
            feedback,
        };
        Some(Next::Prompt(self.prompt(last.call + 1, Some(rejected))))
    }

    /// How the row ends if `record` is its last call so far; `None` when it goes on.
    pub fn ends_with(&self, record: &CallRecord) -> Option<Outcome> {
        match record.judgement.verdict {
            Verdict::Accepted => Some(Outcome::Accepted),
            Verdict::Rejected if record.call >= self.spec.planned.budget => Some(Outcome::BudgetExhausted),
            Verdict::Rejected => None,
        }
    }

    /// Takes a committed call into the row.
    pub fn push(&mut self, record: CallRecord) {
        self.calls.push(record);
    }

    /// The plan of the last call.
    pub fn last_plan(&self) -> Option<&Plan> {
        self.calls.last().and_then(|call| call.candidate.plan.as_ref())
    }

    /// At temperature 0 a byte-identical prompt of this row has its reply already: the call and the completion.
    ///
    /// Only the row's own calls are looked at, so what is reused never depends on how rows were scheduled.
    pub fn reusable(&self, prompt: &Prompt) -> Option<(u32, Completion)> {
        if !self.spec.sampling.is_greedy() {
            return None;
        }
        let same = self.calls.iter().find(|call| call.prompt_text == prompt.text)?;
        let completion = Completion {
            text: same.reply.clone(),
            tokens: same.reply_tokens.clone(),
            stop: same.stop,
            cost: Default::default(),
        };
        Some((same.call, completion))
    }

    fn prompt(&self, number: u32, rejected: Option<Rejected<'_>>) -> NextPrompt {
        let attempt = Attempt {
            number,
            budget: self.spec.planned.budget,
            policy: self.spec.policy,
            rejected,
        };
        NextPrompt {
            call: number,
            messages: self.spec.profile.messages(&self.spec.view, &attempt),
        }
    }
}

/// Completion to record: parse, judge, render. Pure, so that it may run on any thread.
///
/// # Errors
/// [`GateError`] when a gate broke; the row then has no verdict.
pub fn examine(
    spec: &RowSpec,
    asked: Asked,
    completion: Completion,
    previous_plan: Option<&Plan>,
) -> Result<CallRecord, GateError> {
    let start = Instant::now();
    let format = spec.profile.format();
    let candidate = candidate::parse(&completion.text, completion.stop, format, spec.fences);
    let judgement = judge(&spec.task, &candidate, &completion.text, format)?;
    let failures = judgement.failures();
    let feedback = match judgement.verdict {
        Verdict::Accepted => None,
        Verdict::Rejected => Some(feedback::render(spec.policy, &failures, &spec.caps)),
    };
    let words = |text: &str| text.split_whitespace().count() as u64;
    let user = asked.messages.iter().filter(|message| message.role == Role::User);
    Ok(CallRecord {
        call: asked.call,
        prompt_words: user.map(|message| words(&message.content)).sum(),
        messages: asked.messages,
        prompt_text: asked.prompt.text,
        prompt_tokens: asked.prompt.tokens,
        reply_words: words(&completion.text),
        reply: completion.text,
        reply_tokens: completion.tokens,
        stop: completion.stop,
        reused_from: asked.reused_from,
        repeats_plan: candidate.plan.is_some() && candidate.plan.as_ref() == previous_plan,
        candidate,
        judgement,
        feedback,
        sampling: spec.sampling.clone(),
        cost: completion.cost,
        gate_us: start.elapsed().as_micros() as u64,
    })
}
