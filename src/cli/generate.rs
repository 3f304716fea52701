//! `generate PROMPT`: one reply of a model, printed as it grows.
//!
//! Not a conversation and not a study: nothing is judged or kept.

use super::open::{self, BackendArgs};
use super::study::stop_on_signal;
use crate::engine::{Completion, Engine, Request, Sampling, Schema, StopReason};
use crate::model::chat::Message;
use crate::model::manifest;
use anyhow::Context;
use clap::Args;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Flags of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to ask; `-` reads it from stdin
    prompt: String,
    /// Model by name (see `model list`), or the path of a .gguf file or a Hugging Face folder
    #[arg(long, env = "VERIHARNESS_MODEL")]
    model: Option<String>,
    /// Standing instructions
    #[arg(long, env = "VERIHARNESS_SYSTEM", value_name = "TEXT")]
    system: Option<String>,
    /// 0 is greedy
    #[arg(
        long,
        env = "VERIHARNESS_TEMPERATURE",
        value_name = "T",
        default_value_t = 0.0
    )]
    temperature: f64,
    /// Keep the smallest set of tokens whose probability reaches this
    #[arg(long, env = "VERIHARNESS_TOP_P", value_name = "P", default_value_t = 1.0)]
    top_p: f64,
    /// Keep the K likeliest tokens; 0 keeps all
    #[arg(long, env = "VERIHARNESS_TOP_K", value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Keep tokens at least this likely, relative to the likeliest
    #[arg(long, env = "VERIHARNESS_MIN_P", value_name = "P", default_value_t = 0.0)]
    min_p: f64,
    /// Makes tokens that were there before less likely; 1 is off
    #[arg(
        long,
        env = "VERIHARNESS_REPETITION_PENALTY",
        value_name = "X",
        default_value_t = 1.0
    )]
    repetition_penalty: f64,
    /// End before this text; may be given several times
    #[arg(long, env = "VERIHARNESS_STOP", value_name = "TEXT")]
    stop: Vec<String>,
    /// Most new tokens
    #[arg(long, env = "VERIHARNESS_MAX_TOKENS", value_name = "N", default_value_t = 512)]
    max_tokens: usize,
    /// Seed of the draws, above temperature 0
    #[arg(long, env = "VERIHARNESS_SEED", value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Only a document of this JSON schema can be the reply
    #[arg(long, env = "VERIHARNESS_SCHEMA", value_name = "FILE")]
    schema: Option<PathBuf>,
    #[command(flatten)]
    backend: BackendArgs,
}

/// Completes the prompt.
///
/// # Errors
/// A flag out of range, a model that cannot be opened, a prompt that does not fit.
pub fn run(args: GenerateArgs) -> anyhow::Result<u8> {
    let sampling = Sampling {
        temperature: args.temperature,
        top_p: args.top_p,
        top_k: args.top_k,
        min_p: args.min_p,
        max_tokens: args.max_tokens,
        repetition_penalty: args.repetition_penalty,
        stop: args.stop,
        schema: args.schema.as_deref().map(read_schema).transpose()?,
    };
    sampling.check().map_err(flag_error)?;
    let text = match args.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            let read = std::io::stdin().lock().read_to_string(&mut text);
            read.context("the prompt on stdin is not a text")?;
            text
        }
        text => text.to_owned(),
    };
    let model = match args.model {
        Some(model) => model,
        None => manifest::default()?.name,
    };
    let mut engine = open::engine(&model, &args.backend, 1)?.engine;
    let system = args.system.map(Message::system);
    let messages: Vec<Message> = system.into_iter().chain([Message::user(text)]).collect();
    if let Some(file) = &args.schema {
        engine.prepare(&sampling).with_context(|| place(file))?;
    }
    let prompt = engine.encode(&messages)?;
    let tokens = prompt.tokens.len();
    let request = Request {
        row: "generate".into(),
        call: 1,
        seed: args.seed,
        prompt,
        sampling,
    };
    let stop = stop_on_signal("stopped")?;
    let Some(completion) = stream(&mut *engine, request, &stop)? else {
        return Ok(super::INTERRUPTED);
    };
    if std::io::stderr().is_terminal() {
        super::complain(&summary(tokens, &completion));
    }
    Ok(super::DONE)
}

/// A JSON schema from a file.
fn read_schema(file: &Path) -> anyhow::Result<Schema> {
    let text = std::fs::read_to_string(file).with_context(|| place(file))?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "{}: expected a JSON schema, found text that is no JSON",
            place(file)
        )
    })
}

fn place(schema: &Path) -> String {
    format!("--schema {}", schema.display())
}

/// A setting's name, the value and the range, for someone who gave a flag.
fn flag_error(said: String) -> anyhow::Error {
    match said.split_once(':') {
        Some((name, rest)) => anyhow::anyhow!("--{}:{rest}", name.replace('_', "-")),
        None => anyhow::anyhow!(said),
    }
}

/// Prints the reply as it grows; `None` when the user stopped it.
fn stream(
    engine: &mut dyn Engine,
    request: Request,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Completion>> {
    let mut out = std::io::stdout().lock();
    let id = engine.submit(request);
    let mut shown = 0;
    loop {
        if stop.load(Ordering::SeqCst) {
            writeln!(out)?;
            return Ok(None);
        }
        let finished = engine.step().into_iter().find(|finished| finished.id == id);
        let text = match &finished {
            None => engine.partial(id).unwrap_or_default(),
            Some(finished) => finished.result.as_ref().map_or(String::new(), |c| c.text.clone()),
        };
        if let Some(new) = text.get(shown..).filter(|new| !new.is_empty()) {
            out.write_all(new.as_bytes())?;
            out.flush()?;
            shown = text.len();
        }
        if let Some(finished) = finished {
            let completion = finished.result?;
            writeln!(out)?;
            return Ok(Some(completion));
        }
    }
}

fn summary(prompt: usize, completion: &Completion) -> String {
    let rate = |tokens: usize, us: u64| match us {
        0 => String::new(),
        us => format!(" at {:.1}/s", tokens as f64 / (us as f64 / 1e6)),
    };
    let (new, cost) = (completion.tokens.len(), completion.cost);
    let end = match completion.stop {
        StopReason::EndOfTurn => "ended by the model",
        StopReason::MaxTokens => "cut by --max-tokens",
        StopReason::StopString => "ended before a --stop text",
    };
    format!(
        "{prompt} prompt tokens{}, {new} new ones{}; {end}",
        rate(prompt, cost.prefill_us),
        rate(new.saturating_sub(1), cost.decode_us)
    )
}
