//! No model folder, however broken or malicious, makes the program panic, hang, read outside it or load what it does
//! not compute: each is refused with the file, the place, what was expected and what was found.
//!
//! `VERIHARNESS_FUZZ_CASES` sets how many random changes each property tries.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

#[path = "hostile_folders/configs.rs"]
mod configs;
#[path = "hostile_folders/shards.rs"]
mod shards;
#[path = "hostile_folders/tokenizers.rs"]
mod tokenizers;

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use veriharness::model::chat::Message;
use veriharness::model::{Model, ModelError, resolve_in};

const AWQ: &str = "qwen2-tied-awq";
const SHARDED: &str = "qwen2-untied-awq";
const LLAMA: &str = "llama3-awq";
const INDEX: &str = "model.safetensors.index.json";

/// A copy of a tiny checkpoint to change.
fn copy(name: &str) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("models/tiny")
        .join(name);
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        if !from.ends_with("reference.json") {
            std::fs::copy(&from, to.path().join(from.file_name().unwrap())).unwrap();
        }
    }
    to
}

/// Changes a JSON file.
fn change(folder: &Path, file: &str, how: impl FnOnce(&mut Value)) {
    let path = folder.join(file);
    let mut value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    how(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

/// Changes the header of a safetensors file.
fn change_header(folder: &Path, file: &str, how: impl FnOnce(&mut Value)) {
    let path = folder.join(file);
    let bytes = std::fs::read(&path).unwrap();
    let (size, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(size.try_into().unwrap()) as usize);
    let mut value = serde_json::from_slice(header).unwrap();
    how(&mut value);
    let header = value.to_string();
    let size = (header.len() as u64).to_le_bytes();
    std::fs::write(path, [&size, header.as_bytes(), data].concat()).unwrap();
}

/// The error of a folder that must be refused; it names a file of it.
fn refusal(folder: &Path) -> String {
    match Model::open(folder) {
        Ok(_) => panic!("was accepted"),
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains(&folder.display().to_string()), "{said}");
            assert!(said.len() < 1000, "{} bytes of error", said.len());
            said
        }
    }
}

fn refuses(folder: &Path, expected: &[&str]) {
    let said = refusal(folder);
    for part in expected {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

#[test]
fn files_that_are_no_json_or_too_large_or_no_files_are_refused() {
    for file in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        let nested = format!("{{\"a\":{}", "[".repeat(100_000));
        for text in ["", "{", "[]", "null", "{}}", "\u{feff}{}", nested.as_str()] {
            let folder = copy(AWQ);
            std::fs::write(folder.path().join(file), text).unwrap();
            refuses(folder.path(), &[file]);
        }
        let folder = copy(AWQ);
        let large = std::fs::File::create(folder.path().join(file)).unwrap();
        large.set_len(1 << 30).unwrap();
        refuses(folder.path(), &[file, "at most", "1073741824"]);
        let folder = copy(AWQ);
        std::fs::remove_file(folder.path().join(file)).unwrap();
        let pipe = std::process::Command::new("mkfifo")
            .arg(folder.path().join(file))
            .status();
        assert!(pipe.unwrap().success());
        refuses(folder.path(), &[file, "a regular file"]);
    }
    let folder = copy(AWQ);
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    refuses(folder.path(), &["the weights", "neither"]);
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    refuses(folder.path(), &["config.json", "none"]);
    let folder = copy(AWQ);
    std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    refuses(folder.path(), &["cannot open", "tokenizer.json"]);
}

#[test]
fn tensors_that_are_missing_or_others_are_refused() {
    let q = "model.layers.1.self_attn.q_proj";
    type How = Box<dyn Fn(&mut Value)>;
    let moved = |from: &str, to: &str| -> How {
        let (from, to) = (from.to_owned(), to.to_owned());
        Box::new(move |header| {
            let entry = header.as_object_mut().unwrap().shift_remove(&from).unwrap();
            header[&to] = entry;
        })
    };
    let set = |name: &str, key: &'static str, value: Value| -> How {
        let name = name.to_owned();
        Box::new(move |header| header[&name][key] = value.clone())
    };
    let of = |suffix: &str| format!("{q}.{suffix}");
    let cases: [(How, &[&str]); 11] = [
        (
            moved(&of("qweight"), "x"),
            &["q_proj.weight", "none of that name"],
        ),
        (moved(&of("qzeros"), "x"), &["q_proj.qzeros", "none of that name"]),
        (moved(&of("scales"), "x"), &["q_proj.scales", "none of that name"]),
        (moved(&of("bias"), "x"), &["q_proj.bias", "none of that name"]),
        (moved("model.norm.weight", "x"), &["model.norm.weight"]),
        (
            moved("model.layers.1.mlp.down_proj.scales", &of("weight")),
            &["one of .weight and .qweight", "both"],
        ),
        (
            set(&of("qweight"), "shape", json!([32, 256])),
            &["q_proj.qweight", "shape [256, 32]", "shape [32, 256]"],
        ),
        (
            set(&of("qweight"), "dtype", json!("F32")),
            &["q_proj.qweight", "I32", "F32"],
        ),
        (
            set(&of("scales"), "dtype", json!("BF16")),
            &["q_proj.scales", "F16", "BF16"],
        ),
        (
            set(&of("bias"), "dtype", json!("I16")),
            &["q_proj.bias", "F32, F16 or BF16", "I16"],
        ),
        (
            set(&of("bias"), "shape", json!([1, 256])),
            &["q_proj.bias", "shape [256]"],
        ),
    ];
    for (how, expected) in cases {
        let folder = copy(AWQ);
        change_header(folder.path(), "model.safetensors", how);
        refuses(folder.path(), &[&["model.safetensors"], expected].concat());
    }
}

