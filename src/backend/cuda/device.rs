//! What a backend needs of a device: memory, copies, launches. The driver is one, the emulator another.
//!
//! Not a wrapper of CUDA: one stream, in whose order everything happens, and only the kernels of `kernels/`.

use std::fmt::Debug;

use crate::backend::BackendError;

/// Where something lies in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(pub u64);

impl Address {
    /// No memory: what a kernel takes as absent.
    pub const NULL: Self = Self(0);

    /// The place of number `index` of those of type `T` that lie here.
    pub fn of<T>(self, index: usize) -> Self {
        Self(self.0 + (index * size_of::<T>()) as u64)
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// A pointer.
    Address(Address),
    /// An `int`.
    Int(usize),
    /// A `float`.
    Float(f32),
}

impl Argument {
    /// The argument's bytes, the value at the beginning.
    ///
    /// # Errors
    /// A number that a C `int` does not hold.
    pub fn word(self) -> Result<u64, BackendError> {
        Ok(match self {
            Self::Address(address) => address.0,
            Self::Int(number) => {
                let number = i32::try_from(number).map_err(|_| BackendError::Compute {
                    op: "launch",
                    reason: format!("{number} is more than a kernel can be told"),
                })?;
                u64::from(number.cast_unsigned())
            }
            Self::Float(number) => u64::from(number.to_bits()),
        })
    }
}

impl From<Address> for Argument {
    fn from(address: Address) -> Self {
        Self::Address(address)
    }
}

impl From<usize> for Argument {
    fn from(number: usize) -> Self {
        Self::Int(number)
    }
}

impl From<f32> for Argument {
    fn from(number: f32) -> Self {
        Self::Float(number)
    }
}

/// How the weights of a linear layer are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 4 bits, in groups of this many inputs.
    Awq(Group),
    /// Half precision.
    Fp16,
}

/// Inputs that share a scale and a zero point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// 32.
    G32,
    /// 64.
    G64,
    /// 128.
    G128,
}

impl Group {
    /// The group of this many inputs, if kernels know it.
    pub fn of(inputs: usize) -> Option<Self> {
        match inputs {
            32 => Some(Self::G32),
            64 => Some(Self::G64),
            128 => Some(Self::G128),
            _ => None,
        }
    }

    /// How many inputs.
    pub fn inputs(self) -> usize {
        match self {
            Self::G32 => 32,
            Self::G64 => 64,
            Self::G128 => 128,
        }
    }
}

/// For how many tokens a linear layer's kernel is made; all give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// Up to 8 at a time.
    S8,
    /// Up to 16.
    S16,
    /// Up to 32.
    S32,
    /// 64 per block.
    Large,
}

/// Width of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Head {
    /// 64.
    D64,
    /// 128.
    D128,
}

impl Head {
    /// The width, if kernels know it.
    pub fn of(dim: usize) -> Option<Self> {
        match dim {
            64 => Some(Self::D64),
            128 => Some(Self::D128),
            _ => None,
        }
    }

    /// The width.
    pub fn dim(self) -> usize {
        match self {
            Self::D64 => 64,
            Self::D128 => 128,
        }
    }
}

/// The kernels, each described in its file in `kernels/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// embed.cu
    Embed,
    /// norm.cu
    RmsNorm,
    /// rope.cu
    Rope,
    /// silu.cu
    Silu,
    /// argmax.cu
    Argmax,
    /// linear.cu
    Linear(Format, Size),
    /// attention.cu: one part of the positions per block.
    AttentionSplit(Head),
    /// attention.cu: what the parts gave, folded.
    AttentionFold(Head),
    /// attention.cu: all parts.
    AttentionWhole(Head),
}

