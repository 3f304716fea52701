//! A model folder with 4-bit weights, written as AutoAWQ writes its own: the inverse of opening one.
//!
//! Not the rounding: numbers are given. Tensors go to the file one by one, in a fixed order, so that the same model gives
//! the same bytes and no more than a tensor is in memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use half::f16;
use serde_json::{Map, Value, json};

use super::names::Family;
use super::{CONFIG, GENERATION, TEMPLATE, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS, inside};
use crate::model::config::Config;
use crate::model::json::{Json, read};
use crate::model::weights::Awq;
use crate::model::{Model, ModelError};

/// The small files of a folder: those of the model's own folder, or made from what a GGUF file says.
///
/// # Errors
/// A file is unreadable, or the model has rotary frequencies that `config.json` has no words for.
pub fn write_small_files(model: &Model, folder: &Path, group: usize) -> Result<(), ModelError> {
    let mut config = match model.path.is_dir() {
        true => {
            for name in [GENERATION, TOKENIZER, TOKENIZER_CONFIG, TEMPLATE] {
                let from = inside(&model.path, name)?;
                if from.exists() {
                    write(&folder.join(name), &read(&from, super::MAX_TOKENIZER)?)?;
                }
            }
            let json = Json::open(&inside(&model.path, CONFIG)?, super::MAX_SMALL)?;
            json.entries().clone()
        }
        false => {
            let (bos, eos) = model.template.tokens();
            let tokens = json!({
                "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": eos,
                "chat_template": model.template.source(),
            });
            let generation = json!({ "eos_token_id": model.eos() });
            write_json(&folder.join(TOKENIZER), &model.tokenizer.to_json())?;
            write_json(&folder.join(TOKENIZER_CONFIG), &tokens)?;
            write_json(&folder.join(GENERATION), &generation)?;
            described(model)?
        }
    };
    config.insert("torch_dtype".into(), json!("float16"));
    let quantised = json!({
        "quant_method": "awq", "version": "gemm", "bits": 4, "group_size": group, "zero_point": true,
        "modules_to_not_convert": null,
    });
    config.insert("quantization_config".into(), quantised);
    write_json(&folder.join(CONFIG), &Value::Object(config))
}

/// `config.json` of a model that has none.
fn described(model: &Model) -> Result<Map<String, Value>, ModelError> {
    let config = &model.config;
    if config.rope_factors.iter().any(|factor| *factor != 1.0) {
        return Err(ModelError::Unsupported {
            file: model.path.clone(),
            place: "tensor rope_freqs.weight".into(),
            expected: "plain rotary frequencies, since config.json says no others number by number".into(),
            found: "scaled ones".into(),
        });
    }
    let class = Family::of(config.architecture).map(|family| family.class);
    let described = json!({
        "architectures": [class], "model_type": config.architecture.name(), "hidden_act": "silu",
        "hidden_size": config.hidden, "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim,
        "max_position_embeddings": config.context, "rms_norm_eps": config.rms_eps, "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tied, "vocab_size": config.vocab, "eos_token_id": model.eos(),
        "use_sliding_window": false,
    });
    Ok(described.as_object().cloned().unwrap_or_default())
}

/// Whether a tensor of ours is the weight of a layer that AWQ quantises.
pub fn is_quantised(name: &str) -> bool {
    let linears = [
        "attn_q",
        "attn_k",
        "attn_v",
        "attn_output",
        "ffn_gate",
        "ffn_up",
        "ffn_down",
    ];
    let stem = name
        .strip_suffix(".weight")
        .and_then(|stem| stem.rsplit('.').next());
    name.starts_with("blk.") && stem.is_some_and(|stem| linears.contains(&stem))
}

