//! `config.json` to the numbers that define a model's computation.
//!
//! Not the weights and not their shapes: those follow from `Config::shapes`.

use std::f64::consts::TAU;

use super::names::{FAMILIES, Family};
use crate::model::ModelError;
use crate::model::config::{
    Config, MAX_CONTEXT, MAX_FEED_FORWARD, MAX_HEAD, MAX_HEADS, MAX_HIDDEN, MAX_LAYERS, MAX_VOCAB,
};
use crate::model::json::{Json, brief};

/// Group sizes of AWQ that backends compute with.
const GROUPS: [usize; 3] = [32, 64, 128];

impl Config {
    /// Reads the configuration of a Hugging Face folder.
    ///
    /// # Errors
    /// Another architecture, a missing or absurd number, or a feature that is not computed.
    pub(super) fn from_json(json: &Json) -> Result<Self, ModelError> {
        let family = family(json)?;
        let bounded = |key: &str, limit: usize| -> Result<usize, ModelError> {
            match json.required(key, json.count(key)?)? {
                n if (1..=limit).contains(&n) => Ok(n),
                n => Err(json.unsupported(key, &format!("1 to {limit}"), n)),
            }
        };
        let hidden = bounded("hidden_size", MAX_HIDDEN)?;
        let heads = bounded("num_attention_heads", MAX_HEADS)?;
        let kv_heads = match json.count("num_key_value_heads")? {
            None => heads,
            Some(n) if n > 0 && heads % n == 0 => n,
            Some(n) => {
                let expected = format!("a divisor of the {heads} heads");
                return Err(json.unsupported("num_key_value_heads", &expected, n));
            }
        };
        let (key, head_dim) = match json.count("head_dim")? {
            Some(n) => ("head_dim", n),
            None if hidden % heads == 0 => ("hidden_size", hidden / heads),
            None => {
                let expected = format!("a divisor of the width {hidden}");
                return Err(json.unsupported("num_attention_heads", &expected, heads));
            }
        };
        if !(2..=MAX_HEAD).contains(&head_dim) || head_dim % 2 != 0 {
            let expected = format!("heads of an even width up to {MAX_HEAD}");
            return Err(json.unsupported(key, &expected, head_dim));
        }
        plain(json, family)?;
        let scaling = match json.object("rope_scaling")? {
            None => json.object("rope_parameters")?,
            some => some,
        };
        let theta = match (json.number("rope_theta")?, &scaling) {
            (None, Some(scaling)) => scaling.number("rope_theta")?,
            (theta, _) => theta,
        };
        let theta = theta.unwrap_or(10_000.0);
        Ok(Self {
            architecture: family.architecture,
            vocab: bounded("vocab_size", MAX_VOCAB)?,
            hidden,
            layers: bounded("num_hidden_layers", MAX_LAYERS)?,
            heads,
            kv_heads,
            head_dim,
            feed_forward: bounded("intermediate_size", MAX_FEED_FORWARD)?,
            context: context(json, family)?,
            rope_theta: positive(json, "rope_theta", theta)?,
            rms_eps: positive(
                json,
                "rms_norm_eps",
                json.required("rms_norm_eps", json.number("rms_norm_eps")?)?,
            )?,
            tied: json.truth("tie_word_embeddings")?.unwrap_or(false),
            rope_factors: match scaling {
                None => vec![1.0; head_dim / 2],
                Some(scaling) => factors(&scaling, head_dim, theta)?,
            },
        })
    }
}

/// Most positions of a sequence: no more than a position sees, where only some of the earlier ones are seen.
fn context(json: &Json, family: &Family) -> Result<usize, ModelError> {
    let window = match family.windowed {
        true => json.count("sliding_window")?,
        false => None,
    };
    let key = "max_position_embeddings";
    let positions = json.required(key, json.count(key)?)?;
    for (key, n) in [(key, Some(positions)), ("sliding_window", window)] {
        if let Some(n) = n.filter(|n| !(1..=MAX_CONTEXT).contains(n)) {
            return Err(json.unsupported(key, &format!("1 to {MAX_CONTEXT}"), n));
        }
    }
    Ok(positions.min(window.unwrap_or(positions)))
}

