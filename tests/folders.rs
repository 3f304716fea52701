//! A Hugging Face folder opens as what it is: configuration, weights in fp16 and AWQ, tokenizer, chat template. Compared
//! with what transformers made of the six tiny checkpoints.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use veriharness::backend::candle::{CandleBackend, Products};
use veriharness::backend::cpu::{CpuBackend, Options};
use veriharness::backend::{BLOCK, Backend, BlockId, Step};
use veriharness::engine::local::{Limits, LocalEngine};
use veriharness::engine::{self, Engine, Request, Sampling};
use veriharness::model::chat::Message;
use veriharness::model::config::Architecture;
use veriharness::model::fetch::Silent;
use veriharness::model::gguf::Gguf;
use veriharness::model::tokenizer::Tokenizer;
use veriharness::model::weights::{BlockType, Storage, Stored};
use veriharness::model::{Model, ModelError, obtain_exact};

const NAMES: [&str; 6] = [
    "qwen2-tied-fp16",
    "qwen2-tied-awq",
    "qwen2-untied-fp16",
    "qwen2-untied-awq",
    "llama3-fp16",
    "llama3-awq",
];

#[derive(Deserialize)]
struct Reference {
    chat_messages: Vec<Message>,
    chat_text: String,
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    name: String,
    ids: Vec<u32>,
    last_logits: Vec<f32>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("models/tiny")
        .join(name)
}

fn open(name: &str) -> Model {
    Model::open(&folder(name)).unwrap()
}

/// A copy of a folder to change.
fn copy(name: &str) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder(name)).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, to.path().join(from.file_name().unwrap())).unwrap();
    }
    to
}

