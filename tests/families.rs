//! Families that are an entry of a table: Qwen3 and Mistral folders of seeded weights give the logits that candle's own
//! models give in float32.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{mistral, qwen3};
use serde_json::{Value, json};
use veriharness::backend::candle::{CandleBackend, Products};
use veriharness::backend::cpu::{Arithmetic, CpuBackend, Options};
use veriharness::backend::{BLOCK, Backend, BlockId, Step};
use veriharness::model::config::Architecture;
use veriharness::model::{Model, ModelError};
use veriharness::rng;

const HIDDEN: usize = 96;
const FEED_FORWARD: usize = 160;
const VOCAB: usize = 512;
/// Not `HIDDEN` by the number of heads: these families say the width of a head.
const HEAD: usize = 32;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const LAYERS: usize = 2;

fn config(class: &str, more: &Value) -> Value {
    let mut config = json!({
        "architectures": [class], "model_type": "any", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": LAYERS, "head_dim": HEAD, "max_position_embeddings": 4096, "max_window_layers": LAYERS,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "vocab_size": VOCAB, "bos_token_id": 480, "eos_token_id": 482,
        "tie_word_embeddings": false,
    });
    let more = more.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(more);
    config
}

/// Seeded weights under the names of the hub.
fn weights(head_norms: bool) -> HashMap<String, Tensor> {
    let mut tensors = HashMap::new();
    let mut add = |name: String, shape: &[usize]| {
        let stream = tensors.len() as u64;
        let norm = shape.len() == 1;
        let number = |i: usize| {
            let x = rng::unit(11, stream, i as u64) - 0.5;
            if norm { 1.0 + 0.5 * x } else { 0.25 * x }
        };
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|i| number(i) as f32).collect();
        tensors.insert(name, Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap());
    };
    add("model.embed_tokens.weight".into(), &[VOCAB, HIDDEN]);
    add("model.norm.weight".into(), &[HIDDEN]);
    add("lm_head.weight".into(), &[VOCAB, HIDDEN]);
    for layer in 0..LAYERS {
        let mut add = |name: &str, shape: &[usize]| add(format!("model.layers.{layer}.{name}.weight"), shape);
        add("input_layernorm", &[HIDDEN]);
        add("post_attention_layernorm", &[HIDDEN]);
        add("self_attn.q_proj", &[HEADS * HEAD, HIDDEN]);
        add("self_attn.k_proj", &[KV_HEADS * HEAD, HIDDEN]);
        add("self_attn.v_proj", &[KV_HEADS * HEAD, HIDDEN]);
        add("self_attn.o_proj", &[HIDDEN, HEADS * HEAD]);
        add("mlp.gate_proj", &[FEED_FORWARD, HIDDEN]);
        add("mlp.up_proj", &[FEED_FORWARD, HIDDEN]);
        add("mlp.down_proj", &[HIDDEN, FEED_FORWARD]);
        if head_norms {
            add("self_attn.q_norm", &[HEAD]);
            add("self_attn.k_norm", &[HEAD]);
        }
    }
    tensors
}

/// A folder with a tokenizer of the tiny checkpoints.
fn folder(config: &Value, weights: &HashMap<String, Tensor>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny/qwen2-untied-fp16");
    for file in [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    ] {
        std::fs::copy(tiny.join(file), dir.path().join(file)).unwrap();
    }
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    candle_core::safetensors::save(weights, dir.path().join("model.safetensors")).unwrap();
    dir
}

/// Logits `(VOCAB,)` behind the last of `tokens`, computed in two steps.
fn logits(backend: &mut dyn Backend, tokens: &[u32]) -> Vec<f32> {
    backend.reserve(tokens.len().div_ceil(BLOCK)).unwrap();
    let blocks: Vec<BlockId> = (0..tokens.len().div_ceil(BLOCK) as u32).map(BlockId).collect();
    let (first, second) = tokens.split_at(BLOCK);
    let mut step = |tokens, start, logits| {
        let step = Step {
            tokens,
            start,
            blocks: &blocks,
            logits,
        };
        backend.forward(&[step]).unwrap().remove(0)
    };
    step(first, 0, 0);
    step(second, BLOCK, 1)
}