/// The one class in `architectures`.
fn family(json: &Json) -> Result<&'static Family, ModelError> {
    let key = "architectures";
    let value = json.required(key, json.value(key))?;
    let classes = value.as_array().map(Vec::as_slice);
    let class = match classes {
        Some([serde_json::Value::String(class)]) => class,
        _ => return Err(json.malformed(key, "a list of one name", brief(&value.to_string()))),
    };
    Family::find(class).ok_or_else(|| {
        let known = FAMILIES.map(|family| family.class).join(", ");
        json.unsupported(key, &known, brief(&format!("{class:?}")))
    })
}

/// Refuses what this program does not compute.
fn plain(json: &Json, family: &Family) -> Result<(), ModelError> {
    if let Some(other) = json.text("hidden_act")?.filter(|&act| act != "silu") {
        return Err(json.unsupported("hidden_act", "silu", brief(&format!("{other:?}"))));
    }
    if json.truth("use_sliding_window")? == Some(true) {
        return Err(json.unsupported("use_sliding_window", "false", "true"));
    }
    if !family.architecture.has_biases() {
        for key in ["attention_bias", "mlp_bias"] {
            if json.truth(key)? == Some(true) {
                return Err(json.unsupported(key, "false", "true"));
            }
        }
    }
    Ok(())
}

fn positive(json: &Json, key: &str, number: f64) -> Result<f32, ModelError> {
    match number as f32 {
        x if x > 0.0 && x.is_finite() => Ok(x),
        _ => Err(json.unsupported(key, "a positive number", number)),
    }
}

/// The divisors of the rotary frequencies. Llama 3's rule: wavelengths short against the original context stay, long
/// ones are stretched by `factor`, and between the two the frequency is interpolated.
fn factors(scaling: &Json, head_dim: usize, theta: f64) -> Result<Vec<f32>, ModelError> {
    let key = match scaling.value("rope_type") {
        Some(_) => "rope_type",
        None => "type",
    };
    match scaling.required(key, scaling.text(key)?)? {
        "default" => return Ok(vec![1.0; head_dim / 2]),
        "llama3" => (),
        other => {
            let expected = "default and llama3";
            return Err(scaling.unsupported(key, expected, brief(&format!("{other:?}"))));
        }
    }
    let number = |key: &str| -> Result<f64, ModelError> {
        let number = scaling.required(key, scaling.number(key)?)?;
        positive(scaling, key, number)?;
        Ok(number)
    };
    let (factor, low, high) = (
        number("factor")?,
        number("low_freq_factor")?,
        number("high_freq_factor")?,
    );
    let original = number("original_max_position_embeddings")?;
    if high <= low {
        let expected = format!("more than low_freq_factor, {low}");
        return Err(scaling.unsupported("high_freq_factor", &expected, high));
    }
    let divisor = |pair: usize| {
        let frequency = theta.powf(-((2 * pair) as f64) / head_dim as f64);
        let wavelength = TAU / frequency;
        if wavelength < original / high {
            1.0
        } else if wavelength > original / low {
            factor
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    let divisors: Vec<f32> = (0..head_dim / 2).map(|pair| divisor(pair) as f32).collect();
    match divisors.iter().find(|x| !(x.is_finite() && **x > 0.0)) {
        None => Ok(divisors),
        Some(x) => Err(scaling.unsupported("factor", "positive divisors of frequencies", x)),
    }
}

/// The group size if the linear layers are in AutoAWQ's `gemm` layout; none if nothing is quantised.
///
/// # Errors
/// Another quantisation.
pub(super) fn awq_group(json: &Json) -> Result<Option<usize>, ModelError> {
    let Some(quantised) = json.object("quantization_config")? else {
        return Ok(None);
    };
    for (key, expected) in [("quant_method", "awq"), ("version", "gemm")] {
        let found = quantised.required(key, quantised.text(key)?)?;
        if !found.eq_ignore_ascii_case(expected) {
            return Err(quantised.unsupported(key, expected, brief(&format!("{found:?}"))));
        }
    }
    let bits = quantised.required("bits", quantised.count("bits")?)?;
    if bits != 4 {
        return Err(quantised.unsupported("bits", "4", bits));
    }
    if !quantised.required("zero_point", quantised.truth("zero_point")?)? {
        return Err(quantised.unsupported("zero_point", "true", "false"));
    }
    match quantised.required("group_size", quantised.count("group_size")?)? {
        group if GROUPS.contains(&group) => Ok(Some(group)),
        group => Err(quantised.unsupported("group_size", "32, 64 and 128", group)),
    }
}
