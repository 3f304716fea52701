//! A folder from the Hugging Face hub: the files that the manifest names, and those that their index names.
//!
//! Not one file's transfer (that is `hub`). All files are of one commit. What is complete is set aside under that
//! commit, so the next pull goes on where this one stopped; the lock comes last.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::hub::{Hub, failed};
use super::{Access, Progress};
use crate::model::ModelError;
use crate::model::cache::{Cache, Lock, LockedFile};
use crate::model::folder;
use crate::model::manifest::Manifest;

/// What to ask for.
pub(super) struct Wanted<'a> {
    pub(super) repository: &'a str,
    pub(super) revision: &'a str,
    pub(super) files: &'a [String],
}

/// Downloads what is not there yet, verifies and installs.
pub(super) fn fetch(
    manifest: &Manifest,
    wanted: &Wanted<'_>,
    cache: &Cache,
    access: &Access,
    progress: &mut dyn Progress,
) -> Result<(PathBuf, Lock), ModelError> {
    let partial = cache.partial(&manifest.name);
    let hub = Hub::open(wanted.repository, &partial, access)?;
    let first = wanted.files.first().ok_or_else(|| failed("no files to fetch"))?;
    let commit = hub.stated(wanted.revision, first)?.commit;
    let staged = partial.join("folders").join(&commit);
    fs::create_dir_all(&staged).map_err(ModelError::io("create", &staged))?;
    let mut locked = BTreeMap::new();
    for name in wanted.files {
        let file = fetch_file(&hub, &commit, name, &staged, progress)?;
        locked.insert(name.clone(), file);
    }
    // The index is here now, and names the rest.
    let names: BTreeSet<String> = folder::files(&staged)
        .inspect_err(|_| {
            let _ = fs::remove_dir_all(&staged);
        })?
        .into_iter()
        .collect();
    for name in &names {
        if !locked.contains_key(name) {
            let file = fetch_file(&hub, &commit, name, &staged, progress)?;
            locked.insert(name.clone(), file);
        }
    }
    let hashes = locked.iter().filter(|(name, _)| names.contains(*name));
    let lock = Lock {
        name: manifest.name.clone(),
        kind: "hub".into(),
        source: format!("hub {}@{commit}", wanted.repository),
        revision: Some(commit),
        sha256: folder::combine(hashes.map(|(name, file)| (name.as_str(), file.sha256.as_str()))),
        bytes: locked.values().map(|file| file.bytes).sum(),
        files: locked,
    };
    let path = cache.install_folder(&staged, &lock)?;
    let _ = fs::remove_dir_all(&partial);
    Ok((path, lock))
}

/// One file to `staged`, unless an earlier pull left it there whole.
fn fetch_file(
    hub: &Hub<'_>,
    commit: &str,
    name: &str,
    staged: &Path,
    progress: &mut dyn Progress,
) -> Result<LockedFile, ModelError> {
    progress.note(name);
    let stated = hub.stated(commit, name)?;
    if stated.commit != commit {
        let found = stated.commit;
        return Err(failed(format!("{name}: expected commit {commit}, found {found}")));
    }
    let place = staged.join(name);
    let bytes = stated.bytes;
    if place.is_file() {
        if let Ok(sha256) = stated.verify(&place, progress) {
            return Ok(LockedFile { sha256, bytes });
        }
        fs::remove_file(&place).map_err(ModelError::io("remove", &place))?;
    }
    let (blob, sha256) = hub.file(&stated, name, progress)?;
    fs::rename(&blob, &place).map_err(ModelError::io("rename", &blob))?;
    Ok(LockedFile { sha256, bytes })
}
