//! A Hugging Face folder, opened: `config.json`, tokenizer, chat template and safetensors, to a [`Model`].
//!
//! Not a download and not a cache. A folder is untrusted: every file is read within a limit, and none outside it.

mod config;
mod names;
mod tensors;
mod write;

use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

pub use tensors::Tensors;
pub use write::{Writer, fits, is_quantised, write_small_files};

use super::cache::{Cache, sha256};
use super::config::Config;
use super::json::{Json, brief, read};
use super::template::{Template, hex};
use super::tokenizer::Tokenizer;
use super::weights::Weights;
use super::{Model, ModelError};

/// The file without which a folder is no model.
pub const CONFIG: &str = "config.json";
/// The weights in one file.
pub const WEIGHTS: &str = "model.safetensors";
/// The weights in several.
pub const INDEX: &str = "model.safetensors.index.json";
const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";

/// Most bytes of a configuration or a template; real ones have some thousands.
const MAX_SMALL: u64 = 1 << 22;
/// Most bytes of a tokenizer; those of large vocabularies have some ten millions.
const MAX_TOKENIZER: u64 = 1 << 26;

/// Opens a folder.
///
/// # Errors
/// A file is missing, malformed, too large or outside the folder; the model is of another architecture or kind; the
/// files contradict each other.
pub(super) fn open(folder: &Path) -> Result<Model, ModelError> {
    if !folder.join(CONFIG).exists() {
        return Err(ModelError::Malformed {
            file: folder.into(),
            place: "the folder".into(),
            expected: format!("a model's {CONFIG}"),
            found: "none".into(),
        });
    }
    let config_json = Json::open(&inside(folder, CONFIG)?, MAX_SMALL)?;
    let config = Config::from_json(&config_json)?;
    let group = config::awq_group(&config_json)?;
    let generation = Json::optional(&inside(folder, GENERATION)?, MAX_SMALL)?;
    let mut ends = end_ids(&config_json)?;
    if let Some(generation) = &generation {
        ends.extend(end_ids(generation)?);
    }
    let file = inside(folder, TOKENIZER)?;
    let tokenizer = Tokenizer::from_json(&file, &read(&file, MAX_TOKENIZER)?, config.vocab, ends)?;
    let template = template(folder)?;
    let tensors = Tensors::open(folder, &config, group)?;
    let title = folder.canonicalize().ok().and_then(|folder| {
        let name = folder.file_name()?;
        Some(name.to_string_lossy().into_owned())
    });
    Ok(Model {
        tokenizer,
        template,
        path: folder.into(),
        title: title.unwrap_or_else(|| folder.display().to_string()),
        licence: None,
        sha256: identity(folder)?,
        weights: Weights::from_folder(tensors),
        config,
    })
}

