//! From what the user writes (a name or a path) to a file or a folder.
//!
//! Not opening it (that is `Model::open`).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::ModelError;
use super::cache::{Cache, Lock};
use super::fetch::{Access, Progress, fetch};
use super::folder::CONFIG;
use super::manifest;

/// A model that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The manifest's name, or the path as given.
    pub name: String,
    /// Where the file or folder is.
    pub path: PathBuf,
    /// Where it came from; none for a model given by path.
    pub lock: Option<Lock>,
}

/// Finds a model by name in the cache or by path; fetches nothing. What has a separator in it or ends in `.gguf` is a
/// path; any other text is a name if a manifest has it, else a path if a folder has it.
///
/// # Errors
/// No such name, no such file, a path at which there is no model, or the model was not pulled yet.
pub fn resolve(spec: &str) -> Result<Located, ModelError> {
    resolve_in(spec, &Cache::standard()?)
}

/// [`resolve`] in a given cache.
///
/// # Errors
/// As there.
pub fn resolve_in(spec: &str, cache: &Cache) -> Result<Located, ModelError> {
    let path = Path::new(spec);
    let gguf = path.extension().is_some_and(|extension| extension == "gguf");
    let named = || {
        manifest::find(spec)
            .map(Some)
            .or_else(|error| match path.is_dir() {
                true => Ok(None),
                false => Err(error),
            })
    };
    let manifest = match gguf || spec.contains(std::path::MAIN_SEPARATOR) {
        true => None,
        false => named()?,
    };
    let Some(manifest) = manifest else {
        check(path)?;
        return Ok(Located {
            name: spec.into(),
            path: path.into(),
            lock: None,
        });
    };
    let mut found = cache.find(spec)?;
    // With several files of one name, the one that the manifest knows wins: runs stay comparable.
    let best = found
        .iter()
        .position(|(_, lock)| manifest.knows(&lock.sha256))
        .unwrap_or(0);
    if found.is_empty() {
        return Err(ModelError::Absent {
            name: spec.into(),
            cache: cache.root().into(),
        });
    }
    let (path, lock) = found.swap_remove(best);
    Ok(Located {
        name: spec.into(),
        path,
        lock: Some(lock),
    })
}

/// Whether there may be a model at `path`: a folder with a configuration, or a file in GGUF format.
fn check(path: &Path) -> Result<(), ModelError> {
    let meta = path.metadata().map_err(ModelError::io("open", path))?;
    let not = |found: &str| ModelError::NotAModel {
        path: path.into(),
        found: found.into(),
    };
    if meta.is_dir() {
        return match path.join(CONFIG).exists() {
            true => Ok(()),
            false => Err(not("a folder without config.json")),
        };
    }
    if !meta.is_file() {
        return Err(not("neither a file nor a folder"));
    }
    let mut magic = Vec::new();
    let file = File::open(path).map_err(ModelError::io("open", path))?;
    file.take(4)
        .read_to_end(&mut magic)
        .map_err(ModelError::io("read", path))?;
    match (magic.as_slice(), path.extension()) {
        (b"GGUF", _) => Ok(()),
        (_, Some(extension)) if extension == "safetensors" || extension == "json" => {
            Err(not("one file of a folder: name the folder"))
        }
        _ => Err(not("a file in another format")),
    }
}

/// Fetches a model by name into the standard cache; one that is there already is left as it is.
///
/// # Errors
/// No such name, or no source has it.
pub fn pull(name: &str, progress: &mut dyn Progress) -> Result<Located, ModelError> {
    let cache = Cache::standard()?;
    match resolve_in(name, &cache) {
        Err(ModelError::Absent { .. }) => fetch(
            &manifest::find(name)?,
            &cache,
            &Access::from_env(),
            false,
            progress,
        ),
        found => found,
    }
}

/// Finds a model, or pulls it.
///
/// # Errors
/// It is neither here nor to be had.
pub fn obtain(spec: &str, progress: &mut dyn Progress) -> Result<Located, ModelError> {
    match resolve(spec) {
        Err(ModelError::Absent { name, .. }) => pull(&name, progress),
        found => found,
    }
}

/// Like [`obtain`], but only the file that the manifest knows will do: for comparisons with stored references.
///
/// # Errors
/// It is neither here nor to be had.
pub fn obtain_exact(name: &str, progress: &mut dyn Progress) -> Result<Located, ModelError> {
    let (cache, manifest) = (Cache::standard()?, manifest::find(name)?);
    match resolve_in(name, &cache) {
        Ok(located)
            if located
                .lock
                .as_ref()
                .is_some_and(|lock| manifest.file.is_none() || manifest.knows(&lock.sha256)) =>
        {
            Ok(located)
        }
        Ok(_) | Err(ModelError::Absent { .. }) => {
            fetch(&manifest, &cache, &Access::from_env(), true, progress)
        }
        Err(error) => Err(error),
    }
}
