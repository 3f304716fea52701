//! The header of a GGUF file, from bytes that nobody vouches for.
//!
//! Not a validator of models: it only promises that what it returns is bounded and lies inside the file.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use super::cursor::Cursor;
use super::{TensorEntry, Value};
use crate::model::ModelError;

/// The parsed header.
#[derive(Debug)]
pub struct Header {
    /// Version of the format, 2 or 3.
    pub version: u32,
    /// Metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// Tensors by name, every one inside the file.
    pub tensors: BTreeMap<String, TensorEntry>,
}

impl Header {
    /// Reads a header from `source`, the beginning of a file of `length` bytes; `file` is for messages only.
    ///
    /// # Errors
    /// Anything malformed, truncated or out of bounds; a tensor of an unknown type.
    pub fn parse(source: impl Read, length: u64, file: &Path) -> Result<Self, ModelError> {
        let mut cursor = Cursor::new(source, length, file);
        if &cursor.bytes::<4>("magic")? != b"GGUF" {
            return Err(cursor.malformed("byte 0", "the magic GGUF", "other bytes"));
        }
        let version = cursor.u32("version")?;
        if version != 2 && version != 3 {
            return Err(cursor.malformed("byte 4", "version 2 or 3, little-endian", version));
        }
        let tensor_count = cursor.entries("tensor count", 8 + 4 + 8 + 4 + 8)?;
        let key_count = cursor.entries("metadata count", 8 + 4 + 1)?;

        let mut metadata = BTreeMap::new();
        for _ in 0..key_count {
            let key = cursor.text("a metadata key")?;
            let kind = cursor.u32(&key)?;
            let value = cursor.value(kind, 0, &key)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(cursor.malformed("metadata", "each key once", format!("{key:?} twice")));
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => 32,
            Some(value) => match value.as_count() {
                Some(n) if n.is_power_of_two() && n <= 1 << 16 => n as u64,
                _ => {
                    return Err(cursor.malformed(
                        "metadata key general.alignment",
                        "a power of two up to 65536",
                        value.describe(),
                    ));
                }
            },
        };
        let mut tensors = BTreeMap::new();
        for _ in 0..tensor_count {
            let name = cursor.text("a tensor name")?;
            let entry = cursor.tensor(&name, alignment)?;
            if tensors.insert(name.clone(), entry).is_some() {
                return Err(cursor.malformed("tensor table", "each name once", format!("{name:?} twice")));
            }
        }
        let data = cursor.at.next_multiple_of(alignment);
        for (name, entry) in &mut tensors {
            let start = data.checked_add(entry.start);
            let end = start.and_then(|start| start.checked_add(entry.bytes as u64));
            match (start, end) {
                (Some(start), Some(end)) if end <= length => entry.start = start,
                _ => {
                    return Err(cursor.malformed(
                        format!("tensor {name}"),
                        format!("{} bytes inside the file of {length}", entry.bytes),
                        format!("offset {} after byte {data}", entry.start),
                    ));
                }
            }
        }
        Ok(Self {
            version,
            metadata,
            tensors,
        })
    }
}
