//! `report RUN`: tables of a run, on the terminal and as files.
//!
//! Not what the tables say: that is `crate::report`'s.

use super::show::print;
use crate::report;
use crate::trace::RunReader;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Tables of a run, finished or not.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// The run's folder, as `study` names it
    pub run: PathBuf,
    /// Print only this, and write no files
    #[arg(long, env = "VERIHARNESS_FORMAT")]
    pub format: Option<Format>,
}

/// How tables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// 80 columns of text
    Terminal,
    /// A Markdown document
    Markdown,
    /// One value a line
    Csv,
    /// One document
    Json,
}

/// Prints the tables; without a format it also writes them into the run's folder `report`.
///
/// # Errors
/// When there is no run, it cannot be read, or a file cannot be written.
pub fn run(args: ReportArgs) -> anyhow::Result<u8> {
    let Some(format) = args.format else {
        print_and_write(&args.run)?;
        return Ok(0);
    };
    let report = report::build(&RunReader::open(&args.run)?)?;
    print(&match format {
        Format::Terminal => report.terminal(),
        Format::Markdown => report.markdown(),
        Format::Csv => report.csv(),
        Format::Json => report.json(),
    })?;
    Ok(0)
}

/// Prints all tables of the run in `dir`, writes them into its folder `report`, and says where.
///
/// # Errors
/// As [`run`].
pub fn print_and_write(dir: &Path) -> anyhow::Result<()> {
    let report = report::build(&RunReader::open(dir)?)?;
    let files = report.write(&dir.join("report"))?;
    let wrote = files.iter().map(|file| format!("wrote {}\n", file.display()));
    print(&format!("{}\n{}", report.terminal(), wrote.collect::<String>()))
}

/// What a study ends with: the tables that answer its question, all of them as files, and where to look further.
///
/// # Errors
/// As [`run`].
pub fn print_brief_and_write(dir: &Path) -> anyhow::Result<()> {
    let report = report::build(&RunReader::open(dir)?)?;
    report.write(&dir.join("report"))?;
    let run = dir.display();
    print(&format!(
        "{}\nall tables:   veriharness report {run}\ntranscripts:  veriharness show {run}\nfiles:        {run}/report\n",
        report.brief()
    ))
}
