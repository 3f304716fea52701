//! Tensors of a model file as candle's.
//!
//! Not checks of shapes: those were made when the model was opened.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{Device, Tensor};

use super::Products;
use super::decoder::{Linear, failed};
use crate::backend::BackendError;
use crate::model::Model;
use crate::model::weights::{BlockType, Stored};

/// Where tensors are read from, and how products are to be computed.
pub(super) struct Source<'a> {
    pub(super) model: &'a Model,
    pub(super) products: Products,
}

impl Source<'_> {
    pub(super) fn tensor(&self, name: &str) -> Result<QTensor, BackendError> {
        let refused = |reason: String| BackendError::Load {
            file: self.model.path.display().to_string(),
            reason: format!("{name}: {reason}"),
        };
        let entry = self.model.weights.get(name);
        let shape = entry.map(|entry| entry.shape.clone());
        let shape = shape.ok_or_else(|| refused("not in the model".into()))?;
        let tensor = self
            .model
            .weights
            .read(name)
            .map_err(|error| refused(error.to_string()))?;
        let (bytes, kind) = match tensor {
            Stored::Blocks { block, bytes, .. } => (bytes, candle_type(block)),
            // Candle has no products with such weights.
            other => {
                let numbers = other.decode().map_err(|error| refused(error.to_string()))?;
                (
                    numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
                    GgmlDType::F32,
                )
            }
        };
        QStorage::from_data(Cow::Owned(bytes), &Device::Cpu, kind)
            .and_then(|storage| QTensor::new(storage, shape))
            .map_err(|error| refused(error.to_string()))
    }

    pub(super) fn vector(&self, name: &str) -> Result<Tensor, BackendError> {
        self.tensor(name)?
            .dequantize(&Device::Cpu)
            .map_err(failed("dequantize"))
    }

    pub(super) fn product(&self, weight: Arc<QTensor>) -> Result<QMatMul, BackendError> {
        let product = match self.products {
            Products::Quantized => QMatMul::from_arc(weight),
            Products::Float32 => weight.dequantize(&Device::Cpu).map(QMatMul::Tensor),
        };
        product.map_err(failed("weights"))
    }

    pub(super) fn linear(&self, stem: &str) -> Result<Linear, BackendError> {
        let weight = self.tensor(&format!("{stem}.weight"))?;
        let bias = format!("{stem}.bias");
        let bias = self.model.weights.get(&bias).map(|_| bias);
        Ok(Linear {
            weight: self.product(Arc::new(weight))?,
            bias: bias.map(|name| self.vector(&name)).transpose()?,
        })
    }
}

fn candle_type(block: BlockType) -> GgmlDType {
    match block {
        BlockType::F32 => GgmlDType::F32,
        BlockType::F16 => GgmlDType::F16,
        BlockType::Bf16 => GgmlDType::BF16,
        BlockType::Q4_0 => GgmlDType::Q4_0,
        BlockType::Q4_1 => GgmlDType::Q4_1,
        BlockType::Q5_0 => GgmlDType::Q5_0,
        BlockType::Q5_1 => GgmlDType::Q5_1,
        BlockType::Q8_0 => GgmlDType::Q8_0,
        BlockType::Q2K => GgmlDType::Q2K,
        BlockType::Q3K => GgmlDType::Q3K,
        BlockType::Q4K => GgmlDType::Q4K,
        BlockType::Q5K => GgmlDType::Q5K,
        BlockType::Q6K => GgmlDType::Q6K,
    }
}
