//! Which instructions this processor has, and how one body of code is compiled for each of them.
//!
//! Not the arithmetic. Every operation means the same numbers on every level: reductions run in one fixed order and
//! lanes are independent outputs, so a wider vector only computes more of them at once.

/// A level of instructions that the processor is known to have: a value cannot be made for one that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// What the target guarantees.
    Plain,
    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, VL with VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The levels that this processor has, slowest first.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self(Level::Plain)];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            levels.extend(avx2.then_some(Self(Level::Avx2)));
            levels.extend((avx2 && avx512).then_some(Self(Level::Avx512)));
        }
        levels
    }

    /// The fastest level of this processor.
    pub fn best() -> Self {
        Self::available().pop().unwrap_or(Self(Level::Plain))
    }

    /// A level by its name, if this processor has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|isa| isa.name() == name)
    }

    /// `plain`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }

    pub(super) fn level(self) -> Level {
        self.0
    }
}

/// Compiles one function for every level and calls the one that `isa` names. The body is plain code whose lanes the
/// compiler may widen; it never reorders or fuses float operations, so all versions give the same bits.
macro_rules! for_each_isa {
    ($(#[$doc:meta])* $vis:vis fn $name:ident$(<const $n:ident: usize>)?($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)] // the level comes in addition
        $vis fn $name$(<const $n: usize>)?(isa: $crate::backend::cpu::isa::Isa, $($arg: $type),*) {
            #[inline(always)]
            fn plain$(<const $n: usize>)?($($arg: $type),*) $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2$(<const $n: usize>)?($($arg: $type),*) {
                plain$(::<$n>)?($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
            fn avx512$(<const $n: usize>)?($($arg: $type),*) {
                plain$(::<$n>)?($($arg),*)
            }
            match isa.level() {
                $crate::backend::cpu::isa::Level::Plain => plain$(::<$n>)?($($arg),*),
                // SAFETY: an `Isa` of this level exists only on a processor that has these instructions.
                #[cfg(target_arch = "x86_64")]
                $crate::backend::cpu::isa::Level::Avx2 => unsafe { avx2$(::<$n>)?($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::backend::cpu::isa::Level::Avx512 => unsafe { avx512$(::<$n>)?($($arg),*) },
            }
        }
    };
}
pub(super) use for_each_isa;
