//! The tensors of a Hugging Face folder: which file holds each, under which names, in which storage.
//!
//! Not arithmetic and not names of families (that is `names`). What the computation does not read is not looked at,
//! but every file is wholly well formed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::names::Family;
use super::{INDEX, WEIGHTS, inside};
use crate::model::ModelError;
use crate::model::config::Config;
use crate::model::json::{brief, parse, read};
use crate::model::manifest::is_plain;
use crate::model::safetensors::{Dtype, Safetensors, TensorEntry};
use crate::model::weights::{Awq, BlockType, Entry, Storage, Stored};

/// Most bytes of an index. Those of the largest models have some hundred thousands.
const MAX_INDEX: u64 = 1 << 24;
/// Most files that hold weights; the largest models have two hundred.
const MAX_SHARDS: usize = 512;

/// Where one of our tensors lies: the file, by its place in `files`, and the name there.
type Place = (usize, String);

#[derive(Debug)]
enum Places {
    Plain(BlockType, Place),
    /// `qweight`, `qzeros`, `scales`.
    Awq(usize, [Place; 3]),
}

/// The tensors of a folder by our names.
#[derive(Debug)]
pub struct Tensors {
    files: Vec<Safetensors>,
    places: BTreeMap<String, (Vec<usize>, Places)>,
}

/// The part of an index that matters.
#[derive(serde::Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Tensors {
    /// Opens the files and checks that every tensor of the computation is there in its shape. `group` is AWQ's group
    /// size if the folder says that its linear layers are so stored.
    ///
    /// # Errors
    /// A file is missing, malformed or outside the folder; a tensor is missing, twice there, or of another shape or
    /// type.
    pub(super) fn open(folder: &Path, config: &Config, group: Option<usize>) -> Result<Self, ModelError> {
        let all = Files::open(folder)?;
        let family = Family::of(config.architecture);
        let mut places = BTreeMap::new();
        for (ours, shape) in config.shapes() {
            let theirs = family.and_then(|family| family.theirs(&ours));
            let (stem, suffix) = theirs.ok_or_else(|| all.missing(&ours))?;
            let name = format!("{stem}.{suffix}");
            let packed = format!("{stem}.qweight");
            let found = match (all.find(&name), group, shape.as_slice()) {
                (None, Some(group), [rows, cols]) if suffix == "weight" && all.find(&packed).is_some() => {
                    Places::Awq(group, all.awq(&stem, *rows, *cols, group)?)
                }
                (None, ..) => return Err(all.missing(&name)),
                (Some(_), Some(_), _) if suffix == "weight" && all.find(&packed).is_some() => {
                    return Err(all.wrong(&packed, "one of .weight and .qweight", "both"));
                }
                (Some((file, entry)), ..) => {
                    let block = match entry.dtype {
                        Dtype::F32 => BlockType::F32,
                        Dtype::F16 => BlockType::F16,
                        Dtype::Bf16 => BlockType::Bf16,
                        other => return Err(all.wrong(&name, "F32, F16 or BF16", other.name())),
                    };
                    all.shaped(&name, entry, &shape)?;
                    Places::Plain(block, (file, name))
                }
            };
            places.insert(ours, (shape, found));
        }
        Ok(Self {
            files: all.files,
            places,
        })
    }

    /// What is known of each tensor, by our names.
    pub fn entries(&self) -> BTreeMap<String, Entry> {
        let bytes = |(file, name): &Place| {
            let entry = self.files.get(*file).and_then(|file| file.tensors().get(name));
            entry.map_or(0, |entry| entry.bytes as u64)
        };
        let entry = |(name, (shape, places)): (&String, &(Vec<usize>, Places))| {
            let (storage, bytes) = match places {
                Places::Plain(block, place) => (Storage::Blocks(*block), bytes(place)),
                Places::Awq(group, places) => {
                    (Storage::Awq { group: *group }, places.iter().map(bytes).sum())
                }
            };
            let entry = Entry {
                shape: shape.clone(),
                storage,
                bytes,
            };
            (name.clone(), entry)
        };
        self.places.iter().map(entry).collect()
    }

    /// Reads a tensor; none if there is none of that name.
    ///
    /// # Errors
    /// Its file became unreadable or shorter.
    pub fn read(&self, name: &str) -> Result<Option<Stored>, ModelError> {
        let Some((shape, places)) = self.places.get(name) else {
            return Ok(None);
        };
        let cols = shape.last().copied().unwrap_or(1);
        let rows = shape.iter().product::<usize>() / cols;
        let bytes = |(file, name): &Place| self.files[*file].read(name);
        Ok(Some(match places {
            Places::Plain(block, place) => Stored::Blocks {
                block: *block,
                rows,
                cols,
                bytes: bytes(place)?,
            },
            Places::Awq(group, [qweight, qzeros, scales]) => Stored::Awq(Awq {
                rows,
                cols,
                group: *group,
                qweight: words(&bytes(qweight)?),
                qzeros: words(&bytes(qzeros)?),
                scales: bytes(scales)?
                    .chunks_exact(2)
                    .map(|two| u16::from_le_bytes([two[0], two[1]]))
                    .collect(),
            }),
        }))
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
        .collect()
}