impl Kernel {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let formats = [Group::G128, Group::G64, Group::G32]
            .map(Format::Awq)
            .into_iter()
            .chain([Format::Fp16]);
        let sizes = [Size::S8, Size::S16, Size::S32, Size::Large];
        let linear = formats.flat_map(|format| sizes.map(|size| Self::Linear(format, size)));
        let attention = [Head::D64, Head::D128].into_iter().flat_map(|head| {
            [
                Self::AttentionSplit(head),
                Self::AttentionFold(head),
                Self::AttentionWhole(head),
            ]
        });
        let single = [Self::Embed, Self::RmsNorm, Self::Rope, Self::Silu, Self::Argmax];
        single.into_iter().chain(linear).chain(attention).collect()
    }

    /// Its name in the module.
    pub fn name(self) -> String {
        match self {
            Self::Embed => "embed".into(),
            Self::RmsNorm => "rms_norm".into(),
            Self::Rope => "rope".into(),
            Self::Silu => "silu".into(),
            Self::Argmax => "argmax".into(),
            Self::Linear(format, size) => {
                let format = match format {
                    Format::Awq(group) => format!("awq{}", group.inputs()),
                    Format::Fp16 => "fp16".into(),
                };
                let size = match size {
                    Size::S8 => "8",
                    Size::S16 => "16",
                    Size::S32 => "32",
                    Size::Large => "large",
                };
                format!("linear_{format}_{size}")
            }
            Self::AttentionSplit(head) => format!("attention_split_{}", head.dim()),
            Self::AttentionFold(head) => format!("attention_fold_{}", head.dim()),
            Self::AttentionWhole(head) => format!("attention_whole_{}", head.dim()),
        }
    }

    /// Threads of a block, as its file has them.
    pub fn threads(self) -> u32 {
        match self {
            Self::Embed | Self::Rope => 128,
            Self::RmsNorm | Self::Linear(..) => 256,
            Self::Silu => 512,
            Self::Argmax => 1024,
            Self::AttentionSplit(_) | Self::AttentionWhole(_) => 32,
            Self::AttentionFold(head) => head.dim() as u32,
        }
    }
}

/// A device. What is asked of it happens in the order of the calls; `read` waits for it.
pub trait Device: Debug + Send {
    /// What distinguishes bits that it computes from those of other devices.
    fn name(&self) -> &str;

    /// Processors that run blocks at the same time.
    fn multiprocessors(&self) -> usize;

    /// Zeroed memory, aligned to 256 bytes.
    ///
    /// # Errors
    /// [`BackendError::Memory`].
    fn allocate(&mut self, bytes: usize) -> Result<Address, BackendError>;

    /// Gives memory back.
    ///
    /// # Errors
    /// The device failed.
    fn free(&mut self, at: Address) -> Result<(), BackendError>;

    /// Copies to the device.
    ///
    /// # Errors
    /// The device failed.
    fn write(&mut self, to: Address, bytes: &[u8]) -> Result<(), BackendError>;

    /// Copies from the device, after everything asked of it before.
    ///
    /// # Errors
    /// The device failed, then or earlier.
    fn read(&mut self, from: Address, bytes: &mut [u8]) -> Result<(), BackendError>;

    /// Copies on the device.
    ///
    /// # Errors
    /// The device failed.
    fn copy(&mut self, from: Address, to: Address, bytes: usize) -> Result<(), BackendError>;

    /// Runs a kernel over `grid` blocks.
    ///
    /// # Errors
    /// The device failed.
    fn launch(
        &mut self,
        kernel: Kernel,
        grid: [usize; 3],
        arguments: &[Argument],
    ) -> Result<(), BackendError>;

    /// Begins to note launches instead of running them.
    ///
    /// # Errors
    /// The device failed.
    fn record(&mut self) -> Result<(), BackendError>;

    /// Keeps what was noted since [`Self::record`] under a key.
    ///
    /// # Errors
    /// The device failed.
    fn keep(&mut self, key: u64) -> Result<(), BackendError>;

    /// Runs what is kept under a key, at the cost of one launch; whether there is anything.
    ///
    /// # Errors
    /// The device failed.
    fn replay(&mut self, key: u64) -> Result<bool, BackendError>;

    /// Drops all that is kept: an address in it is no longer valid.
    fn forget(&mut self);

    /// Bytes per second, read or written, of a copy from memory to memory; `None` where that says nothing.
    fn bandwidth(&mut self) -> Option<f64>;

    /// Products of halves, summed in fp32, that its tensor cores make per second, by its maker's word.
    fn products(&self) -> f64;
}

/// Memory that holds these numbers.
///
/// # Errors
/// There is none, or the device failed.
pub(super) fn upload<T: bytemuck::NoUninit>(
    device: &mut dyn Device,
    numbers: &[T],
) -> Result<Address, BackendError> {
    let bytes = bytemuck::cast_slice(numbers);
    let to = device.allocate(bytes.len())?;
    device.write(to, bytes)?;
    Ok(to)
}
