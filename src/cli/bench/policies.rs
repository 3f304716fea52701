//! Decoding throughput per policy: a recorded run's prompts, decoded again.
//!
//! Not the study: nothing is judged, and each row's calls are those that were recorded. A call is submitted when the one
//! before it is complete, as the study does; replies must be the recorded ones where model and backend are.

use super::BenchArgs;
use super::table::{Cell, Figures, number, words};
use crate::cli::{complain, open};
use crate::engine::{Engine, Identity, Prompt, Request};
use crate::trace::{CallRecord, Header, RunReader};
use anyhow::{Context, ensure};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
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
    fn request(&self, index: usize, engine: &dyn Engine, tokens: bool) -> anyhow::Result<Option<Request>> {
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
struct Active {
    row: Row,
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
    rows: Vec<Duration>,
    wall: Duration,
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
        ],
        rows: Vec::new(),
    };
    let mut differing = 0;
    for (index, (policy, rows)) in rows(&reader)?.into_iter().enumerate() {
        let mut engine = open::engine(&model, &args.backend, args.concurrency)?.engine;
        let differences = differences(recorded, engine.identity());
        if index == 0 && !differences.is_empty() {
            complain(&format!(
                "not what the run was recorded with, so replies may differ: {}",
                differences.join("; ")
            ));
        }
        let tokens = same_text(recorded, engine.identity());
        let total = decode(&mut *engine, rows, args.concurrency, tokens)?;
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
fn decode(
    engine: &mut dyn Engine,
    rows: Vec<Row>,
    concurrency: usize,
    tokens: bool,
) -> anyhow::Result<Total> {
    let mut waiting = VecDeque::from(rows);
    let mut active = HashMap::new();
    let mut total = Total::default();
    let started = Instant::now();
    loop {
        while active.len() < concurrency {
            let Some(row) = waiting.pop_front() else { break };
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
