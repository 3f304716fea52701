//! The reader's side of a trace: rows and calls as stored, for reports, transcripts, export and resume.
//!
//! Not tables of results: counting and comparing is `report`'s.

use super::export::CallLine;
use super::store::sqlite_error;
use super::tables::{Tables, check_form, header};
use super::{CallRecord, Header, Outcome, PlannedRow, TraceError};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};

/// A row as stored.
#[derive(Clone, Debug)]
pub struct StoredRow {
    /// Number in the study's order, from 1.
    pub id: i64,
    /// The plan of it.
    pub planned: PlannedRow,
    /// Current attempt, from 1.
    pub attempt: i64,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
    /// Why, when an error ended it.
    pub detail: Option<String>,
    /// The end of its hash chain.
    pub last_hash: String,
}

/// One process that worked on the run.
#[derive(Clone, Debug)]
pub struct Session {
    /// When it started, UTC.
    pub started_utc: String,
    /// How long it took; `None` when it was killed.
    pub wall_ms: Option<u64>,
    /// Which rows it was asked to run; empty for all.
    pub selection: String,
    /// Version and commit of the program.
    pub program: String,
    /// Calls that it committed.
    pub calls: u64,
}

/// An earlier attempt of a row that was tried again.
#[derive(Clone, Debug)]
pub struct PastAttempt {
    /// Which, from 1.
    pub attempt: i64,
    /// The end of its hash chain.
    pub last_hash: String,
}

/// One call as stored, of any attempt.
#[derive(Clone, Debug)]
pub struct Link {
    /// The attempt, from 1.
    pub attempt: i64,
    /// The call.
    pub line: CallLine,
    /// Its stored hash.
    pub hash: String,
}

/// A run opened for reading. A run that is being written can be read at the same time.
#[derive(Debug)]
pub struct RunReader {
    connection: Connection,
    file: PathBuf,
    /// What the run is.
    pub header: Header,
}

impl RunReader {
    /// Opens the run in `dir`.
    ///
    /// # Errors
    /// When there is no trace, or it is not of this form.
    pub fn open(dir: &Path) -> Result<Self, TraceError> {
        let file = dir.join("trace.sqlite");
        if !file.is_file() {
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no trace here");
            return Err(TraceError::Io {
                file: file.display().to_string(),
                source,
            });
        }
        let connection = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)
            .map_err(|source| sqlite_error(&file, source))?;
        check_form(&connection, &file)?;
        let header = header(&connection, &file)?;
        Ok(Self {
            connection,
            file,
            header,
        })
    }

    fn tables(&self) -> Tables<'_> {
        Tables::new(&self.connection, &self.file)
    }

    /// All rows in the study's order.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`] or what SQLite says.
    pub fn rows(&self) -> Result<Vec<StoredRow>, TraceError> {
        self.tables().rows()
    }

    /// The calls of a row's current attempt, complete.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`] or what SQLite says.
    pub fn calls(&self, row: &StoredRow) -> Result<Vec<CallRecord>, TraceError> {
        self.tables().records(row)
    }

    /// The canonical lines of a row's current attempt.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`] or what SQLite says.
    pub fn lines(&self, row: &StoredRow) -> Result<Vec<CallLine>, TraceError> {
        let stored = self.tables().stored(row)?;
        Ok(stored
            .into_iter()
            .filter(|s| s.attempt == row.attempt)
            .map(|s| s.line)
            .collect())
    }

    /// All calls of a row in the order in which they were committed, past attempts first.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`] or what SQLite says.
    pub fn chain(&self, row: &StoredRow) -> Result<Vec<Link>, TraceError> {
        let stored = self.tables().stored(row)?;
        Ok(stored
            .into_iter()
            .map(|s| Link {
                attempt: s.attempt,
                line: s.line,
                hash: s.hash,
            })
            .collect())
    }

    /// The earlier attempts of a row, oldest first.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn past_attempts(&self, row: &StoredRow) -> Result<Vec<PastAttempt>, TraceError> {
        let sql = "SELECT attempt, last_hash FROM past_attempts WHERE row = ?1 ORDER BY attempt";
        self.tables().query(sql, [row.id], |r| {
            Ok(PastAttempt {
                attempt: r.get(0)?,
                last_hash: r.get(1)?,
            })
        })
    }

    /// The sessions, oldest first.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn sessions(&self) -> Result<Vec<Session>, TraceError> {
        let sql = "SELECT started_utc, wall_ms, selection, version,
                (SELECT count(*) FROM measurements m WHERE m.session = s.session)
            FROM sessions s ORDER BY session";
        self.tables().query(sql, [], |r| {
            let wall: Option<i64> = r.get(1)?;
            Ok(Session {
                started_utc: r.get(0)?,
                wall_ms: wall.map(|ms| ms as u64),
                selection: r.get(2)?,
                program: r.get(3)?,
                calls: r.get::<_, i64>(4)? as u64,
            })
        })
    }

    /// What SQLite's own check of the file says; `ok` when it is sound.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn integrity(&self) -> Result<String, TraceError> {
        let found = self
            .tables()
            .query("PRAGMA integrity_check", [], |r| r.get::<_, String>(0))?;
        Ok(found.join("; "))
    }

    /// Calls that belong to no row.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn orphans(&self) -> Result<i64, TraceError> {
        let sql = "SELECT count(*) FROM calls WHERE row NOT IN (SELECT row FROM rows)";
        let counts = self.tables().query(sql, [], |r| r.get(0))?;
        Ok(counts.first().copied().unwrap_or(0))
    }
}
