//! The folder where fetched models live, and what is remembered about a file.
//!
//! Not the fetching. Layout: `models/<name>/<first 12 digits of sha256>/{model.gguf, lock.json}`, or a folder's files
//! in the place of `model.gguf`;
//! `partial/<name>/…` for pulls under way, `hashes/…` for hashes of files by size and time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ModelError;
use super::template::hex;

/// Files from this size on have their hashes remembered.
const NOTED: u64 = 1 << 24;

/// Where a fetched file or folder came from; lies beside it as `lock.json` and goes into the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Name of the manifest.
    pub name: String,
    /// `hub` or `wheels`.
    pub kind: String,
    /// The source in words.
    pub source: String,
    /// The hub's commit; none for wheels.
    pub revision: Option<String>,
    /// SHA-256 of the file or folder (`folder::identity`), lower-case hexadecimal.
    pub sha256: String,
    /// Size of the file, or of all files.
    pub bytes: u64,
    /// The files of a folder by name; none for a single file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, LockedFile>,
}

/// One file of a fetched folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedFile {
    /// SHA-256, lower-case hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// The cache folder.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// A cache in this folder, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The standard folder: `VERIHARNESS_HOME`, else `XDG_CACHE_HOME/veriharness`, else `~/.cache/veriharness`.
    ///
    /// # Errors
    /// None of the three variables is set.
    pub fn standard() -> Result<Self, ModelError> {
        let set = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        set("VERIHARNESS_HOME")
            .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("veriharness")))
            .or_else(|| set("HOME").map(|folder| folder.join(".cache/veriharness")))
            .map(Self::at)
            .ok_or(ModelError::NoCache)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where pulls of `name` keep what they have so far.
    pub fn partial(&self, name: &str) -> PathBuf {
        self.root.join("partial").join(name)
    }

    /// Where a file of `name` with this hash lies once it is complete.
    pub fn folder(&self, name: &str, sha256: &str) -> PathBuf {
        let digits = sha256.get(..12).unwrap_or(sha256);
        self.root.join("models").join(name).join(digits)
    }

    /// Takes the right to pull `name`, waiting for another process that has it, until the file is dropped. Tells
    /// whether it had to wait.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn claim(&self, name: &str) -> Result<(File, bool), ModelError> {
        let folder = self.root.join("partial");
        fs::create_dir_all(&folder).map_err(ModelError::io("create", &folder))?;
        let path = folder.join(format!("{name}.lock"));
        let file = File::create(&path).map_err(ModelError::io("create", &path))?;
        match file.try_lock() {
            Ok(()) => Ok((file, false)),
            Err(_) => {
                file.lock().map_err(ModelError::io("lock", &path))?;
                Ok((file, true))
            }
        }
    }

    /// The complete files or folders of `name` with their locks, in order of their hashes.
    ///
    /// # Errors
    /// A lock file is unreadable or malformed.
    pub fn find(&self, name: &str) -> Result<Vec<(PathBuf, Lock)>, ModelError> {
        let Ok(entries) = fs::read_dir(self.root.join("models").join(name)) else {
            return Ok(Vec::new());
        };
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        let mut found = Vec::new();
        for folder in folders {
            let lock = folder.join("lock.json");
            if !lock.is_file() {
                continue;
            }
            let text = fs::read_to_string(&lock).map_err(ModelError::io("read", &lock))?;
            let parsed: Lock = serde_json::from_str(&text).map_err(|error| ModelError::Lock {
                file: lock,
                reason: error.to_string(),
            })?;
            let weights = folder.join("model.gguf");
            let path = match parsed.files.is_empty() {
                true => weights.is_file().then_some(weights),
                false => {
                    let all = parsed.files.keys().all(|name| folder.join(name).is_file());
                    all.then_some(folder)
                }
            };
            found.extend(path.map(|path| (path, parsed)));
        }
        Ok(found)
    }

    /// Moves a complete, verified file to its place and writes its lock.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn install(&self, file: &Path, lock: &Lock) -> Result<PathBuf, ModelError> {
        let folder = self.folder(&lock.name, &lock.sha256);
        fs::create_dir_all(&folder).map_err(ModelError::io("create", &folder))?;
        let weights = folder.join("model.gguf");
        File::open(file)
            .and_then(|file| file.sync_all())
            .map_err(ModelError::io("flush", file))?;
        fs::rename(file, &weights).map_err(ModelError::io("rename", file))?;
        // The lock comes last: a folder without one is not a model yet.
        let text = serde_json::to_string_pretty(lock).unwrap_or_default();
        write_whole(&folder.join("lock.json"), text.as_bytes())?;
        remember(&self.root, &weights, &lock.sha256);
        Ok(weights)
    }

    /// Moves a complete, verified folder to its place and writes its lock.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn install_folder(&self, staged: &Path, lock: &Lock) -> Result<PathBuf, ModelError> {
        let folder = self.folder(&lock.name, &lock.sha256);
        for name in lock.files.keys() {
            let file = staged.join(name);
            File::open(&file)
                .and_then(|file| file.sync_all())
                .map_err(ModelError::io("flush", file))?;
        }
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(ModelError::io("remove", &folder))?;
        }
        let above = folder.parent().unwrap_or(&self.root);
        fs::create_dir_all(above).map_err(ModelError::io("create", above))?;
        fs::rename(staged, &folder).map_err(ModelError::io("rename", staged))?;
        // The lock comes last: a folder without one is not a model yet.
        let text = serde_json::to_string_pretty(lock).unwrap_or_default();
        write_whole(&folder.join("lock.json"), text.as_bytes())?;
        for (name, file) in &lock.files {
            remember(&self.root, &folder.join(name), &file.sha256);
        }
        Ok(folder)
    }

    /// SHA-256 of a file; remembered in the cache folder as long as path, size and time of change stay the same.
    ///
    /// # Errors
    /// The file is unreadable.
    pub fn sha256(&self, file: &Path) -> Result<String, ModelError> {
        let known = note(&self.root, file).and_then(|(note, stamp)| {
            let text = fs::read_to_string(note).ok()?;
            let (old, hash) = text.trim_end().split_once('\n')?;
            (old == stamp && super::manifest::is_sha256(hash)).then(|| hash.to_owned())
        });
        if let Some(hash) = known {
            return Ok(hash);
        }
        let hash = sha256(file, |_| ())?;
        remember(&self.root, file, &hash);
        Ok(hash)
    }
}

