//! No model file, however broken or malicious, makes the program panic, hang or allocate beyond the file's size.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::io::Write;
use std::path::Path;

use proptest::prelude::*;
use veriharness::model::gguf::{Gguf, Header};
use veriharness::model::{Model, ModelError};

/// Writes GGUF headers field by field.
#[derive(Clone, Default)]
struct Maker {
    keys: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: usize,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Maker {
    fn key(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.keys
            .push([&text(key), kind.to_le_bytes().as_slice(), value].concat());
        self
    }

    fn count(self, key: &str, value: u32) -> Self {
        self.key(key, 4, &value.to_le_bytes())
    }

    fn number(self, key: &str, value: f32) -> Self {
        self.key(key, 6, &value.to_le_bytes())
    }

    fn text(self, key: &str, value: &str) -> Self {
        self.key(key, 8, &text(value))
    }

    fn texts(self, key: &str, values: &[String]) -> Self {
        let items: Vec<u8> = values.iter().flat_map(|value| text(value)).collect();
        let head = [
            8u32.to_le_bytes().as_slice(),
            &(values.len() as u64).to_le_bytes(),
        ]
        .concat();
        self.key(key, 9, &[head, items].concat())
    }

    fn counts(self, key: &str, values: &[u32]) -> Self {
        let items: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let head = [
            4u32.to_le_bytes().as_slice(),
            &(values.len() as u64).to_le_bytes(),
        ]
        .concat();
        self.key(key, 9, &[head, items].concat())
    }

    /// A tensor of shape `dims`, fastest dimension first as in the file.
    fn tensor(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let dims_bytes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        let rank = (dims.len() as u32).to_le_bytes();
        let tail = [kind.to_le_bytes().as_slice(), &offset.to_le_bytes()].concat();
        self.tensors
            .push([text(name), rank.to_vec(), dims_bytes, tail].concat());
        self
    }

    fn f32s(mut self, name: &str, dims: &[u64]) -> Self {
        let offset = self.data as u64;
        self.data += (dims.iter().product::<u64>() as usize * 4).next_multiple_of(32);
        self.tensor(name, dims, 0, offset)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        out.extend(self.keys.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(32) + self.data, 0);
        out
    }
}

/// A whole model of one layer: all 256 bytes as tokens, two merges, two control tokens.
fn tiny(architecture: &str, template: &str) -> Maker {
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut shifted = 256..;
    let mut tokens: Vec<String> = (0..256)
        .map(|byte| {
            if printable(byte) {
                byte
            } else {
                shifted.next().unwrap()
            }
        })
        .map(|code| char::from_u32(code).unwrap().to_string())
        .collect();
    tokens.extend(["ab", "abc", "<|im_start|>", "<|im_end|>"].map(str::to_owned));
    let mut types = vec![1; 258];
    types.extend([3, 3]);
    let (vocab, hidden, kv, wide) = (260, 8, 4, 16);
    let mut maker = Maker::default()
        .text("general.architecture", architecture)
        .count(&format!("{architecture}.block_count"), 1)
        .count(&format!("{architecture}.context_length"), 64)
        .count(&format!("{architecture}.embedding_length"), hidden as u32)
        .count(&format!("{architecture}.feed_forward_length"), wide as u32)
        .count(&format!("{architecture}.attention.head_count"), 2)
        .count(&format!("{architecture}.attention.head_count_kv"), 1)
        .number(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5)
        .number(&format!("{architecture}.rope.freq_base"), 10_000.0)
        .text("tokenizer.ggml.model", "gpt2")
        .text(
            "tokenizer.ggml.pre",
            if architecture == "llama" {
                "llama-bpe"
            } else {
                "qwen2"
            },
        )
        .texts("tokenizer.ggml.tokens", &tokens)
        .counts("tokenizer.ggml.token_type", &types)
        .texts("tokenizer.ggml.merges", &["a b".to_owned(), "ab c".to_owned()])
        .count("tokenizer.ggml.eos_token_id", 259)
        .text("tokenizer.chat_template", template)
        .f32s("token_embd.weight", &[hidden, vocab])
        .f32s("output_norm.weight", &[hidden]);
    for (name, dims) in [
        ("attn_norm.weight", vec![hidden]),
        ("attn_q.weight", vec![hidden, hidden]),
        ("attn_k.weight", vec![hidden, kv]),
        ("attn_v.weight", vec![hidden, kv]),
        ("attn_q.bias", vec![hidden]),
        ("attn_k.bias", vec![kv]),
        ("attn_v.bias", vec![kv]),
        ("attn_output.weight", vec![hidden, hidden]),
        ("ffn_norm.weight", vec![hidden]),
        ("ffn_gate.weight", vec![hidden, wide]),
        ("ffn_up.weight", vec![hidden, wide]),
        ("ffn_down.weight", vec![wide, hidden]),
    ] {
        maker = maker.f32s(&format!("blk.0.{name}"), &dims);
    }
    maker
}

const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\
                      {% endfor %}{{ '<|im_start|>assistant\\n' }}";

fn parse(bytes: &[u8]) -> Result<Header, ModelError> {
    Header::parse(bytes, bytes.len() as u64, Path::new("test.gguf"))
}

fn open(bytes: &[u8]) -> Result<Model, ModelError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Model::open(file.path())
}