/// The open files of a folder, and which of them holds each tensor by the folder's names.
struct Files {
    /// What names the tensors: the index, or the only file.
    source: PathBuf,
    files: Vec<Safetensors>,
    holder: BTreeMap<String, usize>,
}

impl Files {
    fn open(folder: &Path) -> Result<Self, ModelError> {
        let (single, source) = (folder.join(WEIGHTS), folder.join(INDEX));
        if single.exists() {
            let file = Safetensors::open(&inside(folder, WEIGHTS)?)?;
            return Ok(Self {
                source: single,
                holder: file.tensors().keys().map(|name| (name.clone(), 0)).collect(),
                files: vec![file],
            });
        }
        let map = weight_map(folder)?;
        let names: Vec<&String> = map.values().collect::<BTreeSet<_>>().into_iter().collect();
        let bad = |place: String, expected: String, found: &str| ModelError::Malformed {
            file: source.clone(),
            place: brief(&place),
            expected,
            found: found.into(),
        };
        let mut files = Vec::new();
        for name in &names {
            if !folder.join(name).exists() {
                let place = "weight_map".to_owned();
                return Err(bad(
                    place,
                    format!("a file {} beside it", brief(name)),
                    "no such file",
                ));
            }
            files.push(Safetensors::open(&inside(folder, name)?)?);
        }
        let mut holder = BTreeMap::new();
        for (name, file) in &map {
            // The names are sorted, and this is one of them.
            let at = names.binary_search(&file).unwrap_or(0);
            if !files[at].tensors().contains_key(name) {
                let place = format!("weight_map of {name}");
                return Err(bad(place, format!("a tensor of this name in {file}"), "none"));
            }
            holder.insert(name.clone(), at);
        }
        Ok(Self {
            source,
            files,
            holder,
        })
    }

    fn find(&self, name: &str) -> Option<(usize, &TensorEntry)> {
        let file = *self.holder.get(name)?;
        Some((file, self.files[file].tensors().get(name)?))
    }

    /// The three tensors of a quantised layer of `rows` outputs and `cols` inputs.
    fn awq(&self, stem: &str, rows: usize, cols: usize, group: usize) -> Result<[Place; 3], ModelError> {
        if !rows.is_multiple_of(8) || !cols.is_multiple_of(group) {
            let expected = format!("outputs by 8s and inputs by {group}s");
            let found = format!("{rows} outputs and {cols} inputs");
            return Err(self.wrong(&format!("{stem}.qweight"), &expected, &found));
        }
        let place = |suffix: &str, shape: [usize; 2], dtype: Dtype| {
            let name = format!("{stem}.{suffix}");
            let (file, entry) = self.find(&name).ok_or_else(|| self.missing(&name))?;
            if entry.dtype != dtype {
                return Err(self.wrong(&name, dtype.name(), entry.dtype.name()));
            }
            self.shaped(&name, entry, &shape)?;
            Ok((file, name))
        };
        Ok([
            place("qweight", [cols, rows / 8], Dtype::I32)?,
            place("qzeros", [cols / group, rows / 8], Dtype::I32)?,
            place("scales", [cols / group, rows], Dtype::F16)?,
        ])
    }

    fn shaped(&self, name: &str, entry: &TensorEntry, shape: &[usize]) -> Result<(), ModelError> {
        match entry.shape == shape {
            true => Ok(()),
            false => Err(self.wrong(
                name,
                &format!("shape {shape:?}"),
                &format!("shape {:?}", entry.shape),
            )),
        }
    }

    fn missing(&self, name: &str) -> ModelError {
        self.wrong(name, "such a tensor", "none of that name")
    }

    fn wrong(&self, name: &str, expected: &str, found: &str) -> ModelError {
        let file = self.find(name).map(|(file, _)| self.files[file].path());
        ModelError::Malformed {
            file: file.unwrap_or(&self.source).into(),
            place: format!("tensor {name}"),
            expected: expected.into(),
            found: found.into(),
        }
    }
}

/// The index of a folder: tensor to file, each a plain file name.
///
/// # Errors
/// There is none, it is malformed, names too many files, or a file elsewhere.
pub(super) fn weight_map(folder: &Path) -> Result<BTreeMap<String, String>, ModelError> {
    let file = folder.join(INDEX);
    let bad = |expected: String, found: String| ModelError::Malformed {
        file: file.clone(),
        place: "weight_map".into(),
        expected,
        found,
    };
    if !file.exists() {
        return Err(ModelError::Malformed {
            file: folder.into(),
            place: "the folder".into(),
            expected: format!("the weights, {WEIGHTS} or {INDEX}"),
            found: "neither".into(),
        });
    }
    let Index { weight_map } = parse(&file, &read(&inside(folder, INDEX)?, MAX_INDEX)?)?;
    for name in weight_map.values() {
        if !is_plain(name) || !name.ends_with(".safetensors") {
            let expected = "plain names of .safetensors files in the folder".into();
            return Err(bad(expected, brief(&format!("{name:?}"))));
        }
    }
    let count = weight_map.values().collect::<BTreeSet<_>>().len();
    match (1..=MAX_SHARDS).contains(&count) {
        true => Ok(weight_map),
        false => Err(bad(format!("1 to {MAX_SHARDS} files"), count.to_string())),
    }
}
