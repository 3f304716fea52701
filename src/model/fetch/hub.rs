//! A file from the Hugging Face hub, verified against the hub's own metadata.
//!
//! Not a hub client (that is `hf-hub`). That crate has no timeouts, so the host is tried first, and the crate's calls
//! run on threads of their own that are given up when nothing comes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Repo, RepoType};
use sha1::{Digest, Sha1};

use super::{Access, Progress};
use crate::model::ModelError;
use crate::model::cache::{Cache, Lock, sha256};
use crate::model::manifest::{Manifest, is_sha256};
use crate::model::template::hex;

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
    let hub = Hub::open(wanted.repository, &cache.partial(&manifest.name), access)?;
    let stated = hub.stated(wanted.revision, wanted.file)?;
    let Hash::Sha256(hash) = &stated.hash else {
        let found = &stated.hash;
        return Err(failed(format!(
            "expected a SHA-256 in the hub's metadata, found {found:?}"
        )));
    };
    if let Some(exact) = wanted.exact.filter(|exact| exact != hash) {
        return Err(failed(format!(
            "expected the file with sha256 {exact}, but the hub has {hash}"
        )));
    }
    let (blob, found) = hub.file(&stated, wanted.file, progress)?;
    let lock = Lock {
        name: manifest.name.clone(),
        kind: "hub".into(),
        source: format!("hub {}@{}/{}", wanted.repository, stated.commit, wanted.file),
        revision: Some(stated.commit),
        sha256: found,
        bytes: stated.bytes,
        files: BTreeMap::new(),
    };
    let path = cache.install(&blob, &lock)?;
    hub.finish();
    Ok((path, lock))
}

/// What the hub's metadata say of a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    /// Of a large file.
    Sha256(String),
    /// Of a small one: git's name for its bytes, a SHA-1 over their number and themselves.
    Git(String),
}

/// What the hub's metadata say of a file.
pub(super) struct Stated {
    pub(super) commit: String,
    pub(super) hash: Hash,
    pub(super) bytes: u64,
    /// As the hub client uses it in paths.
    etag: String,
}

impl Stated {
    /// The SHA-256 of `path`, whose bytes must be those of the metadata.
    pub(super) fn verify(&self, path: &Path, progress: &mut dyn Progress) -> Result<String, ModelError> {
        progress.begin("verify", Some(self.bytes));
        let size = path.metadata().map_err(ModelError::io("stat", path))?.len();
        let found = sha256(path, |bytes| progress.advance(bytes))?;
        let (expected, compared) = match &self.hash {
            Hash::Sha256(hash) => (hash, found.clone()),
            Hash::Git(hash) => (hash, git_name(path, size)?),
        };
        match *expected == compared {
            true => Ok(found),
            false => Err(ModelError::Hash {
                file: path.into(),
                expected: expected.clone(),
                found: compared,
            }),
        }
    }
}

/// A repository on the hub, and the folder where the hub client keeps what it has of it so far.
pub(super) struct Hub<'a> {
    api: Api,
    repository: &'a str,
    partial: PathBuf,
    access: &'a Access,
}

impl<'a> Hub<'a> {
    pub(super) fn open(repository: &'a str, partial: &Path, access: &'a Access) -> Result<Self, ModelError> {
        if access.offline {
            return Err(failed("HF_HUB_OFFLINE forbids the hub"));
        }
        let partial = partial.join("hub");
        let mut builder = ApiBuilder::from_cache(hf_hub::Cache::new(partial.clone()))
            .with_progress(false)
            .with_retries(0)
            .with_token(None);
        if let Some(endpoint) = &access.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        let hub = Self {
            api: builder.build().map_err(refused)?,
            repository,
            partial,
            access,
        };
        if !access.proxy {
            probe(&hub.at("main").url(""), access.patience)?;
        }
        Ok(hub)
    }

    fn repo(&self, revision: &str) -> Repo {
        Repo::with_revision(self.repository.into(), RepoType::Model, revision.into())
    }

    fn at(&self, revision: &str) -> ApiRepo {
        self.api.repo(self.repo(revision))
    }

    /// Asks for a file's metadata.
    pub(super) fn stated(&self, revision: &str, file: &str) -> Result<Stated, ModelError> {
        let url = self.at(revision).url(file);
        let asked = self.api.clone();
        let what = format!("metadata of {file}");
        let metadata = within(self.access.patience, &what, move || asked.metadata(&url))?.map_err(refused)?;
        let (commit, etag) = (metadata.commit_hash().to_owned(), metadata.etag().to_owned());
        // Both become parts of paths and addresses, so nothing but digits is let through.
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !digits(&commit) {
            return Err(failed(format!(
                "expected a commit in the hub's metadata, found {commit:?}"
            )));
        }
        let hash = match etag.strip_prefix("W/").unwrap_or(&etag) {
            hash if is_sha256(hash) => Hash::Sha256(hash.to_owned()),
            hash if hash.len() == 40 && digits(hash) => Hash::Git(hash.to_owned()),
            _ => {
                return Err(failed(format!(
                    "expected a SHA-256 in the hub's metadata, found {etag:?}"
                )));
            }
        };
        Ok(Stated {
            commit,
            hash,
            bytes: metadata.size() as u64,
            etag,
        })
    }

    /// Downloads a file, or the rest of it, and verifies it: its place in the hub client's folder, and its SHA-256.
    pub(super) fn file(
        &self,
        stated: &Stated,
        file: &str,
        progress: &mut dyn Progress,
    ) -> Result<(PathBuf, String), ModelError> {
        progress.begin("download", Some(stated.bytes));
        let blobs = hf_hub::Cache::new(self.partial.clone()).repo(self.repo(&stated.commit));
        let downloaded = download(self.at(&stated.commit), file, self.access.stall, progress)
            .inspect_err(|error| {
                if matches!(error, ModelError::Stalled { .. }) {
                    // The thread that was given up still holds the client's lock, but the pull has its own.
                    let _ = fs::remove_file(blobs.blob_path(&stated.etag).with_extension("lock"));
                }
            })?
            .map_err(|error| {
                if matches!(error, ApiError::InvalidResume) {
                    // A longer rest than the file itself can never be completed.
                    self.finish();
                }
                refused(error)
            })?;
        let blob = downloaded
            .canonicalize()
            .map_err(ModelError::io("find", &downloaded))?;
        let found = stated.verify(&blob, progress).map_err(|error| match error {
            ModelError::Hash { expected, found, .. } => {
                self.finish();
                ModelError::Hash {
                    file: file.into(),
                    expected,
                    found,
                }
            }
            other => other,
        })?;
        Ok((blob, found))
    }

    /// Removes the hub client's folder: what remains there once the files have moved away are its links to them.
    pub(super) fn finish(&self) {
        let _ = fs::remove_dir_all(&self.partial);
    }
}

/// Git's name for the bytes of a file of `size` bytes.
fn git_name(path: &Path, size: u64) -> Result<String, ModelError> {
    let mut hasher = Sha1::new_with_prefix(format!("blob {size}\0"));
    let mut file = File::open(path).map_err(ModelError::io("open", path))?;
    std::io::copy(&mut file, &mut hasher).map_err(ModelError::io("read", path))?;
    Ok(hex(&hasher.finalize()))
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

pub(super) fn failed(reason: impl Into<String>) -> ModelError {
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