/// Computes the SHA-256 of a file; tells `progress` of every piece read.
///
/// # Errors
/// The file is unreadable.
pub fn sha256(path: &Path, mut progress: impl FnMut(u64)) -> Result<String, ModelError> {
    let mut file = File::open(path).map_err(ModelError::io("open", path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(ModelError::io("read", path))? {
            0 => return Ok(hex(&hasher.finalize())),
            count => {
                hasher.update(&buffer[..count]);
                progress(count as u64);
            }
        }
    }
}

/// Writes a small file so that it is either whole or absent.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    let aside = path.with_extension(format!("{}.tmp", std::process::id()));
    File::create(&aside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&aside, path))
        .map_err(ModelError::io("write", path))
}

/// Where the hash of a file is noted, and what must not have changed for the note to hold. A small file has no note:
/// it is hashed sooner than looked up.
fn note(root: &Path, file: &Path) -> Option<(PathBuf, String)> {
    let file = file.canonicalize().ok()?;
    let meta = file.metadata().ok().filter(|meta| meta.len() >= NOTED)?;
    let changed = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
    let key = hex(&Sha256::digest(file.as_os_str().as_encoded_bytes()));
    Some((
        root.join("hashes").join(key),
        format!("{} bytes, changed {changed}", meta.len()),
    ))
}

/// A convenience only, so a folder that cannot be written is no error.
fn remember(root: &Path, file: &Path, hash: &str) {
    if let Some((note, stamp)) = note(root, file) {
        let written = fs::create_dir_all(root.join("hashes"))
            .map_err(ModelError::io("create", root))
            .and_then(|()| write_whole(&note, format!("{stamp}\n{hash}\n").as_bytes()));
        if let Err(error) = written {
            tracing::debug!(%error, "the hash of {} is not remembered", file.display());
        }
    }
}
