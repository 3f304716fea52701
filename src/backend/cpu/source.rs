//! A model's tensors by name, in the form that this backend computes with.
//!
//! Not files: `model::weights` reads them. A tensor is read, packed and dropped before the next.

use super::linear::Linear;
use super::pool::Pool;
use crate::backend::BackendError;
use crate::model::Model;

/// Where weights are read from.
pub(super) struct Source<'a> {
    pub(super) model: &'a Model,
    pub(super) pool: &'a Pool,
}

impl Source<'_> {
    fn refused(&self, name: &str, reason: &dyn std::fmt::Display) -> BackendError {
        BackendError::Load {
            file: self.model.path.display().to_string(),
            reason: format!("{name}: {reason}"),
        }
    }

    /// A vector of floats.
    pub(super) fn vector(&self, name: &str) -> Result<Vec<f32>, BackendError> {
        let stored = self.model.weights.read(name);
        stored
            .and_then(|stored| stored.decode())
            .map_err(|error| self.refused(name, &error))
    }

    /// The weight of this stem, packed, and its bias if it has one.
    pub(super) fn linear(&self, stem: &str) -> Result<Linear, BackendError> {
        let (weight, bias) = (format!("{stem}.weight"), format!("{stem}.bias"));
        let bias = self
            .model
            .weights
            .get(&bias)
            .map(|_| self.vector(&bias))
            .transpose()?;
        let stored = self
            .model
            .weights
            .read(&weight)
            .map_err(|error| self.refused(&weight, &error))?;
        Linear::new(&stored, bias, self.pool).map_err(|reason| self.refused(&weight, &reason))
    }
}
