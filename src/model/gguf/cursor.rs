//! Bounded reading of a GGUF header: nothing is allocated before the bytes for it are known to exist.
//!
//! Not the order of the fields (that is `parse`).

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

/// A reader that knows how much there is to read.
pub(super) struct Cursor<'a, R> {
    source: R,
    pub(super) at: u64,
    length: u64,
    elements: u64,
    file: &'a Path,
}

impl<'a, R: Read> Cursor<'a, R> {
    /// Reads a file of `length` bytes from its beginning.
    pub(super) fn new(source: R, length: u64, file: &'a Path) -> Self {
        Self {
            source,
            at: 0,
            length,
            elements: 0,
            file,
        }
    }

    pub(super) fn malformed(
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

    pub(super) fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ModelError> {
        let mut buffer = [0; N];
        self.fill(&mut buffer, what)?;
        Ok(buffer)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, ModelError> {
        self.bytes(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, ModelError> {
        self.bytes(what).map(u64::from_le_bytes)
    }

    /// A number of entries, each of at least `least` bytes.
    pub(super) fn entries(&mut self, what: &str, least: u64) -> Result<u64, ModelError> {
        let count = self.u64(what)?;
        if count > MAX_ENTRIES {
            return Err(self.malformed(what, format!("at most {MAX_ENTRIES}"), count));
        }
        self.need(count * least, what)?;
        Ok(count)
    }

    pub(super) fn text(&mut self, what: &str) -> Result<String, ModelError> {
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

    pub(super) fn value(&mut self, kind: u32, depth: u32, key: &str) -> Result<Value, ModelError> {
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
    pub(super) fn tensor(&mut self, name: &str, alignment: u64) -> Result<TensorEntry, ModelError> {
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
