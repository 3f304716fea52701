//! The run as a whole: what it is, how far it has come, how long it took.
//!
//! Not results: those stand by condition (`tables`, `beside`).

use super::rows::RowFigures;
use super::table::{Cell, Table};
use crate::trace::{Header, RunReader, TraceError};

/// What a run is and how far it has come.
#[derive(Clone, Debug)]
pub struct Overview {
    /// Study, model, backend and tasks.
    pub header: Header,
    /// Rows in the study.
    pub planned: u64,
    /// Rows that have ended.
    pub ended: u64,
    /// Of these, rows that ended in an error.
    pub errors: u64,
    /// Committed calls of all rows, whether they count or not.
    pub calls: u64,
    /// Versions of the program that made its calls, in order of their first.
    pub programs: Vec<String>,
    /// Processes that worked on the run.
    pub sessions: u64,
    /// Of these, how many were killed or still work; their time is unknown.
    pub sessions_open: u64,
    /// Wall time of the others, in milliseconds.
    pub wall_ms: u64,
}

impl Overview {
    /// Reads what stands outside the rows, and counts these.
    ///
    /// # Errors
    /// What reading the trace says.
    pub fn new(run: &RunReader, rows: &[RowFigures]) -> Result<Self, TraceError> {
        let sessions = run.sessions()?;
        let mut programs: Vec<String> = Vec::new();
        for session in sessions.iter().filter(|session| session.calls > 0) {
            if !programs.contains(&session.program) {
                programs.push(session.program.clone());
            }
        }
        let count = |keep: fn(&RowFigures) -> bool| rows.iter().filter(|row| keep(row)).count() as u64;
        Ok(Self {
            header: run.header.clone(),
            planned: rows.len() as u64,
            ended: count(|row| row.outcome.is_some()),
            errors: count(|row| row.outcome.is_some() && !row.counts()),
            calls: rows.iter().map(|row| row.calls.len() as u64).sum(),
            programs,
            sessions: sessions.len() as u64,
            sessions_open: sessions
                .iter()
                .filter(|session| session.wall_ms.is_none())
                .count() as u64,
            wall_ms: sessions.iter().filter_map(|session| session.wall_ms).sum(),
        })
    }

    /// `complete`, or how partial the run is: `partial: 12 of 200 rows`; and whether several versions of the program
    /// made it, whose calls need not be alike.
    pub fn state(&self) -> String {
        let state = match self.planned - self.ended {
            0 => "complete".into(),
            _ => format!("partial: {} of {} rows", self.ended, self.planned),
        };
        match self.programs.len() {
            0 | 1 => state,
            several => format!("{state}, mixed: {several} versions of the program"),
        }
    }

    /// A title that says so when the run is partial.
    pub fn title(&self, title: &str) -> String {
        match self.planned - self.ended {
            0 => title.to_owned(),
            _ => format!("{title} ({})", self.state()),
        }
    }

    /// The table of it.
    pub fn table(&self) -> Table {
        let header = &self.header;
        let share = |part| Cell::Share {
            part,
            whole: self.planned,
        };
        let named = |name: &str, cell: Cell| vec![Cell::text(name), cell];
        let mut rows = vec![
            named("study", Cell::text(&header.study)),
            named("study sha256", Cell::text(&header.study_sha256)),
            named("model", Cell::text(&header.identity.model)),
            named("model sha256", Cell::text(&header.identity.model_sha256)),
            named("backend", Cell::text(&header.identity.backend)),
            named("tasks", Cell::Count(header.tasks.len() as u64)),
            named("rows ended", share(self.ended)),
            named("rows with an error", share(self.errors)),
            named("calls", Cell::Count(self.calls)),
            named("sessions", Cell::Count(self.sessions)),
            named("sessions not closed", Cell::Count(self.sessions_open)),
            named(
                "wall time, s",
                Cell::number(
                    (self.sessions > self.sessions_open).then(|| self.wall_ms as f64 / 1e3),
                    1,
                ),
            ),
        ];
        if !header.model_source.is_empty() {
            rows.insert(3, named("model source", Cell::text(&header.model_source)));
        }
        if let Some(sha256) = &header.schema_sha256 {
            rows.insert(2, named("replies held to schema sha256", Cell::text(sha256)));
        }
        Table {
            id: "run",
            scope: String::new(),
            title: self.title("Run"),
            note: "Wall time is that of closed sessions. Calls are those of all rows; every table below counts only \
                   rows that were accepted or spent their budget."
                .into(),
            header: ["What", "Value"].map(str::to_owned).to_vec(),
            rows,
        }
    }
}
