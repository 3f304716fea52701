//! A model's name to an engine that completes with it.
//!
//! Not a subcommand: `study`, and whatever else decodes, start here.

use super::model::Bar;
use crate::backend::candle::{CandleBackend, Products};
use crate::engine::Engine;
use crate::engine::local::{Limits, LocalEngine};
use crate::engine::scripted::ScriptedEngine;
use crate::model::cache::Cache;
use crate::model::{self, Model, ModelError, manifest};
use std::path::Path;

/// An engine and where its weights came from.
pub struct Opened {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// Source, revision and hash of the weights, as their lock file says; the path for a file.
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
    let located = model::obtain(spec, &mut Bar::default())?;
    let source = match &located.lock {
        Some(lock) => serde_json::to_string(lock)?,
        None => located.path.display().to_string(),
    };
    super::complain(&format!("loading {}", located.name));
    let model = Model::open(&located.path)?;
    if let Some(lock) = &located.lock {
        anyhow::ensure!(
            lock.sha256 == model.sha256,
            "{} is not what was pulled: expected sha256 {}, found {}; `model pull` fetches it again once the file is removed",
            located.path.display(),
            lock.sha256,
            model.sha256
        );
    }
    let backend = Box::new(CandleBackend::load(&model, Products::Quantized)?);
    let limits = Limits {
        batch,
        ..Limits::default()
    };
    Ok(Opened {
        engine: Box::new(LocalEngine::new(located.name, model, backend, limits)?),
        source,
    })
}

/// The folder of pulled models, for display.
pub fn models_folder() -> String {
    match Cache::standard() {
        Ok(cache) => cache.root().display().to_string(),
        Err(error) => error.to_string(),
    }
}

/// Each model that can be named, and whether it is here, for display.
pub fn models_present() -> Result<Vec<(String, String)>, ModelError> {
    let state = |name: &str| match model::resolve(name) {
        Ok(located) => located.path.display().to_string(),
        Err(ModelError::Absent { .. }) => "not pulled".to_owned(),
        Err(error) => error.to_string(),
    };
    Ok(manifest::all()?
        .into_iter()
        .map(|m| (m.name.clone(), state(&m.name)))
        .collect())
}