/// Whether every layer that AWQ quantises fits its layout, in groups of `group`.
///
/// # Errors
/// The first that does not; `file` is what is to be blamed.
pub fn fits(config: &Config, group: usize, file: &Path) -> Result<(), ModelError> {
    for (name, shape) in config.shapes() {
        if let [rows, cols] = shape[..]
            && is_quantised(&name)
            && !(rows.is_multiple_of(8) && cols.is_multiple_of(group))
        {
            return Err(ModelError::Unsupported {
                file: file.into(),
                place: format!("tensor {name}"),
                expected: format!("a multiple of 8 outputs, and of {group} inputs"),
                found: format!("{rows} outputs, {cols} inputs"),
            });
        }
    }
    Ok(())
}

/// The weights file, while it is written.
pub struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    /// Bytes of data so far, and how many the header promises.
    written: u64,
    promised: u64,
}

impl Writer {
    /// Writes the header for the tensors of `config`, in the order of [`Config::shapes`].
    ///
    /// # Errors
    /// The file cannot be written, or a layer's shape does not fit the layout.
    pub fn create(folder: &Path, config: &Config, group: usize) -> Result<Self, ModelError> {
        let path = folder.join(WEIGHTS);
        fits(config, group, &path)?;
        let mut header = Map::new();
        header.insert("__metadata__".into(), json!({ "format": "pt" }));
        let mut end = 0;
        for (ours, shape) in config.shapes() {
            let family = Family::of(config.architecture);
            let theirs = family.and_then(|family| family.theirs(&ours));
            let (stem, suffix) = theirs.ok_or_else(|| ModelError::NoTensor { name: ours.clone() })?;
            let mut add = |suffix: &str, dtype: &str, shape: &[usize]| {
                let size = if dtype == "I32" { 4 } else { 2 };
                let start = end;
                end += (shape.iter().product::<usize>() * size) as u64;
                let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] });
                header.insert(format!("{stem}.{suffix}"), entry);
            };
            match shape[..] {
                [rows, cols] if is_quantised(&ours) => {
                    add("qweight", "I32", &[cols, rows / 8]);
                    add("qzeros", "I32", &[cols / group, rows / 8]);
                    add("scales", "F16", &[cols / group, rows]);
                }
                _ => add(suffix, "F16", &shape),
            }
        }
        let mut text = Value::Object(header).to_string();
        while !text.len().is_multiple_of(8) {
            text.push(' ');
        }
        let file = File::create(&path).map_err(ModelError::io("create", &path))?;
        let mut writer = Self {
            file: BufWriter::new(file),
            path,
            written: 0,
            promised: end,
        };
        writer.put(&(text.len() as u64).to_le_bytes())?;
        writer.put(text.as_bytes())?;
        writer.written = 0;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        self.written += bytes.len() as u64;
        self.file
            .write_all(bytes)
            .map_err(ModelError::io("write", &self.path))
    }

    /// Writes the next tensor, as float16.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn half(&mut self, numbers: &[f32]) -> Result<(), ModelError> {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|x| f16::from_f32(*x).to_le_bytes())
            .collect();
        self.put(&bytes)
    }

    /// Writes the next three tensors, those of a quantised layer.
    ///
    /// # Errors
    /// As above.
    pub fn awq(&mut self, awq: &Awq) -> Result<(), ModelError> {
        for words in [&awq.qweight, &awq.qzeros] {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.put(&bytes)?;
        }
        let bytes: Vec<u8> = awq.scales.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        self.put(&bytes)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// As above; or not all tensors were written.
    pub fn finish(mut self) -> Result<(), ModelError> {
        if self.written != self.promised {
            return Err(ModelError::Malformed {
                file: self.path,
                place: "the data".into(),
                expected: format!("{} bytes", self.promised),
                found: self.written.to_string(),
            });
        }
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(ModelError::io("write", &self.path))
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    std::fs::write(path, bytes).map_err(ModelError::io("write", path))
}

fn write_json(path: &Path, value: &Value) -> Result<(), ModelError> {
    write(path, format!("{value:#}\n").as_bytes())
}
