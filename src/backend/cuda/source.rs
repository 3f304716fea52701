//! A model's tensors by name, on the device in the form that kernels take.
//!
//! Not files: `model::weights` reads them. A tensor is read, packed, copied and dropped before the next.

use super::device::{Address, Device, Head, upload};
use super::linear::{Linear, halves};
use super::pass::PAIRS;
use crate::backend::BackendError;
use crate::model::Network;
use crate::model::config::Config;
use crate::model::weights::Stored;

/// Where weights are read from, and where they go.
pub(super) struct Source<'a> {
    pub(super) model: Network<'a>,
    pub(super) device: &'a mut dyn Device,
}

impl Source<'_> {
    pub(super) fn refused(&self, name: &str, reason: &dyn std::fmt::Display) -> BackendError {
        BackendError::Load {
            file: self.model.source.display().to_string(),
            reason: format!("{name}: {reason}"),
        }
    }

    /// The width of a head, if there are kernels for the model's heads.
    pub(super) fn head(&self, config: &Config) -> Result<Head, BackendError> {
        let group = config.heads / config.kv_heads;
        if group > PAIRS {
            let reason = format!("at most {PAIRS} query heads share one of keys and values, found {group}");
            return Err(self.refused("heads", &reason));
        }
        Head::of(config.head_dim).ok_or_else(|| {
            let reason = format!(
                "the cuda backend takes heads of 64 and 128, found {}",
                config.head_dim
            );
            self.refused("heads", &reason)
        })
    }

    fn stored(&self, name: &str) -> Result<Stored, BackendError> {
        let stored = self.model.weights.read(name);
        stored.map_err(|error| self.refused(name, &error))
    }

    fn vector(&self, name: &str) -> Result<Vec<f32>, BackendError> {
        let numbers = self.stored(name)?.decode();
        numbers.map_err(|error| self.refused(name, &error))
    }

    /// Vectors of floats, one after the other.
    pub(super) fn vectors(&mut self, names: &[&str]) -> Result<Address, BackendError> {
        let mut numbers = Vec::new();
        for name in names {
            numbers.extend(self.vector(name)?);
        }
        upload(self.device, &numbers)
    }

    /// A matrix of halves, row after row.
    pub(super) fn table(&mut self, name: &str) -> Result<Address, BackendError> {
        let numbers = halves(&self.stored(name)?).map_err(|reason| self.refused(name, &reason))?;
        upload(self.device, &numbers)
    }

    /// The layers of these stems, side by side, with their biases if they have them.
    pub(super) fn linear(&mut self, stems: &[&str]) -> Result<Linear, BackendError> {
        let (mut parts, mut bias, mut biased) = (Vec::new(), Vec::new(), false);
        for stem in stems {
            let part = self.stored(&format!("{stem}.weight"))?;
            let name = format!("{stem}.bias");
            match self.model.weights.get(&name) {
                Some(_) => {
                    biased = true;
                    bias.extend(self.vector(&name)?);
                }
                None => bias.resize(bias.len() + part.shape().0, 0.0),
            }
            parts.push(part);
        }
        let bias = biased.then_some(bias.as_slice());
        Linear::new(self.device, &parts, bias).map_err(|reason| self.refused(&stems.join(", "), &reason))
    }
}
