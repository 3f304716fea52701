//! The header of a safetensors file, from bytes that nobody vouches for.
//!
//! Not a validator of models: it only promises that the tensors fill the file, each byte in exactly one of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::TensorEntry;
use crate::model::ModelError;
use crate::model::json::{brief, parse};

/// Most bytes of a header. Those of the largest models have some hundred thousands.
const MAX_HEADER: u64 = 1 << 24;
/// Most bytes of a tensor's name.
const MAX_NAME: usize = 1 << 10;
/// Most dimensions of a tensor.
const MAX_RANK: usize = 8;
/// Most numbers in a tensor.
const MAX_NUMBERS: usize = 1 << 40;
/// The key that is no tensor.
const METADATA: &str = "__metadata__";

/// How a number is stored, in a whole number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the format's own
pub enum Dtype {
    F32,
    F16,
    Bf16,
    I32,
    /// Known by name and size only.
    Other {
        name: &'static str,
        bytes: usize,
    },
}

impl Dtype {
    /// The type of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        const OTHERS: [(&str, usize); 11] = [
            ("BOOL", 1),
            ("U8", 1),
            ("I8", 1),
            ("F8_E4M3", 1),
            ("F8_E5M2", 1),
            ("I16", 2),
            ("U16", 2),
            ("U32", 4),
            ("I64", 8),
            ("U64", 8),
            ("F64", 8),
        ];
        Some(match name {
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            "I32" => Self::I32,
            _ => {
                let (name, bytes) = OTHERS.into_iter().find(|(other, _)| *other == name)?;
                Self::Other { name, bytes }
            }
        })
    }

    /// The format's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::I32 => "I32",
            Self::Other { name, .. } => name,
        }
    }

    /// Bytes per number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Other { bytes, .. } => bytes,
        }
    }
}

/// The parsed header.
#[derive(Debug)]
pub struct Header {
    /// Tensors by name; together they cover the bytes after the header exactly once.
    pub tensors: BTreeMap<String, TensorEntry>,
}

impl Header {
    /// Reads a header from `source`, the beginning of a file of `length` bytes; `file` is for messages only.
    ///
    /// # Errors
    /// Anything malformed, truncated or out of bounds; a type of unknown size.
    pub fn parse(mut source: impl Read, length: u64, file: &Path) -> Result<Self, ModelError> {
        let malformed = |place: &str, expected: String, found: String| ModelError::Malformed {
            file: file.into(),
            place: brief(place),
            expected,
            found,
        };
        if length < 8 {
            let expected = "8 bytes, the header's length".into();
            return Err(malformed("byte 0", expected, format!("{length} bytes")));
        }
        let mut eight = [0; 8];
        source
            .read_exact(&mut eight)
            .map_err(ModelError::io("read", file))?;
        let size = u64::from_le_bytes(eight);
        let most = MAX_HEADER.min(length - 8);
        if size > most {
            let expected = format!("a header of at most {most} bytes in a file of {length}");
            return Err(malformed("byte 0", expected, size.to_string()));
        }
        let mut bytes = vec![0; size as usize];
        source
            .read_exact(&mut bytes)
            .map_err(ModelError::io("read", file))?;
        let Rows(rows) = parse(file, &bytes)?;
        let data = 8 + size;
        let mut tensors = BTreeMap::new();
        let mut ranges: Vec<(u64, u64, String)> = Vec::with_capacity(rows.len());
        for (name, row) in rows {
            let place = format!("tensor {name}");
            let Some(dtype) = Dtype::from_name(&row.dtype) else {
                return Err(ModelError::Unsupported {
                    file: file.into(),
                    place: brief(&place),
                    expected: "numbers of one of the types BOOL, U8 to F64, F16 and BF16".into(),
                    found: brief(&format!("{:?}", row.dtype)),
                });
            };
            let shape: Option<Vec<usize>> = row
                .shape
                .iter()
                .map(|&dimension| usize::try_from(dimension).ok())
                .collect();
            let numbers = shape.as_ref().and_then(|shape| {
                shape.iter().try_fold(1usize, |product, &dimension| {
                    product
                        .checked_mul(dimension)
                        .filter(|numbers| (1..=MAX_NUMBERS).contains(numbers))
                })
            });
            let (Some(shape), Some(numbers)) = (shape, numbers.filter(|_| row.shape.len() <= MAX_RANK))
            else {
                let expected = format!("1 to {MAX_NUMBERS} numbers in at most {MAX_RANK} dimensions");
                return Err(malformed(&place, expected, brief(&format!("{:?}", row.shape))));
            };
            let bytes = numbers * dtype.bytes();
            let (begin, end) = row.data_offsets;
            if end.checked_sub(begin) != Some(bytes as u64) {
                let expected = format!("{bytes} bytes for shape {shape:?} of {}", dtype.name());
                return Err(malformed(&place, expected, format!("offsets {begin} to {end}")));
            }
            // No overflow: whether the offset lies inside the file is checked below, before anyone uses it.
            let start = data.saturating_add(begin);
            let entry = TensorEntry {
                shape,
                dtype,
                start,
                bytes,
            };
            ranges.push((begin, end, name.clone()));
            tensors.insert(name, entry);
        }
        ranges.sort();
        let mut covered = 0;
        for (begin, end, name) in ranges {
            if begin != covered {
                let expected = format!("offset {covered}, where the tensor before ends");
                return Err(malformed(&format!("tensor {name}"), expected, begin.to_string()));
            }
            covered = end;
        }
        if covered != length - data {
            let expected = format!("tensors of {} bytes, the rest of the file", length - data);
            return Err(malformed("header", expected, format!("{covered} bytes")));
        }
        Ok(Self { tensors })
    }
}

/// A tensor as the header states it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// All of them, each name once. Written out because a map type would silently keep the last of two.
struct Rows(BTreeMap<String, Row>);

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RowsVisitor)
    }
}

struct RowsVisitor;

impl<'de> Visitor<'de> for RowsVisitor {
    type Value = Rows;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rows, A::Error> {
        let mut rows = BTreeMap::new();
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            if name.len() > MAX_NAME {
                return Err(de::Error::custom(format!(
                    "a name of {} bytes, more than {MAX_NAME}",
                    name.len()
                )));
            }
            let twice = match name == METADATA {
                true => metadata
                    .replace(map.next_value::<BTreeMap<String, String>>()?)
                    .is_some(),
                false => rows.insert(name.clone(), map.next_value()?).is_some(),
            };
            if twice {
                return Err(de::Error::custom(format!("the name {name:?} twice")));
            }
        }
        Ok(Rows(rows))
    }
}
