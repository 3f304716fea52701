//! A model's layers to 4 bits, as a folder in AutoAWQ's layout: by rounding alone, or with scales that were searched for.
//!
//! Not the layout (`model::folder`) and not the choice of prompts. Two passes: what goes into the layers is seen on some
//! prompts, then tensors are read, scaled, rounded and written one by one.

pub mod compare;
mod grid;
mod scales;
mod search;
mod seen;

use std::collections::HashMap;
use std::path::Path;

use crate::backend::cpu::{CpuBackend, Site};
use crate::backend::{BLOCK, Backend, BackendError, BlockId, Step};
use crate::model::config::Config;
use crate::model::folder::{Writer, fits, is_quantised, write_small_files};
use crate::model::{Model, ModelError};
use grid::{Grid, round, whole};
use scales::{Scales, site};
use search::{clip, search};
use seen::Seen;

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
#[derive(Debug)]
pub struct Calibration {
    seen: HashMap<(usize, Site), Seen>,
}

impl Calibration {
    /// Computes prompts and looks at what goes into the layers, in groups of `group`.
    ///
    /// # Errors
    /// A layer's shape does not fit the groups, the backend fails, or there are no tokens.
    pub fn on(
        model: &Model,
        group: usize,
        backend: &mut CpuBackend,
        prompts: &[Vec<u32>],
    ) -> Result<Self, QuantizeError> {
        fits(&model.config, group, &model.path)?;
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        if longest == 0 {
            return Err(QuantizeError::Calibration("expected prompts, found none".into()));
        }
        backend.reserve(longest.div_ceil(BLOCK))?;
        let blocks: Vec<BlockId> = (0..longest.div_ceil(BLOCK) as u32).map(BlockId).collect();
        let mut seen = HashMap::new();
        let mut failed = None;
        for tokens in prompts.iter().filter(|prompt| !prompt.is_empty()) {
            let step = Step {
                tokens,
                start: 0,
                blocks: &blocks,
                logits: 0,
            };
            backend.observe(&[step], &mut |layer, site, numbers| {
                let nothing = || Seen::nothing(cols(&model.config, site), group);
                let seen: &mut Seen = seen.entry((layer, site)).or_insert_with(nothing);
                failed = failed.take().or(seen.add(numbers).err());
            })?;
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        let config = &model.config;
        for (_, seen) in seen
            .iter_mut()
            .filter(|((_, site), _)| *site == Site::AttentionOutput)
        {
            seen.tie(config.heads / config.kv_heads, config.head_dim);
        }
        Ok(Self { seen })
    }
}

/// Inputs of a row at a site.
fn cols(config: &Config, site: Site) -> usize {
    match site {
        Site::Attention | Site::FeedForward => config.hidden,
        Site::AttentionOutput => config.heads * config.head_dim,
        Site::Down => config.feed_forward,
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

/// Writes the folder, which exists and is empty; with a calibration, of the same `group`, scales are searched for.
/// `progress` is told how many layers are done.
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
        let place = place.and_then(|(layer, tensor)| Some((layer.parse::<usize>().ok()?, tensor)));
        let layer = place.map(|(layer, _)| layer);
        if layer != current {
            current = layer;
            progress(layer.unwrap_or(0));
            if let (Some(layer), Some(calibration)) = (layer, calibration) {
                scales = find(model, layer, calibration, &mut gains)?;
            }
        }
        let mut numbers = model.weights.read(&name)?.decode()?;
        if let Some((_, tensor)) = place {
            numbers = scales.apply(&model.config, tensor, numbers);
        }
        match (&shape[..], place) {
            (&[_, cols], Some((layer, tensor))) if is_quantised(&name) => {
                let grids = match calibration {
                    Some(calibration) => grids(&numbers, (layer, tensor), calibration, &scales)?,
                    None => whole(&numbers, group),
                };
                writer.awq(&round(&numbers, cols, group, &grids))?;
            }
            _ => writer.half(&numbers)?,
        }
    }
    writer.finish()?;
    Ok(gains)
}

/// The grids of a scaled weight. Those of query and key leave nothing out: their product is not linear in them.
fn grids(
    numbers: &[f32],
    (layer, tensor): (usize, &str),
    calibration: &Calibration,
    scales: &Scales,
) -> Result<Vec<Grid>, QuantizeError> {
    let seen = site(tensor).and_then(|site| Some((site, calibration.seen.get(&(layer, site))?)));
    let Some((site, seen)) = seen else {
        return Err(QuantizeError::Calibration(format!(
            "expected the inputs of blk.{layer}.{tensor}, found none"
        )));
    };
    match scales.of(site) {
        Some(scales) if !matches!(tensor, "attn_q.weight" | "attn_k.weight") => clip(numbers, seen, scales),
        _ => Ok(whole(numbers, seen.group)),
    }
}

/// Searches the scales of a layer.
fn find(
    model: &Model,
    layer: usize,
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
        let found = search(&weights, seen)?;
        gains.push(Gain {
            layer,
            site,
            share: found.error / found.plain.max(f64::MIN_POSITIVE),
        });
        Ok(Some(found.scales))
    };
    Ok(Scales {
        attention: at(Site::Attention, &["attn_q", "attn_k", "attn_v"])?,
        attention_output: at(Site::AttentionOutput, &["attn_output"])?,
        feed_forward: at(Site::FeedForward, &["ffn_gate", "ffn_up"])?,
        down: at(Site::Down, &["ffn_down"])?,
    })
}
