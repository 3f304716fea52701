//! A file from the Hugging Face hub, verified against the hub's own metadata.
//!
//! Not a hub client (that is `hf-hub`). That crate has no timeouts, so the host is tried first, and the crate's calls
//! run on threads of their own that are given up when nothing comes.

use std::fs;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Repo, RepoType};

use super::{Access, Progress};
use crate::model::ModelError;
use crate::model::cache::{Cache, Lock, sha256};
use crate::model::manifest::{Manifest, is_sha256};

/// What to ask for.
pub(super) struct Wanted<'a> {
    pub(super) repository: &'a str,
    pub(super) revision: &'a str,
    pub(super) file: &'a str,
    /// The only acceptable hash, if there is one.
    pub(super) exact: Option<&'a str>,
}

/// Downloads, verifies and installs.
pub(super) fn fetch(
    manifest: &Manifest,
    wanted: &Wanted<'_>,
    cache: &Cache,
    access: &Access,
    progress: &mut dyn Progress,
) -> Result<(PathBuf, Lock), ModelError> {
    if access.offline {
        return Err(failed("HF_HUB_OFFLINE forbids the hub"));
    }
    let partial = cache.partial(&manifest.name).join("hub");
    let mut builder = ApiBuilder::from_cache(hf_hub::Cache::new(partial.clone()))
        .with_progress(false)
        .with_retries(0)
        .with_token(None);
    if let Some(endpoint) = &access.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    let api = builder.build().map_err(refused)?;
    let repo =
        |revision: &str| Repo::with_revision(wanted.repository.into(), RepoType::Model, revision.into());
    let url = api.repo(repo(wanted.revision)).url(wanted.file);
    if !access.proxy {
        probe(&url, access.patience)?;
    }
    let what = format!("metadata of {}", wanted.file);
    let asked = api.clone();
    let metadata = within(access.patience, &what, move || asked.metadata(&url))?.map_err(refused)?;
    let (revision, hash) = (metadata.commit_hash().to_owned(), metadata.etag().to_owned());
    // Both become parts of paths and addresses, so nothing but digits is let through.
    if revision.is_empty() || !revision.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(failed(format!(
            "expected a commit in the hub's metadata, found {revision:?}"
        )));
    }
    if !is_sha256(&hash) {
        return Err(failed(format!(
            "expected a SHA-256 in the hub's metadata, found {hash:?}"
        )));
    }
    if let Some(exact) = wanted.exact.filter(|exact| *exact != hash) {
        return Err(failed(format!(
            "expected the file with sha256 {exact}, but the hub has {hash}"
        )));
    }
    progress.begin("download", Some(metadata.size() as u64));
    let downloaded = download(api.repo(repo(&revision)), wanted.file, access.stall, progress)
        .inspect_err(|error| {
            if matches!(error, ModelError::Stalled { .. }) {
                // The thread that was given up still holds the client's lock, but the pull has its own.
                let blob = hf_hub::Cache::new(partial.clone())
                    .repo(repo(&revision))
                    .blob_path(&hash);
                let _ = fs::remove_file(blob.with_extension("lock"));
            }
        })?
        .map_err(|error| {
            if matches!(error, ApiError::InvalidResume) {
                // A longer rest than the file itself can never be completed.
                let _ = fs::remove_dir_all(&partial);
            }
            refused(error)
        })?;
    let blob = downloaded
        .canonicalize()
        .map_err(ModelError::io("find", &downloaded))?;
    progress.begin("verify", Some(metadata.size() as u64));
    let found = sha256(&blob, |bytes| progress.advance(bytes))?;
    if found != hash {
        fs::remove_dir_all(&partial).map_err(ModelError::io("remove", &partial))?;
        return Err(ModelError::Hash {
            file: wanted.file.into(),
            expected: hash,
            found,
        });
    }
    let lock = Lock {
        name: manifest.name.clone(),
        kind: "hub".into(),
        source: format!("hub {}@{revision}/{}", wanted.repository, wanted.file),
        revision: Some(revision),
        sha256: found,
        bytes: metadata.size() as u64,
    };
    let path = cache.install(&blob, &lock)?;
    // What remains are the hub client's links to the file that moved away.
    let _ = fs::remove_dir_all(&partial);
    Ok((path, lock))
}

/// Tries to connect to the host of `url`, waiting no longer than `patience` for its name and for it.
fn probe(url: &str, patience: Duration) -> Result<(), ModelError> {
    let (scheme, rest) = url
        .split_once("://")
        .ok_or_else(|| failed(format!("expected an address scheme://host, found {url:?}")))?;
    let host = rest.split('/').next().unwrap_or(rest).to_owned();
    let host = match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host,
        _ => format!("{host}:{}", if scheme == "http" { 80 } else { 443 }),
    };
    let asked = host.clone();
    let addresses = within(patience, &format!("address of {host}"), move || {
        asked.to_socket_addrs()
    })?
    .map_err(|error| failed(format!("cannot resolve {host}: {error}")))?;
    let mut reason = format!("{host} has no address");
    for address in addresses.take(2) {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(_) => return Ok(()),
            Err(error) => reason = format!("cannot connect to {host}: {error}"),
        }
    }
    Err(failed(reason))
}

/// Does `work` on another thread, which is left to itself if it takes longer than `patience`.
fn within<T: Send + 'static>(
    patience: Duration,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ModelError> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(work()));
    receive.recv_timeout(patience).map_err(|error| match error {
        RecvTimeoutError::Timeout => ModelError::Stalled {
            what: what.to_owned(),
            patience,
        },
        RecvTimeoutError::Disconnected => failed(format!("{what}: the hub client panicked")),
    })
}

/// Downloads on another thread, which is left to itself once nothing came for `patience`; it ends when it notices.
fn download(
    repo: ApiRepo,
    file: &str,
    patience: Duration,
    progress: &mut dyn Progress,
) -> Result<Result<PathBuf, ApiError>, ModelError> {
    let (send, receive) = mpsc::channel();
    let name = file.to_owned();
    let thread = std::thread::spawn(move || repo.download_with_progress(&name, Meter(send)));
    loop {
        match receive.recv_timeout(patience) {
            Ok(bytes) => progress.advance(bytes),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let what = format!("download of {file}");
                return Err(ModelError::Stalled { what, patience });
            }
        }
    }
    thread
        .join()
        .map_err(|_| failed(format!("download of {file}: the hub client panicked")))
}

fn failed(reason: impl Into<String>) -> ModelError {
    ModelError::Fetch {
        reason: reason.into(),
    }
}

#[allow(clippy::needless_pass_by_value)] // the shape `map_err` wants
fn refused(error: ApiError) -> ModelError {
    failed(error.to_string())
}

/// hf-hub's progress, told to the thread that waits.
struct Meter(mpsc::Sender<u64>);

impl hf_hub::api::Progress for Meter {
    fn init(&mut self, _size: usize, _filename: &str) {}

    fn update(&mut self, size: usize) {
        if self.0.send(size as u64).is_err() {
            // Nobody waits any more, and a later pull may be writing to the same file. This is the only way to make
            // the client stop; unlike a panic it says nothing.
            std::panic::resume_unwind(Box::new("given up"));
        }
    }

    fn finish(&mut self) {}
}
