//! `veriharness model`: list, pull, verify, show, logits.
//!
//! Not the work itself (that is `crate::model` and `crate::backend`): arguments in, text out.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use indicatif::{ProgressBar, ProgressStyle};

use crate::backend::candle::{CandleBackend, Products};
use crate::backend::{Backend, SequenceId, Step};
use crate::model::cache::{Cache, sha256};
use crate::model::fetch::Progress;
use crate::model::manifest::{self, Manifest};
use crate::model::{self, Located, Model, ModelError};

/// Arguments of `veriharness model`.
#[derive(Debug, Args)]
pub struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// List the models that can be named, and which of them are here
    List,
    /// Fetch a model into the cache
    Pull {
        /// Name of a model (see `list`)
        name: String,
    },
    /// Check a model's file against its hash, and that it opens
    Verify {
        /// Name of a model, or path of a .gguf file
        model: String,
    },
    /// Describe a model
    Show {
        /// Name of a model, or path of a .gguf file
        model: String,
    },
    /// Print the largest logits after some tokens
    Logits {
        /// Name of a model, or path of a .gguf file
        #[arg(long, env = "VERIHARNESS_MODEL")]
        model: String,
        /// Token ids, separated by commas
        #[arg(long, value_delimiter = ',', required = true)]
        tokens: Vec<u32>,
        /// How many of the largest logits
        #[arg(long, default_value_t = 20)]
        top: usize,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand; returns the exit code.
///
/// # Errors
/// Anything but a failed verification, which is exit code 1.
pub fn run(args: ModelArgs) -> anyhow::Result<u8> {
    match args.command {
        ModelCommand::List => list(),
        ModelCommand::Pull { name } => pull(&name),
        ModelCommand::Verify { model } => verify(&model),
        ModelCommand::Show { model } => show(&model),
        ModelCommand::Logits {
            model,
            tokens,
            top,
            json,
        } => logits(&model, &tokens, top, json),
    }
}

fn list() -> anyhow::Result<u8> {
    let cache = Cache::standard()?;
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(["name", "model", "size", "licence", "here"]);
    for manifest in manifest::all()? {
        let here = match model::resolve_in(&manifest.name, &cache) {
            Ok(located) => located.lock.map_or(String::new(), |lock| lock.kind),
            Err(ModelError::Absent { .. }) => "no".into(),
            Err(error) => return Err(error.into()),
        };
        let name = match manifest.default {
            true => format!("{} (default)", manifest.name),
            false => manifest.name,
        };
        table.add_row([
            name,
            manifest.title,
            megabytes(manifest.file.bytes),
            manifest.licence,
            here,
        ]);
    }
    writeln!(std::io::stdout().lock(), "{table}")?;
    Ok(0)
}

fn pull(name: &str) -> anyhow::Result<u8> {
    let located = model::pull(name, &mut Bar::default())?;
    writeln!(std::io::stdout().lock(), "{}", located.path.display())?;
    Ok(0)
}

fn verify(spec: &str) -> anyhow::Result<u8> {
    let located = model::resolve(spec)?;
    let mut bar = Bar::default();
    bar.begin(
        "verify",
        Some(located.path.metadata().context("cannot stat the file")?.len()),
    );
    let found = sha256(&located.path, |bytes| bar.advance(bytes))?;
    drop(bar);
    let mut failures = Vec::new();
    if let Some(lock) = located.lock.as_ref().filter(|lock| lock.sha256 != found) {
        failures.push(format!("expected sha256 {}, found {found}", lock.sha256));
    }
    match Model::open(&located.path) {
        Err(error) => failures.push(error.to_string()),
        Ok(model) => {
            let known = known_as(&found)?;
            if let Some(manifest) =
                known.filter(|known| known.file.template_sha256 != model.template.sha256())
            {
                let expected = &manifest.file.template_sha256;
                let found = model.template.sha256();
                failures.push(format!(
                    "expected a chat template of sha256 {expected}, found {found}"
                ));
            }
        }
    }
    let mut out = std::io::stdout().lock();
    if failures.is_empty() {
        writeln!(out, "{}: good, sha256 {found}", located.path.display())?;
        return Ok(0);
    }
    for failure in failures {
        writeln!(out, "{}: {failure}", located.path.display())?;
    }
    Ok(1)
}

fn show(spec: &str) -> anyhow::Result<u8> {
    let Located { name, path, lock } = model::resolve(spec)?;
    let model = Model::open(&path)?;
    let config = &model.config;
    let known = known_as(&model.sha256)?;
    let weights: u64 = model
        .gguf
        .tensors()
        .values()
        .map(|tensor| tensor.bytes as u64)
        .sum();
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for tensor in model.gguf.tensors().values() {
        match kinds.iter_mut().find(|(kind, _)| *kind == tensor.block.name()) {
            Some((_, count)) => *count += 1,
            None => kinds.push((tensor.block.name(), 1)),
        }
    }
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let position = 2 * config.layers * config.kv_heads * config.head_dim * size_of::<f32>();
    let licence = match (&known, model.gguf.text("general.license")?) {
        (Some(manifest), _) => format!("{} ({})", manifest.licence, manifest.upstream),
        (None, Some(stated)) => format!("{stated} (says the file)"),
        (None, None) => "not stated".into(),
    };
    let source = lock.map_or("a path".into(), |lock| lock.source);
    let unspelled = model.tokenizer.unspelled().len();
    let eos: Vec<String> = model.eos().iter().map(u32::to_string).collect();
    let mut out = std::io::stdout().lock();
    for (label, text) in [
        ("name", format!("{name} ({})", model.name())),
        ("file", path.display().to_string()),
        ("from", source),
        ("sha256", model.sha256.clone()),
        ("licence", licence),
        ("architecture", config.architecture.name().into()),
        ("layers", format!("{} of width {}", config.layers, config.hidden)),
        (
            "heads",
            format!(
                "{} of {}, {} for keys",
                config.heads, config.head_dim, config.kv_heads
            ),
        ),
        ("feed-forward", config.feed_forward.to_string()),
        ("context", format!("{} positions", config.context)),
        ("rotary base", config.rope_theta.to_string()),
        (
            "output",
            if config.tied {
                "the embedding table"
            } else {
                "its own matrix"
            }
            .into(),
        ),
        (
            "tensors",
            format!("{} ({})", model.gguf.tensors().len(), kinds.join(", ")),
        ),
        ("weights", megabytes(weights)),
        (
            "memory",
            format!("weights, and {} KiB per position held", position / 1024),
        ),
        (
            "tokenizer",
            format!("{}, {} tokens", model.tokenizer.name(), config.vocab),
        ),
        (
            "unknown bytes",
            format!("{unspelled} of 256 have no token and are dropped from a prompt"),
        ),
        ("end of turn", eos.join(", ")),
        ("chat template", format!("sha256 {}", model.template.sha256())),
    ] {
        writeln!(out, "{label:14} {text}")?;
    }
    Ok(0)
}

fn logits(spec: &str, tokens: &[u32], top: usize, json: bool) -> anyhow::Result<u8> {
    ensure!(top > 0, "--top must be at least 1");
    let located = model::obtain(spec, &mut Bar::default())?;
    let mut backend = CandleBackend::load(&Model::open(&located.path)?, Products::Quantized)?;
    let step = Step {
        sequence: SequenceId(0),
        tokens,
        start: 0,
        blocks: &[],
    };
    let logits = backend
        .forward(&[step])?
        .pop()
        .context("the backend returned nothing")?;
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(top);
    let mut out = std::io::stdout().lock();
    if json {
        let top: Vec<_> = order
            .iter()
            .map(|&id| serde_json::json!({"id": id, "logit": logits[id]}))
            .collect();
        writeln!(out, "{}", serde_json::json!({"tokens": tokens.len(), "top": top}))?;
    } else {
        for id in order {
            writeln!(out, "{id:8} {:10.4}", logits[id])?;
        }
    }
    Ok(0)
}

/// The manifest whose known file has this hash.
fn known_as(sha256: &str) -> Result<Option<Manifest>, ModelError> {
    Ok(manifest::all()?
        .into_iter()
        .find(|manifest| manifest.file.sha256 == sha256))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Progress on standard error: a bar on a terminal, a line every few seconds elsewhere.
#[derive(Debug, Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
    what: String,
    done: u64,
    total: Option<u64>,
    said: Option<Instant>,
}

impl Bar {
    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            // A closed standard error is no reason to stop a pull.
            None => drop(writeln!(std::io::stderr().lock(), "{text}")),
        }
    }
}

impl Progress for Bar {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        (self.what, self.done, self.total, self.said) = (what.to_owned(), 0, total, Some(Instant::now()));
        if std::io::stderr().is_terminal() {
            let style =
                ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
            let bar = ProgressBar::new(total.unwrap_or(0)).with_message(what.to_owned());
            self.bar = Some(match style {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            });
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        } else if self
            .said
            .is_none_or(|said| said.elapsed() > Duration::from_secs(5))
        {
            self.said = Some(Instant::now());
            let total = self
                .total
                .map_or(String::new(), |total| format!(" of {}", megabytes(total)));
            self.line(&format!("{}: {}{total}", self.what, megabytes(self.done)));
        }
    }

    fn note(&mut self, line: &str) {
        self.line(line);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