/// The error of a file that must be refused.
fn refusal(bytes: &[u8]) -> String {
    match open(bytes) {
        Ok(_) => panic!("was accepted"),
        Err(error) => error.to_string(),
    }
}

/// Replaces the value of a metadata key.
fn with(architecture: &str, key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    let mut maker = tiny(architecture, CHATML);
    maker.keys.retain(|entry| !entry.starts_with(&text(key)));
    maker.key(key, kind, value).bytes()
}

#[test]
fn the_tiny_models_are_good() {
    for architecture in ["qwen2", "llama"] {
        let model = open(&tiny(architecture, CHATML).bytes()).unwrap();
        assert_eq!(model.tokenizer.encode("abc").unwrap(), [257]);
        assert_eq!(model.eos(), [259]);
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = tiny("qwen2", CHATML).bytes();
    for length in 0..bytes.len() {
        assert!(
            parse(&bytes[..length]).is_err(),
            "{length} bytes of {} were accepted",
            bytes.len()
        );
    }
}

#[test]
fn headers_that_lie_are_refused_in_words() {
    let good = tiny("qwen2", CHATML).bytes();
    let patched = |at: usize, patch: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + patch.len()].copy_from_slice(patch);
        bytes
    };
    let huge = u64::MAX.to_le_bytes();
    for (bytes, expected) in [
        (Vec::new(), "magic"),
        (patched(0, b"GGML"), "magic GGUF"),
        (patched(4, &1u32.to_le_bytes()), "version 2 or 3"),
        (patched(4, &3u32.to_be_bytes()), "version 2 or 3"),
        (patched(8, &huge), "tensor count"),
        (patched(8, &60_000u64.to_le_bytes()), "more bytes"),
        (patched(16, &huge), "metadata count"),
        (patched(24, &huge), "a string of at most"),
        (
            Maker::default()
                .key("k", 9, &[[8, 0, 0, 0].as_slice(), &huge].concat())
                .bytes(),
            "array elements",
        ),
        (
            Maker::default()
                .key(
                    "k",
                    9,
                    &[[0, 0, 0, 0].as_slice(), &1_000_000u64.to_le_bytes()].concat(),
                )
                .bytes(),
            "more bytes",
        ),
        (Maker::default().key("k", 13, &[]).bytes(), "a value type"),
        (Maker::default().key("k", 7, &[2]).bytes(), "a bool"),
        (
            Maker::default()
                .key("k", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff])
                .bytes(),
            "UTF-8",
        ),
        (
            Maker::default().count("k", 1).count("k", 2).bytes(),
            "each key once",
        ),
        (
            Maker::default().count("general.alignment", 0).bytes(),
            "power of two",
        ),
        (
            Maker::default().count("general.alignment", 48).bytes(),
            "power of two",
        ),
        (Maker::default().tensor("t", &[], 0, 0).bytes(), "dimensions"),
        (Maker::default().tensor("t", &[1; 5], 0, 0).bytes(), "dimensions"),
        (Maker::default().tensor("t", &[0], 0, 0).bytes(), "numbers"),
        (
            Maker::default().tensor("t", &[1 << 40, 1 << 40], 0, 0).bytes(),
            "numbers",
        ),
        (
            Maker::default().tensor("t", &[1 << 30], 0, 0).bytes(),
            "bytes inside the file",
        ),
        (
            Maker::default().tensor("t", &[8], 0, u64::MAX - 31).bytes(),
            "bytes inside the file",
        ),
        (
            Maker::default().tensor("t", &[8], 0, 7).bytes(),
            "a multiple of 32",
        ),
        (
            Maker::default().tensor("t", &[100], 12, 0).bytes(),
            "a multiple of 256",
        ),
        (
            Maker::default().tensor("t", &[256], 99, 0).bytes(),
            "tensor type 99",
        ),
        (
            Maker::default().f32s("t", &[1]).f32s("t", &[1]).bytes(),
            "each name once",
        ),
    ] {
        let said = parse(&bytes).map(|_| ()).unwrap_err().to_string();
        assert!(
            said.contains(expected) && said.contains("test.gguf"),
            "{expected:?} is not in {said:?}"
        );
    }
}

