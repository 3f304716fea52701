//! `bench`: how fast models are computed here, in llama-bench's form, or per policy on a recorded run.
//!
//! Not a judgement of a model, and not Criterion's benches (`benches/`), which time single operations.

mod policies;
mod speed;
mod table;

use super::open::BackendArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Flags of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Models by name or path, separated by commas; with --policies, the run's own if not given
    #[arg(long, env = "VERIHARNESS_MODEL", value_delimiter = ',')]
    model: Vec<String>,
    /// Shapes of models with seeded noise for weights, on a GPU: what it would do, before 10 GB are downloaded
    #[arg(
        long,
        env = "VERIHARNESS_SYNTHETIC",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with_all = ["model", "policies"]
    )]
    synthetic: Vec<String>,
    /// Prompt lengths to compute
    #[arg(
        long,
        env = "VERIHARNESS_PP",
        value_name = "N",
        value_delimiter = ',',
        default_value = "512,1024"
    )]
    pp: Vec<usize>,
    /// New tokens per sequence to decode
    #[arg(
        long,
        env = "VERIHARNESS_TG",
        value_name = "N",
        value_delimiter = ',',
        default_value = "64"
    )]
    tg: Vec<usize>,
    /// Sequences that decode together
    #[arg(
        long,
        env = "VERIHARNESS_BATCH",
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,4,16"
    )]
    batch: Vec<usize>,
    /// Measurements per test; the first warms up and does not count
    #[arg(long, env = "VERIHARNESS_REPEAT", value_name = "N", default_value_t = 5)]
    repeat: usize,
    /// Decoding throughput per policy instead, on the prompts of this recorded run
    #[arg(
        long,
        env = "VERIHARNESS_POLICIES",
        value_name = "RUN",
        conflicts_with_all = ["pp", "tg", "batch", "repeat"]
    )]
    policies: Option<PathBuf>,
    /// Rows in work at once, with --policies
    #[arg(long, env = "VERIHARNESS_CONCURRENCY", value_name = "N", default_value_t = 4)]
    concurrency: usize,
    /// Form of the table
    #[arg(long, env = "VERIHARNESS_FORMAT", value_enum, default_value_t = Format::Md)]
    format: Format,
    #[command(flatten)]
    backend: BackendArgs,
}

/// Form of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A Markdown table
    Md,
    /// A line per row, with all digits
    Csv,
    /// One document, with the machine
    Json,
}

/// Measures and prints.
///
/// # Errors
/// A model or run that cannot be opened, or a flag out of range.
pub fn run(mut args: BenchArgs) -> anyhow::Result<u8> {
    if !args.synthetic.is_empty() {
        args.backend.insist_on_gpu();
    }
    match &args.policies {
        Some(run) => policies::run(&args, run),
        None => speed::run(&args),
    }
}