#[test]
fn paths_without_a_model_say_what_was_expected() {
    let home = tempfile::tempdir().unwrap();
    let cache = veriharness::model::cache::Cache::at(home.path().join("cache"));
    let folder = copy(AWQ);
    let at = |path: &Path| resolve_in(&format!("{}", path.display()), &cache);
    let located = at(folder.path()).unwrap();
    assert_eq!((located.path.as_path(), located.lock), (folder.path(), None));
    for (path, expected) in [
        (home.path().to_owned(), "a folder without config.json"),
        (folder.path().join("model.safetensors"), "one file of a folder"),
        (folder.path().join("config.json"), "one file of a folder"),
        ("/dev/null".into(), "neither a file nor a folder"),
    ] {
        let error = at(&path).unwrap_err();
        assert!(matches!(error, ModelError::NotAModel { .. }), "{error}");
        let said = error.to_string();
        assert!(
            said.contains(expected) && said.contains("a GGUF file, or a folder"),
            "{said}"
        );
    }
    let renamed = home.path().join("weights.bin");
    std::fs::write(&renamed, "GGUF").unwrap();
    assert_eq!(at(&renamed).unwrap().path, renamed);
    std::fs::write(&renamed, "GGU").unwrap();
    assert!(at(&renamed).unwrap_err().to_string().contains("another format"));
    assert!(matches!(
        at(&home.path().join("none")),
        Err(ModelError::Io { .. })
    ));
}

fn cases(default: u32) -> ProptestConfig {
    let asked = std::env::var("VERIHARNESS_FUZZ_CASES").ok();
    ProptestConfig {
        cases: asked.and_then(|text| text.parse().ok()).unwrap_or(default),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// What may stand in a JSON file where something else stood.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0u64..600).prop_map(Value::from),
        "[ -~]{0,6}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[0], {"a": 1}])),
    ]
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn changed_files_never_panic(
        llama in any::<bool>(),
        file in prop::sample::select(vec![
            "config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", INDEX,
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let folder = copy(if file == INDEX { SHARDED } else if llama { LLAMA } else { AWQ });
        let path = folder.path().join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        std::fs::write(&path, bytes).unwrap();
        if let Ok(model) = Model::open(folder.path()) {
            let _ = model.encode_chat(&[Message::user("don't <|im_end|> 123 é")]);
        }
    }

    #[test]
    fn odd_values_never_panic(llama in any::<bool>(), key in any::<prop::sample::Index>(), value in odd()) {
        let folder = copy(if llama { LLAMA } else { AWQ });
        change(folder.path(), "config.json", |config| {
            let keys: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
            config[&keys[key.index(keys.len())]] = value;
        });
        if let Ok(model) = Model::open(folder.path()) {
            for (name, _) in model.weights.entries() {
                let stored = model.weights.read(name).unwrap();
                let (rows, cols) = stored.shape();
                prop_assert_eq!(stored.decode().unwrap().len(), rows * cols);
            }
        }
    }
}
