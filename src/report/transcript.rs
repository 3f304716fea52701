//! A row as a reader follows it: what was asked, answered, found and fed back, call by call.
//!
//! Not the trace (`trace export` gives every byte): what a prompt repeats of the one before is left out and said so,
//! and text is escaped and wrapped to 80 columns.

use super::page::{WIDTH, columns, escape, wrap};
use crate::trace::call::{FailureText, Finding};
use crate::trace::read::StoredRow;
use crate::trace::{CallRecord, RunReader, TraceError};

const MARGIN: &str = "  | ";

/// One line a row: key, outcome, calls.
///
/// # Errors
/// What reading the trace says.
pub fn list(run: &RunReader) -> Result<String, TraceError> {
    let mut out = String::new();
    for row in run.rows()? {
        let calls = run.calls(&row)?.len();
        let line = format!(
            "{}  {}  {}",
            row.planned.key,
            outcome(&row),
            plural(calls, "call")
        );
        out.push_str(&escape(&line).replace('\n', "\\n"));
        out.push('\n');
    }
    Ok(out)
}

/// The rows that `name` may mean: the one of that key, else those whose key starts with it, else those whose key
/// contains it.
pub fn find<'a>(rows: &'a [StoredRow], name: &str) -> Vec<&'a StoredRow> {
    let matching = |keep: &dyn Fn(&str) -> bool| -> Vec<&'a StoredRow> {
        rows.iter().filter(|row| keep(&row.planned.key)).collect()
    };
    [
        matching(&|key| key == name),
        matching(&|key| key.starts_with(name)),
        matching(&|key| key.contains(name)),
    ]
    .into_iter()
    .find(|found| !found.is_empty())
    .unwrap_or_default()
}

/// The transcript of a row's current attempt.
///
/// # Errors
/// What reading the trace says.
pub fn of(run: &RunReader, row: &StoredRow) -> Result<String, TraceError> {
    let calls = run.calls(row)?;
    let mut page = Page::default();
    let planned = &row.planned;
    page.text("", &format!("Row {}", planned.key));
    let identity = &run.header.identity;
    let facts = [
        ("task", planned.task.clone()),
        (
            "policy",
            format!(
                "{}, budget {}, inference seed {}",
                planned.policy, planned.budget, planned.seed
            ),
        ),
        (
            "model",
            format!("{}, backend {}", identity.model, identity.backend),
        ),
        (
            "outcome",
            format!("{} after {}", outcome(row), plural(calls.len(), "call")),
        ),
    ];
    for (name, value) in facts {
        page.text(&format!("  {name:<8}"), &value);
    }
    if let Some(detail) = &row.detail {
        page.text("  because ", detail);
    }
    if row.attempt > 1 {
        page.text("  attempt ", &row.attempt.to_string());
    }
    for (index, call) in calls.iter().enumerate() {
        let previous = index.checked_sub(1).map(|i| &calls[i]);
        page.call(call, previous, planned.budget);
        page.feedback(call, index + 1 < calls.len(), row.outcome.is_none());
        page.post_hoc(call);
    }
    Ok(page.out)
}

fn outcome(row: &StoredRow) -> &'static str {
    row.outcome.map_or("not ended", |outcome| outcome.name())
}

fn plural(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

#[derive(Default)]
struct Page {
    out: String,
}

impl Page {
    fn text(&mut self, margin: &str, text: &str) {
        for line in wrap(text, margin) {
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    fn quote(&mut self, heading: &str, text: &str) {
        self.text("", heading);
        self.text(MARGIN, text);
    }

    fn call(&mut self, call: &CallRecord, previous: Option<&CallRecord>, budget: u32) {
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
            let mut lines = wrap(value, "           ").into_iter();
            if let Some(first) = lines.next() {
                self.out
                    .push_str(&format!("  {name:<8} {}\n", first.trim_start()));
            }
            for line in lines {
                self.out.push_str(&line);
                self.out.push('\n');
            }
        }
    }

    fn feedback(&mut self, call: &CallRecord, sent: bool, open: bool) {
        let Some(feedback) = &call.feedback else { return };
        let lines: Vec<&str> = feedback
            .opening
            .iter()
            .chain(&feedback.payload)
            .map(String::as_str)
            .collect();
        let heading = match (sent, open) {
            (true, _) => "feedback, as the policy renders it for the next prompt:",
            (false, true) => "feedback, for a call that has not been made yet:",
            (false, false) => "feedback (no call followed, so no model saw it):",
        };
        self.quote(heading, &lines.join("\n"));
    }

    fn post_hoc(&mut self, call: &CallRecord) {
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
        _ => "ended by the model",
    };
    match call.reused_from {
        Some(earlier) => format!("reply (that of call {earlier}, which had the same prompt):"),
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
    text + &format!(
        "; prefill {prefill:.3} s, {} new tokens in {decode:.3} s, gates {:.3} s",
        call.reply_tokens.len(),
        seconds(call.gate_us)
    )
}

/// What a prompt has that the one before has not.
struct NewPart<'a> {
    text: &'a str,
    /// Whole lines before it that both share.
    head: usize,
    /// Whole lines after it that both share.
    tail: usize,
}

/// The lines of `now` between those it shares with `before` at the start and at the end.
fn new_part<'a>(before: &str, now: &'a str) -> NewPart<'a> {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = now.split_inclusive('\n').collect();
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, rest) = (&old[head..], &new[head..]);
    let shared = old.iter().rev().zip(rest.iter().rev());
    let tail = shared.take_while(|(a, b)| a == b).count();
    let bytes = |lines: &[&str]| lines.iter().map(|line| line.len()).sum::<usize>();
    let start = bytes(&new[..head]);
    let end = now.len() - bytes(&rest[rest.len() - tail..]);
    NewPart {
        text: &now[start..end],
        head,
        tail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_part_is_what_the_ends_do_not_share() {
        let part = |before, now| {
            let NewPart { text, head, tail } = new_part(before, now);
            (text, head, tail)
        };
        assert_eq!(part("a\nb\nc\n", "a\nx\ny\nc\n"), ("x\ny\n", 1, 1));
        assert_eq!(part("a\nb", "a\nb\nc"), ("b\nc", 1, 0));
        assert_eq!(part("a\na\n", "a\na\na\n"), ("a\n", 2, 0));
        assert_eq!(part("é\n", "è\n"), ("è\n", 0, 0));
        assert_eq!(part("a\nb\n", "a\n"), ("", 1, 0));
    }
}
