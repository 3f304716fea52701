//! What the tensors of each family are called in a Hugging Face folder.
//!
//! Not shapes and not storage: one table of names, so that a further family is a further entry.

use crate::model::config::Architecture;

/// A family of models as `config.json` and the safetensors name it.
pub(super) struct Family {
    /// In `architectures`.
    pub(super) class: &'static str,
    /// What is computed.
    pub(super) architecture: Architecture,
    /// Whether `sliding_window` says how far a position sees; else it means nothing unless `use_sliding_window` does.
    pub(super) windowed: bool,
    /// Our name of a tensor's stem (without `.weight` or `.bias`) and the folder's; layer `N`'s stand behind `blk.N.`
    /// in ours and behind `model.layers.N.` in the folder's.
    outer: &'static [(&'static str, &'static str)],
    layer: &'static [(&'static str, &'static str)],
}

const OUTER: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
];

const LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The families that can be opened.
pub(super) const FAMILIES: [Family; 4] = [
    family("Qwen2ForCausalLM", Architecture::Qwen2),
    family("Qwen3ForCausalLM", Architecture::Qwen3),
    family("LlamaForCausalLM", Architecture::Llama),
    Family {
        windowed: true,
        ..family("MistralForCausalLM", Architecture::Llama)
    },
];

/// A family whose tensors have the usual names.
const fn family(class: &'static str, architecture: Architecture) -> Family {
    Family {
        class,
        architecture,
        windowed: false,
        outer: OUTER,
        layer: LAYER,
    }
}

impl Family {
    /// The family of this name.
    pub(super) fn find(class: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.class == class)
    }

    /// That of an architecture.
    pub(super) fn of(architecture: Architecture) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.architecture == architecture)
    }

    /// The folder's stem and suffix (`weight`, `bias`) for one of our names.
    pub(super) fn theirs<'a>(&self, ours: &'a str) -> Option<(String, &'a str)> {
        let (stem, suffix) = ours.rsplit_once('.')?;
        let find = |table: &[(&str, &'static str)], stem: &str| {
            table
                .iter()
                .find(|(ours, _)| *ours == stem)
                .map(|(_, theirs)| *theirs)
        };
        let theirs = match stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            None => find(self.outer, stem)?.to_owned(),
            Some((layer, stem)) => format!("model.layers.{layer}.{}", find(self.layer, stem)?),
        };
        Some((theirs, suffix))
    }
}
