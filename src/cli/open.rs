//! A model's name to an engine that completes with it.
//!
//! Not a subcommand: `study`, and whatever else decodes, start here.

use crate::backend::candle::CandleBackend;
use crate::engine::Engine;
use crate::engine::local::{Limits, LocalEngine};
use crate::engine::scripted::ScriptedEngine;
use crate::model::Model;
use std::path::Path;

/// An engine and where its weights came from.
pub struct Opened {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// Revision and source of the weights, as their lock file says; empty if unknown.
    pub source: String,
}

/// Opens a model by name or path, pulling it if need be; `scripted:FILE` plays back an export.
///
/// # Errors
/// When no source has it, or it is not a model that this program runs.
pub fn engine(spec: &str, batch: usize) -> anyhow::Result<Opened> {
    if let Some(file) = spec.strip_prefix("scripted:") {
        let engine = Box::new(ScriptedEngine::open(Path::new(file))?);
        return Ok(Opened {
            engine,
            source: file.to_owned(),
        });
    }
    let model = Model::open(Path::new(spec))?;
    let backend = Box::new(CandleBackend::load(&model)?);
    let limits = Limits {
        batch,
        ..Limits::default()
    };
    Ok(Opened {
        engine: Box::new(LocalEngine::new(model, backend, limits)),
        source: String::new(),
    })
}

/// The folder of pulled models, for display.
pub fn models_folder() -> String {
    String::new()
}
/// Models that are there, for display.
pub fn models_present() -> Vec<(&'static str, String)> {
    Vec::new()
}