fn agree(folder: &Path, architecture: Architecture, tokens: &[u32], reference: &[f32]) {
    let model = Model::open(folder).unwrap();
    assert_eq!(model.config.architecture, architecture);
    let exact = Options {
        arithmetic: Arithmetic::Exact,
        ..Options::default()
    };
    let backends: [(&str, Box<dyn Backend>); 2] = [
        ("cpu", Box::new(CpuBackend::load(&model, exact).unwrap())),
        (
            "candle",
            Box::new(CandleBackend::load(&model, Products::Float32).unwrap()),
        ),
    ];
    for (name, mut backend) in backends {
        let found = logits(&mut *backend, tokens);
        let pairs = found.iter().zip(reference);
        let most = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert_eq!(found.len(), reference.len());
        assert!(most < 1e-3, "{name}: {most}");
    }
    let spread = reference.iter().copied().fold(f32::MIN, f32::max)
        - reference.iter().copied().fold(f32::MAX, f32::min);
    assert!(spread > 1.0, "the logits say something: {spread}");
}

fn tokens() -> Vec<u32> {
    (0..50).map(|i| (i * 37 + 5) % 470).collect()
}

#[test]
fn qwen3_normalises_the_heads_of_query_and_key() {
    let more = json!({ "attention_bias": false, "sliding_window": null, "use_sliding_window": false });
    let (config, weights) = (config("Qwen3ForCausalLM", &more), weights(true));
    let vars = VarBuilder::from_tensors(weights.clone(), DType::F32, &Device::Cpu);
    let known: qwen3::Config = serde_json::from_value(config.clone()).unwrap();
    let mut reference = qwen3::ModelForCausalLM::new(&known, vars).unwrap();
    let input = Tensor::new(tokens(), &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let expected = reference.forward(&input, 0).unwrap().flatten_all().unwrap();
    let folder = folder(&config, &weights);
    agree(
        folder.path(),
        Architecture::Qwen3,
        &tokens(),
        &expected.to_vec1().unwrap(),
    );
}

#[test]
fn mistral_is_llama_within_its_window() {
    let more = json!({ "sliding_window": 1024 });
    let (config, weights) = (config("MistralForCausalLM", &more), weights(false));
    let vars = VarBuilder::from_tensors(weights.clone(), DType::F32, &Device::Cpu);
    let known: mistral::Config = serde_json::from_value(config.clone()).unwrap();
    let mut reference = mistral::Model::new(&known, vars).unwrap();
    let input = Tensor::new(tokens(), &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let expected = reference.forward(&input, 0).unwrap().flatten_all().unwrap();
    let folder = folder(&config, &weights);
    agree(
        folder.path(),
        Architecture::Llama,
        &tokens(),
        &expected.to_vec1().unwrap(),
    );
    // A sequence does not outgrow what a position sees.
    assert_eq!(Model::open(folder.path()).unwrap().config.context, 1024);
}

#[test]
fn what_a_family_does_not_have_is_refused() {
    let biased = config("Qwen3ForCausalLM", &json!({ "attention_bias": true }));
    let refused = |config: &Value, head_norms| -> ModelError {
        Model::open(folder(config, &weights(head_norms)).path()).unwrap_err()
    };
    let said = refused(&biased, true).to_string();
    assert!(
        said.contains("attention_bias: this program handles false, found true"),
        "{said}"
    );
    let said = refused(&config("Qwen3ForCausalLM", &json!({})), false).to_string();
    assert!(said.contains("self_attn.q_norm"), "{said}");
    let none = config("MistralForCausalLM", &json!({ "sliding_window": 0 }));
    let said = refused(&none, false).to_string();
    assert!(
        said.contains("sliding_window: this program handles 1 to"),
        "{said}"
    );
}
