//! `completions SHELL`: a completion script on stdout.
//!
//! Not an installer: where the script goes is the shell's affair.

use clap::Args;
use std::io::Write;

/// Flags of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

/// Writes the script for `command`.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(args: CompletionsArgs, mut command: clap::Command) -> anyhow::Result<u8> {
    // Into memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "veriharness", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(super::DONE)
}
