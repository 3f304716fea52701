//! Scales of a layer's inputs, and how they go into its tensors so that what is computed stays the same.
//!
//! Not how they are chosen (`search`).

use super::search::scaled;
use crate::backend::cpu::Site;
use crate::model::config::Config;

/// Scales of a layer's inputs by site; none leaves them alone.
#[derive(Default)]
pub struct Scales {
    /// Of query, key and value.
    pub attention: Option<Vec<f32>>,
    /// Of attention's output layer.
    pub attention_output: Option<Vec<f32>>,
    /// Of gate and up.
    pub feed_forward: Option<Vec<f32>>,
    /// Of down.
    pub down: Option<Vec<f32>>,
}

/// The site of a weight's inputs.
pub fn site(tensor: &str) -> Option<Site> {
    match tensor {
        "attn_q.weight" | "attn_k.weight" | "attn_v.weight" => Some(Site::Attention),
        "attn_output.weight" => Some(Site::AttentionOutput),
        "ffn_gate.weight" | "ffn_up.weight" => Some(Site::FeedForward),
        "ffn_down.weight" => Some(Site::Down),
        _ => None,
    }
}

impl Scales {
    /// Those of a site.
    pub fn of(&self, site: Site) -> Option<&[f32]> {
        match site {
            Site::Attention => self.attention.as_deref(),
            Site::AttentionOutput => self.attention_output.as_deref(),
            Site::FeedForward => self.feed_forward.as_deref(),
            Site::Down => self.down.as_deref(),
        }
    }

    /// A tensor of the layer with the scales in it: inputs multiplied, and what makes them divided. A norm makes those of
    /// attention and feed-forward; values make those of attention's output, each for all heads that share it; up makes
    /// those of down, for gate's share of them is not linear.
    pub fn apply(&self, config: &Config, tensor: &str, mut numbers: Vec<f32>) -> Vec<f32> {
        if let Some(scales) = site(tensor).and_then(|site| self.of(site)) {
            numbers = scaled(&numbers, scales);
        }
        let outputs = match tensor {
            "attn_norm.weight" => self.attention.clone(),
            "attn_v.weight" | "attn_v.bias" => self.attention_output.as_ref().map(|all| {
                let (dim, shared) = (config.head_dim, config.heads / config.kv_heads);
                let first = |heads: &[f32]| heads[..dim].to_vec();
                all.chunks_exact(shared * dim).flat_map(first).collect()
            }),
            "ffn_norm.weight" => self.feed_forward.clone(),
            "ffn_up.weight" => self.down.clone(),
            _ => None,
        };
        if let Some(scales) = outputs {
            let row = numbers.len() / scales.len();
            for (row, scale) in numbers.chunks_exact_mut(row).zip(scales) {
                row.iter_mut().for_each(|x| *x /= scale);
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Architecture;

    #[test]
    fn scales_leave_what_is_computed_alone() {
        let scales = Scales {
            attention: Some(vec![2.0, 0.5]),
            attention_output: None,
            feed_forward: Some(vec![4.0, 0.25]),
            down: Some(vec![0.5, 8.0, 1.0]),
        };
        let config = Config {
            architecture: Architecture::Qwen2,
            vocab: 8,
            hidden: 2,
            layers: 1,
            heads: 2,
            kv_heads: 1,
            head_dim: 2,
            feed_forward: 3,
            context: 8,
            rope_theta: 1e4,
            rms_eps: 1e-6,
            tied: true,
            rope_factors: vec![1.0],
        };
        let apply = |tensor: &str, numbers: &[f32]| scales.apply(&config, tensor, numbers.to_vec());
        let product = |weight: &[f32], x: &[f32]| -> Vec<f32> {
            let rows = weight.chunks_exact(x.len());
            rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum())
                .collect()
        };
        // What a norm gives is its weight times something that scales do not touch.
        let (norm, weight) = ([3.0, 5.0], [1.0, 2.0, -3.0, 4.0, 0.5, 7.0]);
        for (norm_name, names) in [
            (
                "attn_norm.weight",
                &["attn_q.weight", "attn_k.weight", "attn_v.weight"][..],
            ),
            ("ffn_norm.weight", &["ffn_gate.weight"]),
        ] {
            for name in names {
                let scaled = product(&apply(name, &weight), &apply(norm_name, &norm));
                assert_eq!(scaled, product(&weight, &norm), "{name}");
            }
        }
        // Up's outputs, times anything, are down's inputs.
        let (gate, down) = ([0.5, 2.0, 4.0], [1.0, -2.0, 3.0, 5.0, 0.25, 1.0]);
        let mixed = |up: Vec<f32>| -> Vec<f32> { up.iter().zip(gate).map(|(up, gate)| up * gate).collect() };
        let plain = product(&down, &mixed(product(&weight, &norm)));
        let up = product(&apply("ffn_up.weight", &weight), &apply("ffn_norm.weight", &norm));
        assert_eq!(product(&apply("ffn_down.weight", &down), &mixed(up)), plain);
        // Each head mixes values, and both heads have the same ones.
        let (value, bias, output) = ([1.0, -2.0, 0.5, 4.0], [3.0, -1.0], [1.0, 2.0, -3.0, 5.0]);
        let mixed = |value: Vec<f32>, bias: Vec<f32>| -> Vec<f32> {
            let one = [0, 1].map(|i| product(&value[2 * i..][..2], &norm)[0] + bias[i]);
            [one.map(|x| 0.25 * x), one.map(|x| 2.0 * x)].concat()
        };
        let plain = product(&output, &mixed(value.to_vec(), bias.to_vec()));
        let scales = Scales {
            attention_output: Some(vec![4.0, 0.5, 4.0, 0.5]),
            ..Scales::default()
        };
        let apply = |tensor: &str, numbers: &[f32]| scales.apply(&config, tensor, numbers.to_vec());
        let scaled = mixed(apply("attn_v.weight", &value), apply("attn_v.bias", &bias));
        assert_eq!(product(&apply("attn_output.weight", &output), &scaled), plain);
        for name in ["attn_q.bias", "attn_q_norm.weight"] {
            assert_eq!(apply(name, &weight), weight, "{name}");
        }
    }
}
