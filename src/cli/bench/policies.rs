//! Decoding throughput per policy: a recorded run's prompts, decoded again.
//!
//! Not the study: nothing is judged, and each row's calls are those that were recorded. A call is submitted when the one
//! before it is complete, as the study does; replies must be the recorded ones where model and backend are. Each policy
//! is decoded with drafts and without, which must give the same.

use super::BenchArgs;
use super::table::{Cell, Figures, number, words};
use crate::cli::{complain, open};
use crate::engine::local::{Limits, LocalEngine};
use crate::engine::{Drafts, Engine, Identity, Prompt, Request};
use crate::trace::{CallRecord, Header, RunReader};
use anyhow::{Context, ensure};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// A row's calls that an engine made.
struct Row {
    key: String,
    seed: u64,
    calls: Vec<CallRecord>,
}

impl Row {
    /// Its call `index`. The recorded tokens serve where there are any and they are of the same model.
    fn request(&self, index: usize, engine: &LocalEngine, tokens: bool) -> anyhow::Result<Option<Request>> {
        let Some(call) = self.calls.get(index) else {
            return Ok(None);
        };
        let prompt = match tokens && !call.prompt_tokens.is_empty() {
            true => Prompt {
                text: call.prompt_text.clone(),
                tokens: call.prompt_tokens.clone(),
            },
            false => engine.encode(&call.messages)?,
        };
        Ok(Some(Request {
            row: self.key.clone(),
            call: call.call,
            seed: self.seed,
            prompt,
            sampling: call.sampling.clone(),
        }))
    }
}

/// A row in work: which of its calls is asked, since when the row is, and its prompt's tokens.
struct Active<'a> {
    row: &'a Row,
    index: usize,
    since: Instant,
    prompt: usize,
}

/// What decoding the rows of a policy took.
#[derive(Default)]
struct Total {
    calls: usize,
    same: usize,
    tokens_in: usize,
    cached: usize,
    tokens_out: usize,
    drafts: Drafts,
    rows: Vec<Duration>,
    wall: Duration,
    /// What it took without drafts; `None` when there were none anyway.
    plain: Option<Duration>,
}

/// Decodes every policy's rows and prints the table.
pub(super) fn run(args: &BenchArgs, run: &Path) -> anyhow::Result<u8> {
    ensure!(
        args.concurrency >= 1,
        "--concurrency: expected at least 1, found 0"
    );
    let reader = RunReader::open(run)?;
    let recorded = &reader.header.identity;
    let model = match args.model.as_slice() {
        [] => own_model(&reader.header)?,
        [one] => one.clone(),
        several => anyhow::bail!(
            "--model: expected one model with --policies, found {}",
            several.len()
        ),
    };
    let mut figures = Figures {
        columns: vec![
            words("policy", "policy"),
            number("rows", "rows"),
            number("calls", "calls"),
            number("calls_per_second", "calls/s"),
            number("tokens_in_per_second", "in/s"),
            number("tokens_out_per_second", "out/s"),
            number("prompt_tokens", "prompt"),
            number("cached_tokens", ""),
            number("cached_percent", "cached %"),
            number("new_tokens_per_call", "new/call"),
            number("seconds_per_row", "s/row"),
            number("identical_replies", "same"),
            number("guessed_tokens", ""),
            number("confirmed_percent", "draft %"),
            number("draft_gain", "gain"),
        ],
        rows: Vec::new(),
    };
    let limits = args.backend.limits(args.concurrency);
    let mut engine = open::local(&model, &args.backend, args.concurrency)?.engine;
    let differences = differences(recorded, engine.identity());
    if !differences.is_empty() {
        complain(&format!(
            "not what the run was recorded with, so replies may differ: {}",
            differences.join("; ")
        ));
    }
    let tokens = same_text(recorded, engine.identity());
    let mut differing = 0;
    for (policy, rows) in rows(&reader)? {
        engine.restart(limits)?;
        let mut total = decode(&mut engine, &rows, args.concurrency, tokens)?;
        if total.drafts.guessed > 0 {
            engine.restart(Limits { draft: 0, ..limits })?;
            let plain = decode(&mut engine, &rows, args.concurrency, tokens)?;
            ensure!(
                (plain.same, plain.tokens_out) == (total.same, total.tokens_out),
                "{policy}: drafts changed a reply"
            );
            total.plain = Some(plain.wall);
        }
        if differences.is_empty() {
            differing += total.calls - total.same;
        }
        figures.rows.push(line(&policy, &total));
    }
    figures.print(args.format, &args.backend)?;
    if differing > 0 {
        complain(&format!(
            "{differing} replies differ from the recorded ones, though model and backend are the same"
        ));
        return Ok(crate::cli::FAILED);
    }
    Ok(crate::cli::DONE)
}

/// The model that the run's study names: what `study` was given, a path too.
fn own_model(header: &Header) -> anyhow::Result<String> {
    let study: toml::Table = toml::from_str(&header.study_toml).context("the run's study is not readable")?;
    let model = study.get("model").and_then(toml::Value::as_str);
    let model = model.unwrap_or(&header.identity.model).to_owned();
    ensure!(
        !model.starts_with("scripted:"),
        "the run was played back from a script and names no model: --model says which one decodes its prompts"
    );
    Ok(model)
}

