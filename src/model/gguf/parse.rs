//! The header of a GGUF file, from bytes that nobody vouches for.
//!
//! Not a validator of models: it only promises that what it returns is bounded and lies inside the file.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use super::{BlockType, TensorEntry, Value};
use crate::model::ModelError;

/// Most metadata keys, and most tensors, of a file. Real ones have tens and hundreds.
const MAX_ENTRIES: u64 = 1 << 16;
/// Most array elements over all metadata. The largest vocabularies with their merges stay under a million.
const MAX_ELEMENTS: u64 = 1 << 22;
/// Most bytes of one string. Chat templates have some thousands.
const MAX_STRING: u64 = 1 << 20;
/// How deep arrays may nest; real files nest once.
const MAX_DEPTH: u32 = 3;
/// Most numbers in a tensor.
const MAX_NUMBERS: usize = 1 << 40;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

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
        let mut cursor = Cursor {
            source,
            at: 0,
            length,
            elements: 0,
            file,
        };
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

struct Cursor<'a, R> {
    source: R,
    at: u64,
    length: u64,
    elements: u64,
    file: &'a Path,
}

impl<R: Read> Cursor<'_, R> {
    fn malformed(
        &self,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> ModelError {
        ModelError::Malformed {
            file: self.file.into(),
            place: place.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    /// Checks that `wanted` more bytes exist, before anything is allocated for them.
    fn need(&self, wanted: u64, what: &str) -> Result<(), ModelError> {
        let left = self.length.saturating_sub(self.at);
        if wanted > left {
            let place = format!("byte {} ({what})", self.at);
            return Err(self.malformed(place, format!("{wanted} more bytes"), format!("{left}")));
        }
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8], what: &str) -> Result<(), ModelError> {
        self.need(buffer.len() as u64, what)?;
        self.source
            .read_exact(buffer)
            .map_err(ModelError::io("read", self.file))?;
        self.at += buffer.len() as u64;
        Ok(())
    }

    fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ModelError> {
        let mut buffer = [0; N];
        self.fill(&mut buffer, what)?;
        Ok(buffer)
    }

    fn u32(&mut self, what: &str) -> Result<u32, ModelError> {
        self.bytes(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, ModelError> {
        self.bytes(what).map(u64::from_le_bytes)
    }

    /// A number of entries, each of at least `least` bytes.
    fn entries(&mut self, what: &str, least: u64) -> Result<u64, ModelError> {
        let count = self.u64(what)?;
        if count > MAX_ENTRIES {
            return Err(self.malformed(what, format!("at most {MAX_ENTRIES}"), count));
        }
        self.need(count * least, what)?;
        Ok(count)
    }

    fn text(&mut self, what: &str) -> Result<String, ModelError> {
        let at = self.at;
        let length = self.u64(what)?;
        if length > MAX_STRING {
            let place = format!("byte {at} ({what})");
            return Err(self.malformed(place, format!("a string of at most {MAX_STRING} bytes"), length));
        }
        self.need(length, what)?;
        let mut buffer = vec![0; length as usize];
        self.fill(&mut buffer, what)?;
        String::from_utf8(buffer)
            .map_err(|_| self.malformed(format!("byte {at} ({what})"), "UTF-8", "other bytes"))
    }

    fn value(&mut self, kind: u32, depth: u32, key: &str) -> Result<Value, ModelError> {
        Ok(match kind {
            0 => Value::Unsigned(self.bytes::<1>(key)?[0].into()),
            1 => Value::Signed(i8::from_le_bytes(self.bytes(key)?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.bytes(key)?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.bytes(key)?).into()),
            4 => Value::Unsigned(self.u32(key)?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.bytes(key)?).into()),
            6 => Value::Float(f32::from_le_bytes(self.bytes(key)?).into()),
            7 => match self.bytes::<1>(key)?[0] {
                0 => Value::Truth(false),
                1 => Value::Truth(true),
                other => return Err(self.malformed(key, "a bool of 0 or 1", other)),
            },
            STRING => Value::Text(self.text(key)?),
            ARRAY => self.list(depth, key)?,
            10 => Value::Unsigned(self.u64(key)?),
            11 => Value::Signed(i64::from_le_bytes(self.bytes(key)?)),
            12 => Value::Float(f64::from_le_bytes(self.bytes(key)?)),
            other => return Err(self.malformed(key, "a value type from 0 to 12", other)),
        })
    }

    fn list(&mut self, depth: u32, key: &str) -> Result<Value, ModelError> {
        let kind = self.u32(key)?;
        let count = self.u64(key)?;
        if depth >= MAX_DEPTH {
            return Err(self.malformed(
                key,
                format!("arrays nested at most {MAX_DEPTH} deep"),
                "deeper ones",
            ));
        }
        self.elements = self.elements.saturating_add(count);
        if self.elements > MAX_ELEMENTS {
            let found = format!("{count} more");
            return Err(self.malformed(
                key,
                format!("at most {MAX_ELEMENTS} array elements in all"),
                found,
            ));
        }
        let least: u64 = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            _ => 8,
        };
        self.need(count * least, key)?;
        (0..count)
            .map(|_| self.value(kind, depth + 1, key))
            .collect::<Result<_, _>>()
            .map(Value::List)
    }

    /// One row of the tensor table; `start` is still relative to the data.
    fn tensor(&mut self, name: &str, alignment: u64) -> Result<TensorEntry, ModelError> {
        let place = || format!("tensor {name}");
        let rank = self.u32(name)?;
        if !(1..=4).contains(&rank) {
            return Err(self.malformed(place(), "1 to 4 dimensions", rank));
        }
        let mut shape = Vec::with_capacity(rank as usize);
        for _ in 0..rank {
            shape.push(self.u64(name)?);
        }
        let numbers = shape.iter().try_fold(1usize, |product, &dimension| {
            let dimension = usize::try_from(dimension).ok().filter(|&d| d > 0)?;
            product.checked_mul(dimension).filter(|&n| n <= MAX_NUMBERS)
        });
        let Some(numbers) = numbers else {
            return Err(self.malformed(
                place(),
                format!("1 to {MAX_NUMBERS} numbers"),
                format!("{shape:?}"),
            ));
        };
        let id = self.u32(name)?;
        let Some(block) = BlockType::from_id(id) else {
            return Err(ModelError::Unsupported {
                file: self.file.into(),
                place: place(),
                expected: "F32, F16, BF16, Q4_0 to Q8_0 and Q2_K to Q6_K".into(),
                found: format!("tensor type {id}"),
            });
        };
        if shape[0] % block.numbers() as u64 != 0 {
            let expected = format!("rows of a multiple of {} ({})", block.numbers(), block.name());
            return Err(self.malformed(place(), expected, shape[0]));
        }
        let start = self.u64(name)?;
        if start % alignment != 0 {
            return Err(self.malformed(
                place(),
                format!("an offset that is a multiple of {alignment}"),
                start,
            ));
        }
        Ok(TensorEntry {
            shape: shape.iter().rev().map(|&dimension| dimension as usize).collect(),
            block,
            start,
            bytes: numbers / block.numbers() * block.bytes(),
        })
    }
}
