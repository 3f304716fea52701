//! A model's layers to 4 bits, as a folder in AutoAWQ's layout: by rounding alone, or with scales that were searched for.
//!
//! Not the layout (`model::folder`) and not the choice of prompts. Two passes: what goes into the layers is seen on some
//! prompts, then tensors are read, scaled, rounded and written one by one.

pub mod compare;
mod round;
mod search;

use std::collections::HashMap;
use std::path::Path;

use crate::backend::cpu::{CpuBackend, Site};
use crate::backend::{BLOCK, Backend, BackendError, BlockId, Step};
use crate::model::folder::{Writer, is_quantised, write_small_files};
use crate::model::{Model, ModelError};
use search::{Seen, scaled, search};

/// Rows of activations that scales are tried on.
const SAMPLE: usize = 128;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeError {
    /// A file of the source or of the result.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The backend that computes the activations.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The library that multiplies matrices.
    #[error("multiplying matrices failed: {0}")]
    Matrices(#[from] candle_core::Error),
    /// There is nothing to search scales on.
    #[error("calibration: {0}")]
    Calibration(String),
}

/// What was seen of the layers' inputs.
#[derive(Debug, Default)]
pub struct Calibration {
    seen: HashMap<(usize, Site), Seen>,
}

impl Calibration {
    /// Computes prompts and looks at what goes into the layers.
    ///
    /// # Errors
    /// The backend fails, or there are no tokens.
    pub fn on(model: &Model, backend: &mut CpuBackend, prompts: &[Vec<u32>]) -> Result<Self, QuantizeError> {
        let tokens: usize = prompts.iter().map(Vec::len).sum();
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        if tokens == 0 {
            return Err(QuantizeError::Calibration("expected prompts, found none".into()));
        }
        backend.reserve(longest.div_ceil(BLOCK))?;
        let blocks: Vec<BlockId> = (0..longest.div_ceil(BLOCK) as u32).map(BlockId).collect();
        let mut calibration = Self::default();
        let (hidden, wide) = (model.config.hidden, model.config.feed_forward);
        for tokens_of_one in prompts.iter().filter(|prompt| !prompt.is_empty()) {
            let step = Step {
                tokens: tokens_of_one,
                start: 0,
                blocks: &blocks,
                logits: 0,
            };
            backend.observe(&[step], &mut |layer, site, numbers| {
                let cols = if site == Site::Down { wide } else { hidden };
                let seen = calibration.seen.entry((layer, site)).or_default();
                seen.add(numbers, cols, tokens.div_ceil(SAMPLE));
            })?;
        }
        Ok(calibration)
    }
}

/// What the search found for a site of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The layer.
    pub layer: usize,
    /// The site.
    pub site: Site,
    /// Mean square error of the outputs with the scales, as a share of that of rounding alone.
    pub share: f64,
}

/// Scales of a layer's inputs by site; none leaves them alone.
#[derive(Default)]
struct Scales {
    attention: Option<Vec<f32>>,
    feed_forward: Option<Vec<f32>>,
    down: Option<Vec<f32>>,
}

/// Writes the folder, which exists and is empty; with a calibration scales are searched for. `progress` is told how many
/// layers are done.
///
/// # Errors
/// A tensor cannot be read or written, or its shape does not fit the layout.
pub fn write(
    model: &Model,
    folder: &Path,
    group: usize,
    calibration: Option<&Calibration>,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Gain>, QuantizeError> {
    write_small_files(model, folder, group)?;
    let mut writer = Writer::create(folder, &model.config, group)?;
    let mut gains = Vec::new();
    let (mut scales, mut current) = (Scales::default(), None);
    for (name, shape) in model.config.shapes() {
        let place = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let layer = place.and_then(|(layer, _)| layer.parse::<usize>().ok());
        if layer != current {
            current = layer;
            progress(layer.unwrap_or(0));
            if let (Some(layer), Some(calibration)) = (layer, calibration) {
                scales = find(model, layer, group, calibration, &mut gains)?;
            }
        }
        let mut numbers = model.weights.read(&name)?.decode()?;
        if let Some((_, tensor)) = place {
            numbers = scales.apply(tensor, numbers);
        }
        match shape[..] {
            [_, cols] if is_quantised(&name) => writer.awq(&round::round(&numbers, cols, group))?,
            _ => writer.half(&numbers)?,
        }
    }
    writer.finish()?;
    Ok(gains)
}

/// Searches the scales of a layer.
fn find(
    model: &Model,
    layer: usize,
    group: usize,
    calibration: &Calibration,
    gains: &mut Vec<Gain>,
) -> Result<Scales, QuantizeError> {
    let mut at = |site, names: &[&str]| -> Result<Option<Vec<f32>>, QuantizeError> {
        let Some(seen) = calibration.seen.get(&(layer, site)) else {
            return Ok(None);
        };
        let read = |name: &&str| {
            model
                .weights
                .read(&format!("blk.{layer}.{name}.weight"))?
                .decode()
        };
        let weights: Vec<Vec<f32>> = names.iter().map(read).collect::<Result<_, _>>()?;
        let weights: Vec<&[f32]> = weights.iter().map(Vec::as_slice).collect();
        let cols = match site {
            Site::Down => model.config.feed_forward,
            Site::Attention | Site::FeedForward => model.config.hidden,
        };
        let found = search(&weights, cols, group, seen)?;
        gains.push(Gain {
            layer,
            site,
            share: found.error / found.plain.max(f64::MIN_POSITIVE),
        });
        Ok(Some(found.scales))
    };
    Ok(Scales {
        attention: at(Site::Attention, &["attn_q", "attn_k", "attn_v"])?,
        feed_forward: at(Site::FeedForward, &["ffn_gate", "ffn_up"])?,
        down: at(Site::Down, &["ffn_down"])?,
    })
}

impl Scales {
    /// A tensor of the layer with the scales in it: inputs multiplied, and what makes them divided. A norm makes those of
    /// attention and feed-forward; up makes those of down, for gate's share of them is not linear.
    fn apply(&self, tensor: &str, mut numbers: Vec<f32>) -> Vec<f32> {
        let (inputs, outputs) = match tensor {
            "attn_norm.weight" => (None, &self.attention),
            "attn_q.weight" | "attn_k.weight" | "attn_v.weight" => (self.attention.as_deref(), &None),
            "ffn_norm.weight" => (None, &self.feed_forward),
            "ffn_gate.weight" => (self.feed_forward.as_deref(), &None),
            "ffn_up.weight" => (self.feed_forward.as_deref(), &self.down),
            "ffn_down.weight" => (self.down.as_deref(), &None),
            _ => (None, &None),
        };
        if let Some(scales) = inputs {
            numbers = scaled(&numbers, scales);
        }
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

    #[test]
    fn scales_leave_what_is_computed_alone() {
        let scales = Scales {
            attention: Some(vec![2.0, 0.5]),
            feed_forward: Some(vec![4.0, 0.25]),
            down: Some(vec![0.5, 8.0, 1.0]),
        };
        let apply = |tensor: &str, numbers: &[f32]| scales.apply(tensor, numbers.to_vec());
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
        for name in ["attn_q.bias", "attn_output.weight", "attn_q_norm.weight"] {
            assert_eq!(apply(name, &weight), weight, "{name}");
        }
    }
}