/// What of two identities is not the same, except what the model is called.
fn differences(recorded: &Identity, found: &Identity) -> Vec<String> {
    [
        ("model", &recorded.model_sha256, &found.model_sha256),
        ("template", &recorded.template_sha256, &found.template_sha256),
        ("backend", &recorded.backend, &found.backend),
    ]
    .into_iter()
    .filter(|(_, recorded, found)| recorded != found)
    .map(|(what, recorded, found)| match what {
        "backend" => format!("backend: recorded with {recorded}, this is {found}"),
        _ => format!("{what}: recorded with sha256 {recorded}, this is {found}"),
    })
    .collect()
}

/// Whether recorded token ids mean the same to the engine.
fn same_text(recorded: &Identity, found: &Identity) -> bool {
    recorded.model_sha256 == found.model_sha256 && recorded.template_sha256 == found.template_sha256
}

fn line(policy: &str, total: &Total) -> Vec<Cell> {
    let rate = |count: usize| Cell::rounded(count as f64 / total.wall.as_secs_f64().max(1e-9));
    let per = |sum: f64, count: usize| sum / count.max(1) as f64;
    let cached = 100.0 * per(total.cached as f64, total.tokens_in);
    let rows: f64 = total.rows.iter().map(Duration::as_secs_f64).sum();
    let (guessed, confirmed) = (total.drafts.guessed as f64, total.drafts.confirmed as f64);
    let confirmed = (guessed > 0.0).then(|| 100.0 * confirmed / guessed);
    let gain = total
        .plain
        .map(|plain| plain.as_secs_f64() / total.wall.as_secs_f64().max(1e-9));
    let optional = |number: Option<f64>, shown: fn(f64) -> String| {
        Cell::shown(json!(number), number.map_or_else(|| "-".into(), shown))
    };
    vec![
        Cell::plain(json!(policy)),
        Cell::plain(json!(total.rows.len())),
        Cell::plain(json!(total.calls)),
        rate(total.calls),
        rate(total.tokens_in),
        rate(total.tokens_out),
        Cell::plain(json!(total.tokens_in)),
        Cell::plain(json!(total.cached)),
        Cell::shown(json!(cached), format!("{cached:.1}")),
        Cell::rounded(per(total.tokens_out as f64, total.calls)),
        Cell::rounded(per(rows, total.rows.len())),
        Cell::plain(json!(total.same)),
        Cell::plain(json!(total.drafts.guessed)),
        optional(confirmed, |percent| format!("{percent:.0}")),
        optional(gain, |gain| format!("{gain:.2}")),
    ]
}

/// The rows of each policy, policies in the order of the run.
fn rows(reader: &RunReader) -> anyhow::Result<Vec<(String, Vec<Row>)>> {
    let mut policies: Vec<(String, Vec<Row>)> = Vec::new();
    for stored in reader.rows()? {
        let mut calls = reader.calls(&stored)?;
        // A reply that was reused came from no engine.
        calls.retain(|call| call.reused_from.is_none());
        if calls.is_empty() {
            continue;
        }
        let row = Row {
            key: stored.planned.key,
            seed: stored.planned.seed,
            calls,
        };
        let policy = stored.planned.policy;
        match policies.iter_mut().find(|(known, _)| *known == policy) {
            Some((_, rows)) => rows.push(row),
            None => policies.push((policy, vec![row])),
        }
    }
    ensure!(!policies.is_empty(), "the run has no calls yet");
    Ok(policies)
}

/// Decodes the rows, `concurrency` at a time; `tokens` says whether recorded token ids serve.
fn decode(engine: &mut LocalEngine, rows: &[Row], concurrency: usize, tokens: bool) -> anyhow::Result<Total> {
    let mut waiting = rows.iter();
    let mut active = HashMap::new();
    let mut total = Total::default();
    let started = Instant::now();
    loop {
        while active.len() < concurrency {
            let Some(row) = waiting.next() else { break };
            let since = Instant::now();
            if let Some(request) = row.request(0, engine, tokens)? {
                let prompt = request.prompt.tokens.len();
                let asked = Active {
                    row,
                    index: 0,
                    since,
                    prompt,
                };
                active.insert(engine.submit(request), asked);
            }
        }
        if active.is_empty() {
            total.wall = started.elapsed();
            return Ok(total);
        }
        for finished in engine.step() {
            let Some(mut asked) = active.remove(&finished.id) else {
                continue;
            };
            let call = &asked.row.calls[asked.index];
            let place = || format!("row {}, call {}", asked.row.key, call.call);
            let completion = finished.result.with_context(place)?;
            total.calls += 1;
            total.same += usize::from(completion.text == call.reply && completion.stop == call.stop);
            total.tokens_in += asked.prompt;
            total.cached += completion.cost.cached_tokens;
            total.tokens_out += completion.tokens.len();
            total.drafts += completion.cost.drafts;
            asked.index += 1;
            match asked.row.request(asked.index, engine, tokens)? {
                Some(request) => {
                    asked.prompt = request.prompt.tokens.len();
                    active.insert(engine.submit(request), asked);
                }
                None => total.rows.push(asked.since.elapsed()),
            }
        }
    }
}
