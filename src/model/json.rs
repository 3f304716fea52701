//! Small JSON files beside a model's weights: read within a limit, with typed access to their keys.
//!
//! Not a schema: who asks for a key knows what it means. A `null` counts as absent, as the files' writers mean it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ModelError;

/// A JSON object, and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Json {
    file: PathBuf,
    /// The keys that lead to this object, for messages: empty or `outer.`.
    prefix: String,
    object: Map<String, Value>,
}

impl Json {
    /// Reads the object in a file of at most `limit` bytes.
    ///
    /// # Errors
    /// The file is absent, no regular file, larger, or no JSON object.
    pub(super) fn open(file: &Path, limit: u64) -> Result<Self, ModelError> {
        Ok(Self {
            object: parse(file, &read(file, limit)?)?,
            prefix: String::new(),
            file: file.into(),
        })
    }

    /// [`Json::open`], if the file exists.
    ///
    /// # Errors
    /// As there.
    pub(super) fn optional(file: &Path, limit: u64) -> Result<Option<Self>, ModelError> {
        match file.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            _ => Self::open(file, limit).map(Some),
        }
    }

    /// The file.
    /// All keys and values.
    pub(super) fn entries(&self) -> &serde_json::Map<String, Value> {
        &self.object
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The value of a key that is there and not `null`.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// A non-negative integer.
    ///
    /// # Errors
    /// The key holds something else.
    pub(super) fn count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let count = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        self.typed(key, "a non-negative integer", count)
    }

    /// A number.
    ///
    /// # Errors
    /// The key holds something else.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// A truth value.
    ///
    /// # Errors
    /// The key holds something else.
    pub(super) fn truth(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A string.
    ///
    /// # Errors
    /// The key holds something else.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// An object within this one.
    ///
    /// # Errors
    /// The key holds something else.
    pub(super) fn object(&self, key: &str) -> Result<Option<Self>, ModelError> {
        let object = self.typed(key, "an object", Value::as_object)?;
        Ok(object.map(|object| Self {
            file: self.file.clone(),
            prefix: format!("{}{key}.", self.prefix),
            object: object.clone(),
        }))
    }

    /// Turns an absent value into an error that names the key.
    ///
    /// # Errors
    /// `value` is none.
    pub(super) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, ModelError> {
        value.ok_or_else(|| self.malformed(key, "a value", "no such key"))
    }

    /// The error of a key whose value is not what a good file has.
    pub(super) fn malformed(&self, key: &str, expected: &str, found: impl ToString) -> ModelError {
        ModelError::Malformed {
            file: self.file.clone(),
            place: format!("key {}{key}", self.prefix),
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    /// The error of a key whose value this program does not handle.
    pub(super) fn unsupported(&self, key: &str, expected: &str, found: impl ToString) -> ModelError {
        ModelError::Unsupported {
            file: self.file.clone(),
            place: format!("key {}{key}", self.prefix),
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => read(value)
                .map(Some)
                .ok_or_else(|| self.malformed(key, expected, brief(&value.to_string()))),
        }
    }
}

/// The bytes of a regular file of at most `limit` bytes.
///
/// # Errors
/// The file is absent, no regular file, larger, or unreadable.
pub(super) fn read(file: &Path, limit: u64) -> Result<Vec<u8>, ModelError> {
    // Asked before it is opened, for opening a pipe would wait for its writer.
    let meta = file.metadata().map_err(ModelError::io("open", file))?;
    let bad = |expected: String, found: String| ModelError::Malformed {
        file: file.into(),
        place: "the whole file".into(),
        expected,
        found,
    };
    if !meta.is_file() {
        return Err(bad("a regular file".into(), "something else".into()));
    }
    let most = format!("at most {limit} bytes");
    if meta.len() > limit {
        return Err(bad(most, meta.len().to_string()));
    }
    let mut bytes = Vec::new();
    let mut opened = File::open(file)
        .map_err(ModelError::io("open", file))?
        .take(limit + 1);
    opened
        .read_to_end(&mut bytes)
        .map_err(ModelError::io("read", file))?;
    match bytes.len() as u64 <= limit {
        true => Ok(bytes),
        false => Err(bad(most, "more".into())),
    }
}

/// Parses a file's JSON; the error names the place in it.
///
/// # Errors
/// No JSON, or of another form.
pub(super) fn parse<T: DeserializeOwned>(file: &Path, bytes: &[u8]) -> Result<T, ModelError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let malformed = |place: String, found: String| ModelError::Malformed {
        file: file.into(),
        place: format!("JSON {}", brief(&place)),
        expected: "well-formed content".into(),
        found: brief(&found),
    };
    let parsed = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| malformed(error.path().to_string(), error.inner().to_string()))?;
    reader
        .end()
        .map_err(|error| malformed("after the value".into(), error.to_string()))?;
    Ok(parsed)
}

/// A text for an error message: what is long is cut.
pub(super) fn brief(text: &str) -> String {
    match text.char_indices().nth(160) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
