//! A GGUF file: its metadata, its tensor table, and the bytes of a tensor.
//!
//! Not a model: nothing here knows what a key or a tensor means. Source: the GGUF specification, versions 2 and 3,
//! little-endian. A file is untrusted: every count and offset is checked against the file's size before it is used.

mod cursor;
mod parse;
mod value;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use super::weights::BlockType;
pub use parse::Header;
pub use value::Value;

use super::ModelError;

/// One entry of the tensor table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Shape, slowest dimension first: a weight is `(out, in)`. (The file stores it the other way round.)
    pub shape: Vec<usize>,
    /// How the numbers are stored.
    pub block: BlockType,
    /// Where the bytes begin in the file.
    pub start: u64,
    /// How many bytes there are.
    pub bytes: usize,
}

/// An open GGUF file.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    file: File,
    header: Header,
}

impl Gguf {
    /// Opens `path` and reads everything but the tensors' bytes.
    ///
    /// # Errors
    /// The file cannot be read, is malformed, or holds a tensor type without a known block size.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let file = File::open(path).map_err(ModelError::io("open", path))?;
        let meta = file.metadata().map_err(ModelError::io("stat", path))?;
        if !meta.is_file() {
            return Err(ModelError::Malformed {
                file: path.into(),
                place: "path".into(),
                expected: "a regular file".into(),
                found: "something else".into(),
            });
        }
        let header = Header::parse(BufReader::with_capacity(1 << 20, &file), meta.len(), path)?;
        Ok(Self {
            path: path.into(),
            file,
            header,
        })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All metadata, by key.
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.header.metadata
    }

    /// The tensor table, by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorEntry> {
        &self.header.tensors
    }

    /// Reads the bytes of a tensor, as stored.
    ///
    /// # Errors
    /// There is no such tensor, or the file became unreadable or shorter since it was opened.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, ModelError> {
        let entry = self
            .header
            .tensors
            .get(name)
            .ok_or_else(|| ModelError::Malformed {
                file: self.path.clone(),
                place: "tensor table".into(),
                expected: format!("a tensor {name}"),
                found: "none of that name".into(),
            })?;
        let mut bytes = vec![0; entry.bytes];
        self.file
            .read_exact_at(&mut bytes, entry.start)
            .map_err(ModelError::io("read", &self.path))?;
        Ok(bytes)
    }

    /// The value of `key` as a text, if the key is there.
    ///
    /// # Errors
    /// The key holds another type.
    pub fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "a string", Value::as_text)
    }

    /// The value of `key` as a count or an index, if the key is there.
    ///
    /// # Errors
    /// The key holds another type or a negative number.
    pub fn count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.typed(key, "a non-negative integer", Value::as_count)
    }

    /// The value of `key` as a number, if the key is there.
    ///
    /// # Errors
    /// The key holds another type or a number that is not finite.
    pub fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.typed(key, "a finite number", Value::as_number)
    }

    /// The value of `key` as a truth value, if the key is there.
    ///
    /// # Errors
    /// The key holds another type.
    pub fn truth(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "a bool", Value::as_truth)
    }

    /// The value of `key` as a list, if the key is there.
    ///
    /// # Errors
    /// The key holds another type.
    pub fn list(&self, key: &str) -> Result<Option<&[Value]>, ModelError> {
        self.typed(key, "an array", Value::as_list)
    }

    /// Turns an absent value into an error that names the key.
    ///
    /// # Errors
    /// `value` is none.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, ModelError> {
        value.ok_or_else(|| ModelError::Malformed {
            file: self.path.clone(),
            place: "metadata".into(),
            expected: format!("the key {key}"),
            found: "no such key".into(),
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        match self.header.metadata.get(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| ModelError::Malformed {
                file: self.path.clone(),
                place: format!("metadata key {key}"),
                expected: expected.into(),
                found: value.describe(),
            }),
        }
    }
}