/// The files of a folder that a model is made of, in order of their names: those there are of the small ones, and the
/// weights.
///
/// # Errors
/// There are no weights, or their index is malformed.
pub fn files(folder: &Path) -> Result<Vec<String>, ModelError> {
    let small = [CONFIG, GENERATION, TOKENIZER, TOKENIZER_CONFIG, TEMPLATE];
    let there = small.into_iter().filter(|name| folder.join(name).exists());
    let mut names: Vec<String> = there.map(str::to_owned).collect();
    if folder.join(WEIGHTS).exists() {
        names.push(WEIGHTS.to_owned());
    } else {
        names.extend(tensors::weight_map(folder)?.into_values());
        names.push(INDEX.to_owned());
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// SHA-256 of a folder's model: of the lines `<sha256 of the file>  <name>`, in order of the names of its [`files`].
///
/// # Errors
/// A file is unreadable or outside the folder.
pub fn identity(folder: &Path) -> Result<String, ModelError> {
    let mut hashes = Vec::new();
    for name in files(folder)? {
        let file = inside(folder, &name)?;
        let hash = match Cache::standard() {
            Ok(cache) => cache.sha256(&file)?,
            Err(_) => sha256(&file, |_| ())?,
        };
        hashes.push((name, hash));
    }
    Ok(combine(
        hashes.iter().map(|(name, hash)| (name.as_str(), hash.as_str())),
    ))
}

/// The hash of a folder, given those of its files in order of their names.
pub fn combine<'a>(hashes: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let lines: String = hashes.map(|(name, hash)| format!("{hash}  {name}\n")).collect();
    hex(&Sha256::digest(lines.as_bytes()))
}

/// The path of a file of the folder, which must not lead out of it through a link. The one exception is the hub's own
/// cache, whose `snapshots/<commit>/` are links to the `blobs/` beside `snapshots`.
///
/// # Errors
/// It leads elsewhere. A file that does not exist is none here.
fn inside(folder: &Path, name: &str) -> Result<PathBuf, ModelError> {
    let path = folder.join(name);
    let (Ok(root), Ok(real)) = (folder.canonicalize(), path.canonicalize()) else {
        return Ok(path);
    };
    let blobs = root
        .parent()
        .filter(|parent| parent.file_name().is_some_and(|name| name == "snapshots"))
        .and_then(Path::parent)
        .map(|repository| repository.join("blobs"));
    if real.starts_with(&root) || blobs.is_some_and(|blobs| real.parent() == Some(&blobs)) {
        return Ok(path);
    }
    Err(ModelError::Malformed {
        file: path,
        place: "the path".into(),
        expected: format!("a file in {}", root.display()),
        found: format!("a link to {}", real.display()),
    })
}

/// The ids in `eos_token_id`: one, a list, or none.
fn end_ids(json: &Json) -> Result<Vec<(String, u32)>, ModelError> {
    let key = "eos_token_id";
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        let place = format!("{} of {}", key, json.file().display());
        id.map(|id| (place, id))
            .ok_or_else(|| json.malformed(key, "token ids", brief(&value.to_string())))
    };
    match json.value(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.iter().map(id).collect(),
        Some(one) => Ok(vec![id(one)?]),
    }
}

/// The chat template and the special tokens that it may name: a file of its own goes before the tokenizer's
/// configuration, as in the library that writes them.
fn template(folder: &Path) -> Result<Template, ModelError> {
    let json = Json::optional(&inside(folder, TOKENIZER_CONFIG)?, MAX_SMALL)?;
    let own = inside(folder, TEMPLATE)?;
    let template = if own.exists() {
        let text = String::from_utf8(read(&own, MAX_SMALL)?).map_err(|_| ModelError::Malformed {
            file: own.clone(),
            place: "the whole file".into(),
            expected: "UTF-8".into(),
            found: "other bytes".into(),
        })?;
        Template::new(&text, &own)?
    } else {
        let stated = json.as_ref().map(stated_template).transpose()?.flatten();
        let text = stated.ok_or_else(|| ModelError::Malformed {
            file: folder.into(),
            place: "the folder".into(),
            expected: format!("a chat template: {TEMPLATE}, or chat_template in {TOKENIZER_CONFIG}"),
            found: "neither".into(),
        })?;
        Template::new(text, &folder.join(TOKENIZER_CONFIG))?
    };
    let token = |key| json.as_ref().map(|json| special(json, key)).transpose();
    Ok(template.with_tokens(token("bos_token")?.flatten(), token("eos_token")?.flatten()))
}

/// `chat_template`: a text, or a list of named ones, of which `default` counts.
fn stated_template(json: &Json) -> Result<Option<&str>, ModelError> {
    let key = "chat_template";
    match json.value(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Array(list)) => {
            let default = list.iter().find(|entry| entry["name"] == "default");
            let text = default.and_then(|entry| entry["template"].as_str());
            let expected = "a template named default";
            text.map(Some)
                .ok_or_else(|| json.malformed(key, expected, format!("a list of {} others", list.len())))
        }
        Some(other) => Err(json.malformed(key, "a text or a list", brief(&other.to_string()))),
    }
}

/// A special token: its text, or an object that holds it.
fn special(json: &Json, key: &str) -> Result<Option<String>, ModelError> {
    match json.value(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => match other.get("content").and_then(Value::as_str) {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(json.malformed(key, "a token's text", brief(&other.to_string()))),
        },
    }
}
