//! `veriharness model show`: what a model is.
//!
//! Not a check of it (that is `verify`).

use std::io::Write;

use super::{known_as, megabytes};
use crate::model::{self, Located, Model, manifest};

/// Describes a model, a line per property.
pub(super) fn show(spec: &str) -> anyhow::Result<u8> {
    let Located { name, path, lock } = model::resolve(spec)?;
    let model = Model::open(&path)?;
    let config = &model.config;
    let known = match (known_as(&model.sha256)?, &lock) {
        (None, Some(lock)) => manifest::find(&lock.name).ok(),
        (known, _) => known,
    };
    let weights: u64 = model.weights.entries().map(|(_, entry)| entry.bytes).sum();
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for (_, entry) in model.weights.entries() {
        let name = entry.storage.name();
        match kinds.iter_mut().find(|(kind, _)| *kind == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let position = config.numbers_per_position() * size_of::<f32>();
    let licence = match (&known, &model.licence) {
        (Some(manifest), _) => format!("{} ({})", manifest.licence, manifest.upstream),
        (None, Some(stated)) => format!("{stated} (says the file)"),
        (None, None) => "not stated".into(),
    };
    let source = lock.map_or("a path".into(), |lock| lock.source);
    let unspelled = model.tokenizer.unspelled().len();
    let eos: Vec<String> = model.eos().iter().map(u32::to_string).collect();
    let mut out = std::io::stdout().lock();
    for (label, text) in [
        ("name", format!("{name} ({})", model.title)),
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
            format!("{} ({})", model.weights.entries().count(), kinds.join(", ")),
        ),
        ("weights", megabytes(weights)),
        (
            "memory",
            format!("weights, and {} KiB per position held", position / 1024),
        ),
        (
            "tokenizer",
            format!("{}, {} tokens", model.tokenizer.name(), model.tokenizer.vocab()),
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