#[test]
fn arrays_nested_without_end_do_not_overflow_the_stack() {
    let nested: Vec<u8> = [9u32.to_le_bytes().as_slice(), &1u64.to_le_bytes()]
        .concat()
        .repeat(10_000);
    let said = parse(&Maker::default().key("k", 9, &nested).bytes())
        .unwrap_err()
        .to_string();
    assert!(said.contains("nested"), "{said}");
}

#[test]
fn models_that_make_no_sense_are_refused_in_words() {
    let count = |value: u32| value.to_le_bytes().to_vec();
    let number = |value: f32| value.to_le_bytes().to_vec();
    for (key, kind, value, expected) in [
        ("general.architecture", 8, text("mamba"), "qwen2, qwen3, llama"),
        ("general.architecture", 4, count(1), "a string"),
        ("qwen2.block_count", 4, count(0), "1 to"),
        ("qwen2.block_count", 4, count(2), "tensor blk.1"),
        ("qwen2.block_count", 4, count(u32::MAX), "1 to"),
        ("qwen2.embedding_length", 4, count(9), "a divisor of the width 9"),
        ("qwen2.attention.head_count", 4, count(0), "1 to"),
        ("qwen2.attention.head_count", 4, count(8), "an even number"),
        (
            "qwen2.attention.head_count_kv",
            4,
            count(0),
            "a divisor of the 2 heads",
        ),
        (
            "qwen2.attention.layer_norm_rms_epsilon",
            6,
            number(f32::NAN),
            "a finite number",
        ),
        ("qwen2.rope.freq_base", 6, number(-1.0), "a positive number"),
        ("qwen2.rope.scaling.type", 8, text("yarn"), "no scaling"),
        ("qwen2.rope.dimension_count", 4, count(2), "the width of a head"),
        ("qwen2.expert_count", 4, count(8), "dense models"),
        ("qwen2.feed_forward_length", 4, count(17), "shape"),
        ("tokenizer.ggml.model", 8, text("llama"), "gpt2"),
        ("tokenizer.ggml.pre", 8, text("default"), "pre-tokenizer"),
        ("tokenizer.ggml.eos_token_id", 4, count(260), "an id under 260"),
        ("tokenizer.chat_template", 8, text("{% for"), "chat template"),
    ] {
        let said = refusal(&with("qwen2", key, kind, &value));
        assert!(said.contains(expected), "{key}: {expected:?} is not in {said:?}");
    }
    for (key, values, expected) in [
        ("tokenizer.ggml.merges", vec!["a".to_owned()], "merge 0"),
        ("tokenizer.ggml.merges", vec!["a é".to_owned()], "merge 0"),
        ("tokenizer.ggml.merges", vec!["abc abc".to_owned()], "merge 0"),
        (
            "tokenizer.ggml.merges",
            vec!["<|im_ start|>".to_owned()],
            "merge 0",
        ),
        (
            "tokenizer.ggml.tokens",
            vec!["a".to_owned(); 260],
            "a text of its own",
        ),
    ] {
        let mut maker = tiny("qwen2", CHATML);
        maker.keys.retain(|entry| !entry.starts_with(&text(key)));
        let said = refusal(&maker.texts(key, &values).bytes());
        assert!(said.contains(expected), "{key}: {expected:?} is not in {said:?}");
    }
}

#[test]
fn a_template_without_end_is_stopped() {
    let loops = "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}";
    let model = open(&tiny("llama", loops).bytes()).unwrap();
    let error = model.encode_chat(&[]).unwrap_err();
    assert!(matches!(error, ModelError::Template { .. }), "{error}");
    let raises = open(&tiny("llama", "{{ raise_exception('no system') }}").bytes()).unwrap();
    let said = raises.encode_chat(&[]).unwrap_err().to_string();
    assert!(said.contains("no system"), "{said}");
}

#[test]
fn things_that_are_no_files_are_errors() {
    for path in ["/", "/dev/null", "/no/such/file.gguf"] {
        assert!(Gguf::open(Path::new(path)).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((0usize..4000, any::<u8>()), 1..6)) {
        let mut bytes = tiny("qwen2", CHATML).bytes();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if parse(&bytes).is_ok() {
            let _ = open(&bytes);
        }
    }

    #[test]
    fn garbage_never_panics(tail in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&tail);
        let _ = parse(&[b"GGUF\x03\0\0\0".as_slice(), &tail].concat());
    }
}
