//! A safetensors file: its tensor table, and the bytes of a tensor.
//!
//! Not a model: nothing here knows what a tensor means. Source: the description of the format. A file is untrusted:
//! every length and offset is checked against the file's size before it is used. Files are read, not mapped.

mod parse;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use parse::{Dtype, Header};

use super::ModelError;

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Shape, slowest dimension first; empty for a single number.
    pub shape: Vec<usize>,
    /// How a number is stored.
    pub dtype: Dtype,
    /// Where the bytes begin in the file.
    pub start: u64,
    /// How many bytes there are: the product of the shape times the size of a number.
    pub bytes: usize,
}

/// An open safetensors file.
#[derive(Debug)]
pub struct Safetensors {
    path: PathBuf,
    file: File,
    header: Header,
}

impl Safetensors {
    /// Opens `path` and reads everything but the tensors' bytes.
    ///
    /// # Errors
    /// The file cannot be read, is malformed, or holds numbers of an unknown size.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        // Asked before it is opened, for opening a pipe would wait for its writer.
        let meta = path.metadata().map_err(ModelError::io("open", path))?;
        if !meta.is_file() {
            return Err(ModelError::Malformed {
                file: path.into(),
                place: "path".into(),
                expected: "a regular file".into(),
                found: "something else".into(),
            });
        }
        let file = File::open(path).map_err(ModelError::io("open", path))?;
        let length = file.metadata().map_err(ModelError::io("stat", path))?.len();
        let header = Header::parse(BufReader::new(&file), length, path)?;
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

    /// The tensors, by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorEntry> {
        &self.header.tensors
    }

    /// Reads the bytes of a tensor, as stored.
    ///
    /// # Errors
    /// There is no such tensor, or the file became unreadable or shorter since it was opened.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, ModelError> {
        let entry = self.tensors().get(name).ok_or_else(|| ModelError::Malformed {
            file: self.path.clone(),
            place: "header".into(),
            expected: format!("a tensor {name}"),
            found: "none of that name".into(),
        })?;
        let mut bytes = vec![0; entry.bytes];
        self.file
            .read_exact_at(&mut bytes, entry.start)
            .map_err(ModelError::io("read", &self.path))?;
        Ok(bytes)
    }
}
