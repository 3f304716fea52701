//! From what the user writes (a name or a path) to a file.
//!
//! Not opening it (that is `Model::open`).

use std::path::{Path, PathBuf};

use super::ModelError;
use super::cache::{Cache, Lock};
use super::fetch::{Access, Progress, fetch};
use super::manifest;

/// A model file that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The manifest's name, or the path as given.
    pub name: String,
    /// Where the file is.
    pub path: PathBuf,
    /// Where it came from; none for a file given by path.
    pub lock: Option<Lock>,
}

/// Finds a model by name in the cache or by path; fetches nothing. A text is a path if it ends in `.gguf` or has a
/// separator in it.
///
/// # Errors
/// No such name, no such file, or the model was not pulled yet.
pub fn resolve(spec: &str) -> Result<Located, ModelError> {
    resolve_in(spec, &Cache::standard()?)
}

/// [`resolve`] in a given cache.
///
/// # Errors
/// As there.
pub fn resolve_in(spec: &str, cache: &Cache) -> Result<Located, ModelError> {
    if Path::new(spec)
        .extension()
        .is_some_and(|extension| extension == "gguf")
        || spec.contains(std::path::MAIN_SEPARATOR)
    {
        let path = PathBuf::from(spec);
        path.metadata().map_err(ModelError::io("open", &path))?;
        return Ok(Located {
            name: spec.into(),
            path,
            lock: None,
        });
    }
    let manifest = manifest::find(spec)?;
    let mut found = cache.find(spec)?;
    // With several files of one name, the one that the manifest knows wins: runs stay comparable.
    let best = found
        .iter()
        .position(|(_, lock)| lock.sha256 == manifest.file.sha256)
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
                .is_some_and(|lock| lock.sha256 == manifest.file.sha256) =>
        {
            Ok(located)
        }
        Ok(_) | Err(ModelError::Absent { .. }) => {
            fetch(&manifest, &cache, &Access::from_env(), true, progress)
        }
        Err(error) => Err(error),
    }
}