fn replace(folder: &Path, file: &str, from: &str, to: &str) {
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has no {from:?}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn configurations_are_those_of_the_files() {
    for name in NAMES {
        let model = open(name);
        let (config, llama) = (&model.config, name.starts_with("llama3"));
        assert_eq!((config.vocab, config.layers, config.heads), (512, 2, 4), "{name}");
        assert_eq!((config.kv_heads, config.feed_forward), (2, 384), "{name}");
        assert_eq!(config.tied, name.contains("-tied"), "{name}");
        let expected = match llama {
            true => (Architecture::Llama, 512, 128, 131_072, 500_000.0, 1e-5),
            false => (Architecture::Qwen2, 256, 64, 32_768, 1e6, 1e-6),
        };
        let found = (
            config.architecture,
            config.hidden,
            config.head_dim,
            config.context,
            config.rope_theta,
            config.rms_eps,
        );
        assert_eq!(found, expected, "{name}");
        assert_eq!(config.rope_factors.len(), config.head_dim / 2);
        assert_eq!(config.rope_factors.iter().all(|&x| x == 1.0), !llama, "{name}");
        assert_eq!(
            model.eos(),
            if llama { &[481, 484][..] } else { &[480, 482] },
            "{name}"
        );
        assert_eq!(model.title, name);
    }
}

#[test]
fn llama_3_frequencies_follow_the_published_rule() {
    let factors = open("llama3-fp16").config.rope_factors;
    // By hand, for theta 500000, width 128, factors 8, 1, 4 and a context of 8192: wavelengths are
    // 2 pi 500000^(pair / 64), so 2048 is passed after pair 28 and 8192 after pair 34.
    for (pair, &factor) in factors.iter().enumerate() {
        let wavelength = std::f64::consts::TAU * 500_000f64.powf(pair as f64 / 64.0);
        match pair {
            0..=28 => assert_eq!(factor, 1.0, "{pair}"),
            35..64 => assert_eq!(factor, 8.0, "{pair}"),
            _ => {
                let smooth = (8192.0 / wavelength - 1.0) / 3.0;
                let kept = (1.0 - smooth) / 8.0 + smooth;
                assert!((f64::from(factor) * kept - 1.0).abs() < 1e-6, "{pair}: {factor}");
                assert!((1.0..8.0).contains(&factor));
            }
        }
    }
}

#[test]
fn chat_text_and_ids_are_those_of_transformers() {
    for name in NAMES {
        let model = open(name);
        let text = std::fs::read_to_string(folder(name).join("reference.json")).unwrap();
        let reference: Reference = serde_json::from_str(&text).unwrap();
        let encoded = model.encode_chat(&reference.chat_messages).unwrap();
        assert_eq!(encoded.text, reference.chat_text, "{name}");
        let chat = reference
            .prompts
            .iter()
            .find(|prompt| prompt.name == "chat")
            .unwrap();
        assert_eq!(encoded.tokens, chat.ids, "{name}");
        assert_eq!(
            model.tokenizer.decode_all(&chat.ids),
            reference.chat_text,
            "{name}"
        );
    }
}

/// Which tensor is which shows only here: `gate` and `up` have one shape, and rotary scaling moves only long prompts.
#[test]
fn logits_are_those_of_transformers() {
    for name in NAMES {
        let text = std::fs::read_to_string(folder(name).join("reference.json")).unwrap();
        let reference: Reference = serde_json::from_str(&text).unwrap();
        let mut backend = CandleBackend::load(&open(name), Products::Float32).unwrap();
        let mut worst = 0f32;
        for prompt in &reference.prompts {
            let blocks: Vec<BlockId> = (0u32..)
                .map(BlockId)
                .take(prompt.ids.len().div_ceil(BLOCK))
                .collect();
            backend.reserve(blocks.len()).unwrap();
            let step = Step {
                tokens: &prompt.ids,
                start: 0,
                blocks: &blocks,
                logits: 1,
            };
            let logits = backend.forward(&[step]).unwrap().remove(0);
            assert_eq!(logits.len(), prompt.last_logits.len());
            let differences = logits.iter().zip(&prompt.last_logits).map(|(a, b)| (a - b).abs());
            let largest = differences.fold(0.0, f32::max);
            assert!(largest <= 5e-4, "{name}: {}: {largest}", prompt.name);
            worst = worst.max(largest);
        }
        println!("{name}: largest difference of a logit {worst}");
    }
}

/// A real vocabulary, taken from a GGUF file and written as the hub's folders have it: ids with no token left out, merges
/// as texts, empty affixes.
#[test]
fn a_real_vocabulary_gives_the_same_ids_from_either_format() {
    let path = obtain_exact("qwen2.5-coder-0.5b", &mut Silent).unwrap().path;
    let (gguf, model) = (Gguf::open(&path).unwrap(), Model::open(&path).unwrap());
    let list = |key: &str| gguf.list(&format!("tokenizer.ggml.{key}")).unwrap().unwrap();
    let (mut vocab, mut added) = (serde_json::Map::new(), Vec::new());
    for (id, (text, kind)) in list("tokens").iter().zip(list("token_type")).enumerate() {
        let text = text.as_text().unwrap();
        match kind.as_count().unwrap() {
            1 => drop(vocab.insert(text.into(), json!(id))),
            kind @ (3 | 4) => added.push(json!({"id": id, "content": text, "special": kind == 3})),
            _ => (),
        }
    }
    let merges: Vec<&str> = list("merges")
        .iter()
        .map(|merge| merge.as_text().unwrap())
        .collect();
    let mut file: Value =
        serde_json::from_slice(&std::fs::read(folder(NAMES[0]).join("tokenizer.json")).unwrap()).unwrap();
    let affix = json!({"continuing_subword_prefix": "", "end_of_word_suffix": ""});
    file["model"]
        .as_object_mut()
        .unwrap()
        .extend(affix.as_object().unwrap().clone());
    file["model"]["vocab"] = vocab.into();
    file["model"]["merges"] = json!(merges);
    file["added_tokens"] = json!(added);
    file["normalizer"] = json!({"type": "NFC"});
    let bytes = file.to_string().into_bytes();
    let ends = vec![("test".into(), model.eos()[0])];
    let tokenizer = Tokenizer::from_json(Path::new("t"), &bytes, model.config.vocab, ends).unwrap();
    assert_eq!(tokenizer.eos(), model.eos());
    assert_eq!(tokenizer.control(), model.tokenizer.control());
    let readme = include_str!("../README.md");
    for text in [
        readme,
        "don't 12345 <|im_end|> <tool_call> né e\u{301} 日本 🙂\r\n\t x",
        "",
    ] {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(ids, model.tokenizer.encode(text).unwrap());
        assert_eq!(tokenizer.decode_all(&ids), model.tokenizer.decode_all(&ids));
    }
}

#[test]
fn text_never_becomes_a_special_token() {
    for name in ["qwen2-tied-fp16", "llama3-fp16"] {
        let model = open(name);
        for (text, id) in model.tokenizer.control() {
            let ids = model.tokenizer.encode(text).unwrap();
            assert!(ids.len() > 1 && !ids.contains(id), "{name}: {text}: {ids:?}");
            assert_eq!(model.decode(&ids), *text);
            let encoded = model.encode_chat(&[Message::user(text.as_str())]).unwrap();
            let plain = model.encode_chat(&[Message::user("x")]).unwrap();
            let count = |tokens: &[u32]| tokens.iter().filter(|token| *token == id).count();
            assert_eq!(count(&encoded.tokens), count(&plain.tokens), "{name}: {text}");
        }
        assert_eq!(model.decode(&[511, 500]), "", "ids without a token say nothing");
    }
}

#[test]
fn awq_weights_are_their_twins_within_half_a_step() {
    for family in ["qwen2-tied", "qwen2-untied", "llama3"] {
        let (fp16, awq) = (open(&format!("{family}-fp16")), open(&format!("{family}-awq")));
        let mut packed = 0;
        let names: Vec<&str> = fp16.weights.entries().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            awq.weights.entries().map(|(name, _)| name).collect::<Vec<_>>()
        );
        for name in names {
            let (plain, stored) = (fp16.weights.read(name).unwrap(), awq.weights.read(name).unwrap());
            assert_eq!(plain.shape(), stored.shape(), "{family}: {name}");
            let Stored::Awq(quantised) = &stored else {
                assert_eq!(plain, stored, "{family}: {name}");
                continue;
            };
            packed += 1;
            assert_eq!(
                awq.weights.get(name).unwrap().storage,
                Storage::Awq { group: 128 }
            );
            assert_eq!(
                fp16.weights.get(name).unwrap().storage,
                Storage::Blocks(BlockType::F16)
            );
            let (rows, cols) = stored.shape();
            let (a, b) = (plain.decode().unwrap(), stored.decode().unwrap());
            assert_eq!((a.len(), b.len()), (rows * cols, rows * cols));
            for row in 0..rows {
                for col in 0..cols {
                    let bits = quantised.scale(row, col / 128);
                    let step = half::f16::from_bits(bits).to_f32();
                    let (x, y) = (a[row * cols + col], b[row * cols + col]);
                    // The scale is rounded to float16, which at 15 steps can cost a 1/64 of a step more.
                    assert!(
                        (x - y).abs() <= step * (0.5 + 1.0 / 64.0),
                        "{family}: {name} ({row}, {col}): {x}, {y}, step {step}"
                    );
                }
            }
        }
        assert_eq!(packed, 14, "{family}");
    }
}

