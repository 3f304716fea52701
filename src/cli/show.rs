//! `show RUN [--row KEY]`: the rows of a run, or the transcript of one.
//!
//! Not what a transcript holds: that is `crate::report::transcript`'s.

use crate::report::transcript;
use crate::trace::RunReader;
use clap::Args;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// Rows of a run that an ambiguous name lists at most.
const LISTED: usize = 20;

/// The rows of a run, or the transcript of one.
#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// The run's folder, as `study` names it
    pub run: PathBuf,
    /// The row: its key, or a part of it that no other row has
    #[arg(long, env = "VERIHARNESS_ROW")]
    pub row: Option<String>,
}

/// Prints the rows or the transcript.
///
/// # Errors
/// When there is no run, it cannot be read, or `--row` names no row or several.
pub fn run(args: ShowArgs) -> anyhow::Result<u8> {
    let run = RunReader::open(&args.run)?;
    let Some(name) = &args.row else {
        print(&transcript::list(&run)?)?;
        return Ok(0);
    };
    let rows = run.rows()?;
    match transcript::find(&rows, name).as_slice() {
        [row] => print(&transcript::of(&run, row)?)?,
        [] => anyhow::bail!("no row of this run is named like `{name}`; without --row, all rows are listed"),
        several => {
            let shown = several.iter().take(LISTED);
            let mut keys: Vec<&str> = shown.map(|row| row.planned.key.as_str()).collect();
            if several.len() > LISTED {
                keys.push("…");
            }
            let count = several.len();
            anyhow::bail!(
                "`{name}` names {count} rows; choose one:\n  {}",
                keys.join("\n  ")
            );
        }
    }
    Ok(0)
}

/// Writes to stdout. That nobody reads on (`| head`) is no failure.
///
/// # Errors
/// What the system says of any other failure.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
