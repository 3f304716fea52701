//! One call on the page: prompt, cost, reply, findings, feedback, and what is known only afterwards.
//!
//! Not the choice of calls; every text passes through `wrap`, which escapes it.

use super::new_part::new_part;
use crate::report::page::{WIDTH, columns, wrap};
use crate::trace::CallRecord;
use crate::trace::call::{FailureText, Finding};

const MARGIN: &str = "  | ";

/// Text of the transcript so far.
#[derive(Default)]
pub(super) struct Page {
    /// What is written so far.
    pub(super) out: String,
}

impl Page {
    pub(super) fn text(&mut self, margin: &str, text: &str) {
        for line in wrap(text, margin) {
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    fn quote(&mut self, heading: &str, text: &str) {
        self.text("", heading);
        self.text(MARGIN, text);
    }

    pub(super) fn call(&mut self, call: &CallRecord, previous: Option<&CallRecord>, budget: u32) {
        let rule = format!("── call {} of at most {budget} ", call.call);
        let fill = "─".repeat(WIDTH.saturating_sub(columns(&rule)));
        self.out.push_str(&format!("\n{rule}{fill}\n"));
        self.prompt(call, previous);
        self.text("", &cost(call));
        self.quote(&reply_heading(call), &call.reply);
        self.text("", &parsed(call));
        for finding in call.findings() {
            self.finding(&finding);
        }
        let verdict = if call.accepted() { "accepted" } else { "rejected" };
        self.text("", &format!("verdict: {verdict}"));
        if call.repeats_plan {
            self.text("", "the plan is that of the call before");
        }
    }

    fn prompt(&mut self, call: &CallRecord, previous: Option<&CallRecord>) {
        let (system, user) = (call.said(false), call.said(true));
        let Some(previous) = previous else {
            if !system.is_empty() {
                self.quote("prompt, system message:", &system);
            }
            self.quote("prompt, user message:", &user);
            return;
        };
        if system != previous.said(false) {
            self.quote("prompt, system message:", &system);
        }
        let before = previous.said(true);
        if user == before {
            self.text("", "prompt: that of the call before");
            return;
        }
        let new = new_part(&before, &user);
        self.text("", "prompt, user message, what is new in it:");
        self.text("", &format!("{MARGIN}[{} as before]", plural(new.head, "line")));
        self.text(MARGIN, new.text);
        if new.tail > 0 {
            self.text("", &format!("{MARGIN}[{} as before]", plural(new.tail, "line")));
        }
    }

    fn finding(&mut self, finding: &Finding) {
        let Some(failure) = &finding.failure else {
            self.text("", &format!("gate {}: passed", finding.gate));
            return;
        };
        let FailureText {
            label,
            location,
            observed,
            expected,
            message,
        } = failure;
        self.text("", &format!("gate {}: {label}", finding.gate));
        let expected = match expected.as_slice() {
            [] => "(the gate does not know)".to_owned(),
            [one] => one.clone(),
            many => format!("one of {}: {}", many.len(), many.join(", ")),
        };
        let parts = [
            ("message", message),
            ("at", location),
            ("observed", observed),
            ("expected", &expected),
        ];
        for (name, value) in parts {
            let mut lines = wrap(value, "            ").into_iter();
            if let Some(first) = lines.next() {
                self.out
                    .push_str(&format!("  {name:<9} {}\n", first.trim_start()));
            }
            for line in lines {
                self.out.push_str(&line);
                self.out.push('\n');
            }
        }
    }

    pub(super) fn feedback(&mut self, call: &CallRecord, sent: bool, open: bool) {
        let Some(feedback) = &call.feedback else { return };
        let lines: Vec<&str> = feedback
            .opening
            .iter()
            .chain(&feedback.payload)
            .map(String::as_str)
            .collect();
        let heading = match (sent, open) {
            (true, _) => "feedback, as the policy renders it (the profile decides which lines are sent):",
            (false, true) => "feedback, for a call that has not been made yet:",
            (false, false) => "feedback (no call followed, so no model saw it):",
        };
        self.quote(heading, &lines.join("\n"));
    }

    pub(super) fn post_hoc(&mut self, call: &CallRecord) {
        let Some(facts) = call
            .judgement
            .post_hoc
            .as_object()
            .filter(|facts| !facts.is_empty())
        else {
            return;
        };
        let lines: Vec<String> = facts
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        self.quote("post-hoc (not shown to the model):", &lines.join("\n"));
    }
}

fn reply_heading(call: &CallRecord) -> String {
    let stop = serde_json::to_value(call.stop).unwrap_or_default();
    let ended = match stop.as_str() {
        Some("max_tokens") => "cut by the cap on new tokens",
        Some("stop_string") => "ended before a stop string",
        _ if call.sampling.schema.is_some() => "complete",
        _ => "ended by the model",
    };
    match call.reused_from {
        Some(earlier) => format!("reply (that of call {earlier}, which had the same prompt):"),
        None if call.sampling.schema.is_some() => format!("reply (held to a schema, {ended}):"),
        None => format!("reply ({ended}):"),
    }
}

fn parsed(call: &CallRecord) -> String {
    let candidate = &call.candidate;
    let (strict, lenient) = (candidate.strict.name(), candidate.lenient.name());
    let mut text = format!("parsed: {strict}");
    if lenient != strict {
        text += &format!("; with the code fence off: {lenient}");
    }
    if let Some(problem) = &candidate.problem {
        text += &format!(" ({problem})");
    }
    text
}

fn cost(call: &CallRecord) -> String {
    let seconds = |us: u64| us as f64 / 1e6;
    let mut text = plural(call.prompt_words as usize, "word");
    if !call.prompt_tokens.is_empty() {
        let (tokens, cached) = (call.prompt_tokens.len(), call.cost.cached_tokens);
        text += &format!(" in {tokens} tokens ({cached} cached)");
    }
    let (prefill, decode) = (seconds(call.cost.prefill_us), seconds(call.cost.decode_us));
    let (forced, right) = (call.cost.forced_tokens as u64, call.cost.drafts.confirmed);
    let spared: Vec<String> = [(forced, "forced"), (right, "guessed right")]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, how)| format!("{count} {how}"))
        .collect();
    let spared = match spared.is_empty() {
        true => String::new(),
        false => format!(" ({})", spared.join(", ")),
    };
    text + &format!(
        "; prefill {prefill:.3} s, {} new tokens{spared} in {decode:.3} s, gates {:.3} s",
        call.reply_tokens.len(),
        seconds(call.gate_us)
    )
}

/// `1 call`, `2 calls`.
pub(super) fn plural(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
