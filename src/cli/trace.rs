//! `trace verify RUN`, `trace export RUN`: what a run has stored, checked or as JSON lines.
//!
//! Not a repair: a run that does not verify is reported, not mended.

use crate::trace::{RunReader, export::export, verify::verify};
use anyhow::Context;
use clap::{Args, Subcommand};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Flags of `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Check hash chains, order, budgets and ends of all rows; exit 1 when something does not hold
    Verify {
        /// The run's folder
        run: PathBuf,
    },
    /// Write the canonical JSON lines: calls by row, without measurements
    Export {
        /// The run's folder
        run: PathBuf,
        /// File to write; stdout by default
        #[arg(short, long, env = "VERIHARNESS_OUT")]
        out: Option<PathBuf>,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// When the trace cannot be read or the output not written.
pub fn run(args: TraceArgs) -> anyhow::Result<u8> {
    match args.command {
        TraceCommand::Verify { run } => {
            let findings = verify(&RunReader::open(&run)?)?;
            let mut out = std::io::stdout().lock();
            for problem in &findings.problems {
                writeln!(out, "{problem}")?;
            }
            let (rows, calls, problems) = (findings.rows, findings.calls, findings.problems.len());
            writeln!(out, "{rows} rows, {calls} calls checked, {problems} problems")?;
            Ok(if problems == 0 { super::DONE } else { super::FAILED })
        }
        TraceCommand::Export { run, out } => {
            let reader = RunReader::open(&run)?;
            match out {
                None => export(&reader, &mut BufWriter::new(std::io::stdout().lock()))?,
                Some(path) => {
                    let file = std::fs::File::create(&path)
                        .with_context(|| format!("cannot create {}", path.display()))?;
                    export(&reader, &mut BufWriter::new(file))?;
                }
            }
            Ok(super::DONE)
        }
    }
}
