//! Trace to tables and transcripts: counting, comparing, and writing down what came out.
//!
//! Not a source of numbers beyond the trace, and never two runs pooled: a run is one model on one backend, and a
//! report is of one run. A table is defined once ([`table::Table`]) and every format renders the same one.

pub mod beside;
pub mod contrasts;
pub mod csv;
pub mod figures;
pub mod json;
mod maker;
pub mod markdown;
pub mod overview;
pub mod page;
pub mod paper;
pub mod rows;
pub mod table;
pub mod tables;
pub mod terminal;
pub mod transcript;

use crate::trace::{RunReader, TraceError};
use figures::Condition;
use overview::Overview;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use table::Table;

/// Tables that [`Report::brief`] shows, by id.
const BRIEF: [&str; 4] = ["success", "ends", "contrasts", "paper_policies"];

/// The report of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run as a whole.
    pub overview: Overview,
    /// Its lanes and budgets, in the study's order.
    pub conditions: Vec<Condition>,
    tables: Vec<Table>,
}

/// Makes the report of a run, finished or not.
///
/// # Errors
/// What reading the trace says.
pub fn build(run: &RunReader) -> Result<Report, TraceError> {
    let rows = rows::read(run)?;
    let overview = Overview::new(run, &rows)?;
    let conditions = Condition::all(rows);
    let mut tables = vec![overview.table()];
    for condition in &conditions {
        tables.extend(tables::of(condition, &overview));
        tables.extend(beside::of(condition, &overview));
    }
    Ok(Report {
        overview,
        conditions,
        tables,
    })
}

impl Report {
    /// All tables, in the order of a reader's interest.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// For a terminal of 80 columns.
    pub fn terminal(&self) -> String {
        terminal::render(&self.tables)
    }

    /// The tables that answer the study's question, for a terminal of 80 columns.
    pub fn brief(&self) -> String {
        let asked = |table: &&Table| BRIEF.contains(&table.id);
        terminal::render(&self.tables.iter().filter(asked).cloned().collect::<Vec<_>>())
    }

    /// As a Markdown document.
    pub fn markdown(&self) -> String {
        let heading = self
            .overview
            .title(&format!("Report of study {}", self.overview.header.study));
        markdown::render(&heading, &self.tables)
    }

    /// As one CSV file in long form.
    pub fn csv(&self) -> String {
        csv::render(&self.overview.state(), &self.tables)
    }

    /// As one JSON document.
    pub fn json(&self) -> String {
        json::render(&self.overview.header.study, &self.overview.state(), &self.tables)
    }

    /// Writes `report.md`, `tables.csv` and `report.json` into `dir`, which is made if need be. Each is written beside
    /// its place and renamed, so a reader finds the old file or the new one, whole. Returns the files.
    ///
    /// # Errors
    /// [`TraceError::Io`] naming the file.
    pub fn write(&self, dir: &Path) -> Result<Vec<PathBuf>, TraceError> {
        std::fs::create_dir_all(dir).map_err(|source| io(dir, source))?;
        let files = [
            ("report.md", self.markdown()),
            ("tables.csv", self.csv()),
            ("report.json", self.json()),
        ];
        files
            .into_iter()
            .map(|(name, text)| replace(dir, name, &text))
            .collect()
    }
}

fn replace(dir: &Path, name: &str, text: &str) -> Result<PathBuf, TraceError> {
    let file = dir.join(name);
    let new = dir.join(format!(".{name}.{}", std::process::id()));
    let written = File::create(&new)
        .and_then(|mut out| {
            out.write_all(text.as_bytes())?;
            out.sync_all()
        })
        .and_then(|()| std::fs::rename(&new, &file));
    if let Err(source) = written {
        // What is left of the attempt is of no use; that it cannot be removed changes nothing.
        let _ = std::fs::remove_file(&new);
        return Err(io(&file, source));
    }
    Ok(file)
}

fn io(file: &Path, source: std::io::Error) -> TraceError {
    TraceError::Io {
        file: file.display().to_string(),
        source,
    }
}
