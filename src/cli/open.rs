//! A model's name to an engine that completes with it.
//!
//! Not a subcommand: `study`, and whatever else decodes, start here.

use super::model::Bar;
use crate::backend::candle::{CandleBackend, Products};
use crate::backend::cpu::{Arithmetic, CpuBackend, Isa, Options};
use crate::backend::cuda::CudaBackend;
use crate::backend::cuda::driver::Driver;
use crate::backend::cuda::memory::Plan;
use crate::backend::cuda::probe::probe;
use crate::backend::{Backend, BackendError};
use crate::engine::Engine;
use crate::engine::local::{Limits, LocalEngine};
use crate::engine::scripted::ScriptedEngine;
use crate::model::cache::Cache;
use crate::model::{self, Model, ModelError, Network, manifest};
use anyhow::Context;
use clap::{Args, ValueEnum};
use std::path::Path;

/// Flags of everything that computes with a model.
#[derive(Clone, Debug, Default, Args)]
pub struct BackendArgs {
    /// What computes: `cpu` or `cuda`, this program's own kernels; `auto`, a GPU if there is one; `candle`, the reference
    #[arg(long, env = "VERIHARNESS_BACKEND", value_enum, default_value_t = BackendName::Cpu)]
    backend: BackendName,
    /// Keep activations in float32: slower, nearer to the reference; part of a run's identity
    #[arg(long, env = "VERIHARNESS_EXACT")]
    exact: bool,
    /// Threads that compute; 0: one per core. Never changes a result
    #[arg(long, env = "VERIHARNESS_THREADS", value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Memory for keys and values, in MiB: of running rows, and of prompts to come
    #[arg(long, env = "VERIHARNESS_KV_MIB", value_name = "MIB", default_value_t = 1024)]
    kv_mib: usize,
    /// Most tokens that a row guesses per pass, copied from earlier in the row; 0: none. Never changes a result
    #[arg(long, env = "VERIHARNESS_DRAFT", value_name = "N", default_value_t = Limits::default().draft)]
    draft: usize,
    /// Instructions of the cpu backend: plain, avx2, avx512; the best there are if not given. Never changes a result
    #[arg(long, env = "VERIHARNESS_ISA", value_name = "NAME", hide = true)]
    isa: Option<String>,
}

/// What can compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum BackendName {
    #[default]
    Cpu,
    Cuda,
    Auto,
    Candle,
}

impl BackendArgs {
    /// Asks for a GPU, whatever was asked for.
    pub fn insist_on_gpu(&mut self) {
        self.backend = BackendName::Cuda;
    }

    /// What distinguishes runs with these flags from runs with the default ones.
    pub fn label(&self) -> Vec<String> {
        let name = match self.backend {
            BackendName::Cpu => None,
            BackendName::Cuda => Some("cuda"),
            BackendName::Auto => Some("auto"),
            BackendName::Candle => Some("candle"),
        };
        let exact = self.exact.then_some("exact");
        name.into_iter().chain(exact).map(str::to_owned).collect()
    }

    /// What computes, in words.
    pub fn describe(&self) -> String {
        match (self.threads(), self.isa()) {
            (Some(threads), Some(isa)) => format!("cpu, {threads} threads, {isa}"),
            _ if self.backend == BackendName::Candle => "candle, its own threads".to_owned(),
            _ => match probe() {
                Ok(found) => found.name,
                Err(absent) => absent.to_string(),
            },
        }
    }

    /// How many threads compute; `None` where the backend decides that.
    pub fn threads(&self) -> Option<usize> {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.threads == 0 { all() } else { self.threads };
        (self.backend == BackendName::Cpu).then_some(threads)
    }

    /// Name of the instructions; `None` where the backend decides that.
    pub fn isa(&self) -> Option<&str> {
        let isa = self.isa.as_deref().unwrap_or(Isa::best().name());
        (self.backend == BackendName::Cpu).then_some(isa)
    }

    /// What an engine for `batch` rows may take on.
    pub fn limits(&self, batch: usize) -> Limits {
        Limits {
            batch,
            kv_bytes: self.kv_mib.saturating_mul(1 << 20),
            draft: self.draft,
            ..Limits::default()
        }
    }

    /// Loads what a GPU computes with.
    ///
    /// # Errors
    /// There is no GPU, or it does not take the weights.
    pub fn on_gpu(&self, network: Network<'_>) -> Result<Box<dyn Backend>, BackendError> {
        let driver = Driver::open()?;
        let cache = self.kv_mib.saturating_mul(1 << 20);
        let plan = Plan::new(network, cache, driver.memory()?.0);
        plan.check()?;
        super::complain(&format!("GPU memory: {plan}"));
        CudaBackend::load(network, Box::new(driver)).map(|b| Box::new(b) as _)
    }

    /// Loads the weights of a model.
    ///
    /// # Errors
    /// The files became unreadable, or hold what the backend does not compute with.
    pub fn load(&self, model: &Model) -> anyhow::Result<Box<dyn Backend>> {
        let isa = match &self.isa {
            None => Isa::best(),
            Some(name) => Isa::named(name).with_context(|| {
                let have: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
                format!("--isa: this processor has {}, found {name}", have.join(", "))
            })?,
        };
        anyhow::ensure!(
            !(self.exact && self.backend == BackendName::Cuda),
            "--exact: the cuda backend has one arithmetic, expected --backend cpu or candle with it"
        );
        let arithmetic = match self.exact {
            true => Arithmetic::Exact,
            false => Arithmetic::Fast,
        };
        let options = Options {
            arithmetic,
            threads: self.threads,
            isa,
        };
        let cpu = || CpuBackend::load(model, options).map(|b| Box::new(b) as _);
        let products = if self.exact {
            Products::Float32
        } else {
            Products::Quantized
        };
        let loaded: Result<Box<dyn Backend>, BackendError> = match self.backend {
            BackendName::Cpu => cpu(),
            BackendName::Cuda => self.on_gpu(model.network()),
            BackendName::Auto => self.on_gpu(model.network()).or_else(|error| {
                super::complain(&format!("no GPU for this model, the CPU computes: {error}"));
                cpu()
            }),
            BackendName::Candle => CandleBackend::load(model, products).map(|b| Box::new(b) as _),
        };
        Ok(loaded?)
    }
}

/// An engine and where its weights came from.
pub struct Opened<E: ?Sized = dyn Engine> {
    /// The engine.
    pub engine: Box<E>,
    /// Source, revision and hash of the weights, as their lock file says; the path for a file.
    pub source: String,
}

/// Opens a model by name or path, pulling it if need be; `scripted:FILE` plays back an export.
///
/// # Errors
/// When no source has it, or it is not a model that this program runs.
pub fn engine(spec: &str, flags: &BackendArgs, batch: usize) -> anyhow::Result<Opened> {
    if let Some(file) = spec.strip_prefix("scripted:") {
        let engine = Box::new(ScriptedEngine::open(Path::new(file))?);
        return Ok(Opened {
            engine,
            source: file.to_owned(),
        });
    }
    let Opened { engine, source } = local(spec, flags, batch)?;
    Ok(Opened { engine, source })
}

/// Opens a model by name or path, pulling it if need be, for `batch` rows at once.
///
/// # Errors
/// As [`engine`].
pub fn local(spec: &str, flags: &BackendArgs, batch: usize) -> anyhow::Result<Opened<LocalEngine>> {
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
    let backend = flags.load(&model)?;
    let engine = LocalEngine::new(located.name, model, backend, flags.limits(batch))?;
    Ok(Opened {
        engine: Box::new(engine),
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
