//! Decoding throughput per policy: a recorded run's prompts, decoded again.
//!
//! Not the study: nothing is judged, and each row's calls are those that were recorded. A call is submitted when the one
//! before it is complete, as the study does; replies must be the recorded ones where the backend is.

use super::super::open;
use super::BenchArgs;
use super::table::Figures;
use crate::engine::{Engine, Prompt, Request};
use crate::trace::{CallRecord, RunReader};
use anyhow::{Context, ensure};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

/// A row's calls that the engine made, and where it is.
struct Row {
    key: String,
    seed: u64,
    calls: Vec<CallRecord>,
    next: usize,
    started: Option<Instant>,
}

impl Row {
    fn request(&self) -> Option<Request> {
        let call = self.calls.get(self.next)?;
        Some(Request {
            row: self.key.clone(),
            call: call.call,
            seed: self.seed,
            prompt: Prompt {
                text: String::new(),
                tokens: call.prompt_tokens.clone(),
            },
            sampling: call.sampling.clone(),
        })
    }
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
    let model = match args.model.as_slice() {
        [] => reader.header.identity.model.clone(),
        [one] => one.clone(),
        several => anyhow::bail!(
            "--model: expected one model with --policies, found {}",
            several.len()
        ),
    };
    let policies = rows(&reader)?;
    let mut figures = Figures {
        names: vec![
            "policy", "rows", "calls", "calls/s", "in/s", "out/s", "in", "cached %", "out/call", "s/row",
            "same",
        ],
        rows: Vec::new(),
    };
    for (policy, rows) in policies {
        let mut engine = open::engine(&model, &args.backend, args.concurrency)?.engine;
        let (found, recorded) = (engine.identity(), &reader.header.identity);
        if found != recorded {
            super::super::complain(&format!(
                "recorded with {} on {}, decoded with {} on {}: replies may differ",
                recorded.model, recorded.backend, found.model, found.backend
            ));
        }
        let count = rows.len();
        let total = decode(&mut *engine, rows, args.concurrency)?;
        let wall = total.wall.as_secs_f64();
        let per_row: f64 = total.rows.iter().map(Duration::as_secs_f64).sum::<f64>() / count.max(1) as f64;
        let share = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        figures.rows.push(vec![
            json!(policy),
            json!(count),
            json!(total.calls),
            json!(total.calls as f64 / wall),
            json!(total.tokens_in as f64 / wall),
            json!(total.tokens_out as f64 / wall),
            json!(total.tokens_in),
            json!(share(total.cached, total.tokens_in)),
            json!(total.tokens_out as f64 / total.calls.max(1) as f64),
            json!(per_row),
            json!(total.same),
        ]);
    }
    figures.print(args.format)?;
    Ok(super::super::DONE)
}

/// The rows of each policy, policies in the order of the run.
fn rows(reader: &RunReader) -> anyhow::Result<Vec<(String, Vec<Row>)>> {
    let mut policies: Vec<(String, Vec<Row>)> = Vec::new();
    for stored in reader.rows()? {
        let mut calls = reader.calls(&stored)?;
        // A reply that was reused cost nothing.
        calls.retain(|call| call.reused_from.is_none());
        if calls.is_empty() {
            continue;
        }
        ensure!(
            calls.iter().all(|call| !call.prompt_tokens.is_empty()),
            "row {}: its prompts have no tokens: the run was played back from a script",
            stored.planned.key
        );
        let row = Row {
            key: stored.planned.key,
            seed: stored.planned.seed,
            calls,
            next: 0,
            started: None,
        };
        match policies
            .iter_mut()
            .find(|(policy, _)| *policy == stored.planned.policy)
        {
            Some((_, rows)) => rows.push(row),
            None => policies.push((stored.planned.policy, vec![row])),
        }
    }
    ensure!(!policies.is_empty(), "the run has no calls yet");
    Ok(policies)
}

fn decode(engine: &mut dyn Engine, rows: Vec<Row>, concurrency: usize) -> anyhow::Result<Total> {
    let mut waiting = VecDeque::from(rows);
    let mut active = HashMap::new();
    let mut total = Total::default();
    let started = Instant::now();
    loop {
        while active.len() < concurrency {
            let Some(mut row) = waiting.pop_front() else { break };
            row.started = Some(Instant::now());
            if let Some(request) = row.request() {
                active.insert(engine.submit(request), row);
            }
        }
        if active.is_empty() {
            total.wall = started.elapsed();
            return Ok(total);
        }
        for finished in engine.step() {
            let Some(mut row) = active.remove(&finished.id) else {
                continue;
            };
            let completion = finished.result.with_context(|| format!("row {}", row.key))?;
            let call = &row.calls[row.next];
            total.calls += 1;
            total.same += usize::from(completion.tokens == call.reply_tokens);
            total.tokens_in += call.prompt_tokens.len();
            total.cached += completion.cost.cached_tokens;
            total.tokens_out += completion.tokens.len();
            row.next += 1;
            match row.request() {
                Some(request) => {
                    active.insert(engine.submit(request), row);
                }
                None => total.rows.extend(row.started.map(|started| started.elapsed())),
            }
        }
    }
}