#[test]
fn a_folder_is_known_by_the_hash_of_its_files() {
    let (a, b) = (open("qwen2-untied-awq"), open("qwen2-untied-fp16"));
    assert_ne!(a.sha256, b.sha256);
    let copied = copy("qwen2-untied-awq");
    assert_eq!(Model::open(copied.path()).unwrap().sha256, a.sha256);
    std::fs::write(copied.path().join("README.md"), "of no matter").unwrap();
    assert_eq!(Model::open(copied.path()).unwrap().sha256, a.sha256);
    replace(copied.path(), "generation_config.json", "false", "true");
    assert_ne!(Model::open(copied.path()).unwrap().sha256, a.sha256);
}

#[test]
fn templates_come_from_their_file_or_by_name_and_see_special_tokens() {
    let folder = copy("llama3-fp16");
    let at = |text: &str| {
        std::fs::write(folder.path().join("tokenizer_config.json"), text).unwrap();
        Model::open(folder.path())?.template.render(&[Message::user("u")])
    };
    let listed = r#"{"bos_token": {"content": "<b>"}, "eos_token": "<e>", "chat_template": [
        {"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ bos_token }}|{{ eos_token }}"}]}"#;
    assert_eq!(at(listed).unwrap(), "<b>|<e>");
    let undefined = r#"{"bos_token": null, "chat_template": "{{ bos_token }}{{ bos_token is defined }}"}"#;
    assert_eq!(at(undefined).unwrap().to_lowercase(), "false");
    let none = at("{}").unwrap_err();
    assert!(
        none.to_string().contains("a chat template: chat_template.jinja"),
        "{none}"
    );
    std::fs::write(folder.path().join("chat_template.jinja"), "{{ eos_token }}own").unwrap();
    assert_eq!(at(listed).unwrap(), "<e>own");
}

#[test]
fn the_hub_s_own_cache_opens_through_its_links() {
    let home = tempfile::tempdir().unwrap();
    let (blobs, snapshot) = (home.path().join("blobs"), home.path().join("snapshots/abc"));
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::create_dir_all(&snapshot).unwrap();
    for entry in std::fs::read_dir(folder("llama3-awq")).unwrap() {
        let from = entry.unwrap().path();
        let name = from.file_name().unwrap();
        std::fs::copy(&from, blobs.join(name)).unwrap();
        let link = Path::new("../../blobs").join(name);
        std::os::unix::fs::symlink(link, snapshot.join(name)).unwrap();
    }
    assert_eq!(Model::open(&snapshot).unwrap().sha256, open("llama3-awq").sha256);
    std::fs::rename(home.path().join("snapshots"), home.path().join("other")).unwrap();
    let error = Model::open(&home.path().join("other/abc")).unwrap_err();
    assert!(matches!(error, ModelError::Malformed { .. }), "{error}");
    assert!(error.to_string().contains("a link to"), "{error}");
}

#[test]
fn a_weight_that_is_no_number_ends_the_row_in_words() {
    for tensor in ["model.norm.weight", "model.layers.0.mlp.down_proj.weight"] {
        let folder = copy("qwen2-tied-fp16");
        let file = folder.path().join("model.safetensors");
        let mut bytes = std::fs::read(&file).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let table: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
        let at = 8 + header + table[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
        bytes[at..at + 2].copy_from_slice(&0x7e00u16.to_le_bytes());
        std::fs::write(&file, bytes).unwrap();
        let model = Model::open(folder.path()).unwrap();
        let backend = Box::new(CpuBackend::load(&model, Options::default()).unwrap());
        let mut engine = LocalEngine::new("tiny".into(), model, backend, Limits::default()).unwrap();
        engine.submit(Request {
            row: "row".into(),
            call: 1,
            seed: 0,
            prompt: engine::Prompt {
                text: String::new(),
                tokens: vec![5; 40],
            },
            sampling: Sampling::default(),
        });
        let error = engine.step().remove(0).result.unwrap_err().to_string();
        assert_eq!(error, "non-finite logits: 512 of 512 at position 40", "{tensor}");
    }
}
