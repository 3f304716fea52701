//! Numbers of `config.json` that are absent, absurd, of another type, or not those of the weights.
//!
//! Not files that are no JSON at all (`hostile_folders.rs`).

use super::*;

#[test]
fn configurations_that_make_no_sense_are_refused_in_words() {
    for (model, key, value, expected) in [
        (
            AWQ,
            "architectures",
            json!(["MambaForCausalLM"]),
            "Qwen2ForCausalLM, Qwen3ForCausalLM",
        ),
        (AWQ, "architectures", json!([]), "a list of one name"),
        (
            AWQ,
            "architectures",
            json!("Qwen2ForCausalLM"),
            "a list of one name",
        ),
        (AWQ, "architectures", Value::Null, "no such key"),
        (AWQ, "hidden_size", json!(0), "1 to 65536"),
        (AWQ, "hidden_size", json!(-1), "a non-negative integer"),
        (AWQ, "hidden_size", json!(256.5), "a non-negative integer"),
        (AWQ, "hidden_size", json!("256"), "a non-negative integer"),
        (AWQ, "hidden_size", json!(u64::MAX), "1 to 65536"),
        (AWQ, "hidden_size", Value::Null, "no such key"),
        (AWQ, "hidden_size", json!(258), "a divisor of the width 258"),
        (AWQ, "hidden_size", json!(512), "shape [512, 512]"),
        (AWQ, "num_attention_heads", json!(3), "a divisor of the 3 heads"),
        (AWQ, "num_attention_heads", json!(256), "an even width"),
        (AWQ, "num_key_value_heads", json!(0), "a divisor of the 4 heads"),
        (AWQ, "num_key_value_heads", json!(4), "shape"),
        (AWQ, "num_key_value_heads", Value::Null, "shape"),
        (AWQ, "head_dim", json!(63), "an even width"),
        (AWQ, "head_dim", json!(1 << 20), "an even width"),
        (AWQ, "head_dim", json!(32), "shape"),
        (AWQ, "intermediate_size", json!(1u64 << 40), "1 to"),
        (AWQ, "intermediate_size", json!(380), "inputs by 128s"),
        (AWQ, "num_hidden_layers", json!(1025), "1 to 1024"),
        (
            AWQ,
            "num_hidden_layers",
            json!(3),
            "tensor model.layers.2.input_layernorm.weight",
        ),
        (AWQ, "max_position_embeddings", json!(0), "1 to"),
        (
            AWQ,
            "max_position_embeddings",
            json!([]),
            "a non-negative integer",
        ),
        (AWQ, "rope_theta", json!(0), "a positive number"),
        (AWQ, "rope_theta", json!(-1.5), "a positive number"),
        (AWQ, "rope_theta", json!(1e300), "a positive number"),
        (AWQ, "rope_theta", json!("1e6"), "a number"),
        (AWQ, "rms_norm_eps", json!(1e-300), "a positive number"),
        (AWQ, "rms_norm_eps", Value::Null, "no such key"),
        (AWQ, "tie_word_embeddings", json!("yes"), "true or false"),
        (AWQ, "tie_word_embeddings", json!(false), "tensor lm_head.weight"),
        (AWQ, "vocab_size", json!(1u64 << 32), "1 to"),
        (AWQ, "vocab_size", json!(511), "shape [511, 256]"),
        (AWQ, "vocab_size", json!(400), "the rows of the embedding table"),
        (AWQ, "hidden_act", json!("gelu"), "silu"),
        (AWQ, "use_sliding_window", json!(true), "use_sliding_window"),
        (AWQ, "eos_token_id", json!("<|im_end|>"), "token ids"),
        (AWQ, "eos_token_id", json!([1, -1]), "token ids"),
        (AWQ, "eos_token_id", json!(483), "an id under 483"),
        (AWQ, "eos_token_id", json!(1u64 << 40), "token ids"),
        (
            AWQ,
            "rope_scaling",
            json!({"type": "yarn", "factor": 4.0}),
            "default and llama3",
        ),
        (
            AWQ,
            "rope_scaling",
            json!({"factor": 4.0}),
            "key rope_scaling.type",
        ),
        (AWQ, "rope_scaling", json!([]), "an object"),
        (
            AWQ,
            "quantization_config",
            json!({"quant_method": "gptq", "bits": 4}),
            "awq",
        ),
        (AWQ, "quantization_config", json!([1]), "an object"),
        (AWQ, "quantization_config", Value::Null, "q_proj.weight"),
        (LLAMA, "attention_bias", json!(true), "attention_bias"),
        (LLAMA, "mlp_bias", json!(true), "mlp_bias"),
        (LLAMA, "mlp_bias", json!(1), "true or false"),
    ] {
        let folder = copy(model);
        change(folder.path(), "config.json", |config| config[key] = value.clone());
        let said = refusal(folder.path());
        assert!(
            said.contains(expected),
            "{key} {value}: {expected:?} is not in {said:?}"
        );
    }
    for (model, outer, key, value, expected) in [
        (AWQ, "quantization_config", "bits", json!(8), "4"),
        (AWQ, "quantization_config", "version", json!("gemv"), "gemm"),
        (AWQ, "quantization_config", "zero_point", json!(false), "true"),
        (
            AWQ,
            "quantization_config",
            "group_size",
            json!(-1),
            "a non-negative integer",
        ),
        (
            AWQ,
            "quantization_config",
            "group_size",
            json!(16),
            "32, 64 and 128",
        ),
        (AWQ, "quantization_config", "group_size", json!(64), "qzeros"),
        (LLAMA, "rope_scaling", "factor", json!(0), "a positive number"),
        (LLAMA, "rope_scaling", "factor", Value::Null, "no such key"),
        (
            LLAMA,
            "rope_scaling",
            "low_freq_factor",
            json!(4.0),
            "more than low_freq_factor",
        ),
        (LLAMA, "rope_scaling", "high_freq_factor", json!("4"), "a number"),
        (
            LLAMA,
            "rope_scaling",
            "original_max_position_embeddings",
            json!(-8192),
            "a positive number",
        ),
        (
            LLAMA,
            "rope_scaling",
            "rope_type",
            json!("linear"),
            "default and llama3",
        ),
    ] {
        let folder = copy(model);
        change(folder.path(), "config.json", |config| {
            config[outer][key] = value.clone()
        });
        let said = refusal(folder.path());
        assert!(
            said.contains(expected),
            "{key} {value}: {expected:?} is not in {said:?}"
        );
    }
}
