//! `veriharness model`: list, pull, verify, show, logits.
//!
//! Not the work itself (that is `crate::model` and `crate::backend`): arguments in, text out.

mod bar;
mod quantize;
mod show;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use comfy_table::Table;
use comfy_table::presets::NOTHING;

pub use bar::Bar;

use super::open::BackendArgs;
use crate::backend::{BLOCK, BlockId, Step};
use crate::model::cache::{Cache, sha256};
use crate::model::fetch::Progress;
use crate::model::manifest::{self, Manifest};
use crate::model::{self, Located, Model, ModelError, folder};

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
    /// Check a model's files against their hashes, and that it opens
    Verify {
        /// Name of a model, or path of a .gguf file or a model's folder
        model: String,
    },
    /// Describe a model
    Show {
        /// Name of a model, or path of a .gguf file or a model's folder
        model: String,
    },
    /// Write a model as a folder with 4-bit AWQ weights, and say what that loses
    Quantize(quantize::QuantizeArgs),
    /// Print the largest logits after some tokens
    Logits {
        /// Name of a model, or path of a .gguf file or a model's folder
        #[arg(long, env = "VERIHARNESS_MODEL")]
        model: String,
        /// Token ids, separated by commas
        #[arg(
            long,
            env = "VERIHARNESS_TOKENS",
            value_name = "ID",
            value_delimiter = ',',
            required = true
        )]
        tokens: Vec<u32>,
        /// How many of the largest logits
        #[arg(long, env = "VERIHARNESS_TOP", value_name = "N", default_value_t = 20)]
        top: usize,
        /// As JSON
        #[arg(long, env = "VERIHARNESS_JSON")]
        json: bool,
        #[command(flatten)]
        backend: BackendArgs,
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
        ModelCommand::Show { model } => show::show(&model),
        ModelCommand::Quantize(args) => quantize::quantize(&args),
        ModelCommand::Logits {
            model,
            tokens,
            top,
            json,
            backend,
        } => logits(&model, &tokens, top, json, &backend),
    }
}

fn list() -> anyhow::Result<u8> {
    let cache = Cache::standard()?;
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(["name", "model", "size", "licence", "here"]);
    for manifest in manifest::all()? {
        let lock = match model::resolve_in(&manifest.name, &cache) {
            Ok(located) => located.lock,
            Err(ModelError::Absent { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let size = lock.as_ref().map(|lock| lock.bytes);
        let size = size.or(manifest.file.as_ref().map(|file| file.bytes));
        let here = lock.map_or("no".into(), |lock| lock.kind);
        let name = match manifest.default {
            true => format!("{} (default)", manifest.name),
            false => manifest.name,
        };
        table.add_row([
            name,
            manifest.title,
            size.map_or("not known yet".into(), megabytes),
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
    let mut failures = Vec::new();
    let found = match located.path.is_dir() {
        true => verify_folder(&located, &mut failures)?,
        false => hash(&located.path)?,
    };
    if let Some(lock) = located.lock.as_ref().filter(|lock| lock.sha256 != found) {
        failures.push(format!("expected sha256 {}, found {found}", lock.sha256));
    }
    match Model::open(&located.path) {
        Err(error) => failures.push(error.to_string()),
        Ok(model) => {
            let known = known_as(&found)?.and_then(|known| known.file);
            if let Some(file) = known.filter(|known| known.template_sha256 != model.template.sha256()) {
                let expected = &file.template_sha256;
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

/// Hashes a file, with a bar.
fn hash(path: &Path) -> anyhow::Result<String> {
    let mut bar = Bar::default();
    bar.begin(
        "verify",
        Some(path.metadata().context("cannot stat the file")?.len()),
    );
    Ok(sha256(path, |bytes| bar.advance(bytes))?)
}

/// Hashes every file of a folder and compares each with the lock; returns the hash of the folder.
fn verify_folder(located: &Located, failures: &mut Vec<String>) -> anyhow::Result<String> {
    let mut hashes = BTreeMap::new();
    for name in folder::files(&located.path)? {
        let found = hash(&located.path.join(&name))?;
        hashes.insert(name, found);
    }
    for (name, file) in located.lock.iter().flat_map(|lock| &lock.files) {
        let found = match hashes.get(name) {
            Some(found) => found.clone(),
            None => hash(&located.path.join(name))?,
        };
        if found != file.sha256 {
            failures.push(format!("{name}: expected sha256 {}, found {found}", file.sha256));
        }
    }
    Ok(folder::combine(
        hashes.iter().map(|(name, hash)| (name.as_str(), hash.as_str())),
    ))
}

fn logits(spec: &str, tokens: &[u32], top: usize, json: bool, backend: &BackendArgs) -> anyhow::Result<u8> {
    ensure!(top > 0, "--top must be at least 1");
    let located = model::obtain(spec, &mut Bar::default())?;
    let mut backend = backend.load(&Model::open(&located.path)?)?;
    let blocks: Vec<BlockId> = (0u32..).map(BlockId).take(tokens.len().div_ceil(BLOCK)).collect();
    backend.reserve(blocks.len())?;
    let step = Step {
        tokens,
        start: 0,
        blocks: &blocks,
        logits: 1,
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
        .find(|manifest| manifest.knows(sha256)))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
