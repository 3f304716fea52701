//! The reader's side of a trace: rows and calls as stored, for reports, transcripts, export and resume.
//!
//! Not tables of results: counting and comparing is `report`'s.

use super::export::CallLine;
use super::store::sqlite_error;
use super::{CallRecord, Header, Outcome, PlannedRow, TraceError, schema};
use crate::engine::Cost;
use rusqlite::{Connection, OpenFlags, Row};
use serde::de::DeserializeOwned;
use serde_json::Value;
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

/// Measurements of one call as stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// What the engine measured.
    pub cost: Cost,
    /// Parser and gates, in microseconds.
    pub gate_us: u64,
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

/// Refuses a store of another form than this program writes. A new, empty database is of form 0.
pub(super) fn check_form(connection: &Connection, file: &Path) -> Result<i64, TraceError> {
    let form: i64 = connection
        .query_row("PRAGMA user_version", [], |r| r.get(0))
        .map_err(|source| sqlite_error(file, source))?;
    match form {
        0 | schema::VERSION => Ok(form),
        other => Err(TraceError::Corrupt {
            file: file.display().to_string(),
            place: "user_version".into(),
            expected: format!("form {}", schema::VERSION),
            found: format!("form {other}, of another version of this program"),
        }),
    }
}

/// Reads what the run is.
pub(super) fn header(connection: &Connection, file: &Path) -> Result<Header, TraceError> {
    let json: String = connection
        .query_row("SELECT json FROM header", [], |r| r.get(0))
        .map_err(|source| sqlite_error(file, source))?;
    from_json(&json, file, || "header".into())
}

fn from_json<T: DeserializeOwned>(
    json: &str,
    file: &Path,
    place: impl Fn() -> String,
) -> Result<T, TraceError> {
    serde_json::from_str(json).map_err(|error| TraceError::Corrupt {
        file: file.display().to_string(),
        place: place(),
        expected: "the JSON that this program writes".into(),
        found: error.to_string(),
    })
}

struct Stored {
    attempt: i64,
    line: CallLine,
    hash: String,
    measured: Measured,
}

/// Queries over an open connection, the writer's or a reader's.
pub(super) struct Tables<'a> {
    connection: &'a Connection,
    file: &'a Path,
}

impl<'a> Tables<'a> {
    pub(super) fn new(connection: &'a Connection, file: &'a Path) -> Self {
        Self { connection, file }
    }

    fn query<T, P: rusqlite::Params>(
        &self,
        sql: &str,
        params: P,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, TraceError> {
        let run = || -> rusqlite::Result<Vec<T>> {
            self.connection
                .prepare_cached(sql)?
                .query_map(params, read)?
                .collect()
        };
        run().map_err(|source| sqlite_error(self.file, source))
    }

    pub(super) fn rows(&self) -> Result<Vec<StoredRow>, TraceError> {
        let sql = "SELECT row, key, lane, task, policy, budget, seed, attempt, outcome, detail, last_hash FROM rows ORDER BY row";
        let rows = self.query(sql, [], |r| {
            let outcome: Option<String> = r.get(8)?;
            let seed: i64 = r.get(6)?;
            let planned = PlannedRow {
                key: r.get(1)?,
                lane: r.get(2)?,
                task: r.get(3)?,
                policy: r.get(4)?,
                budget: r.get(5)?,
                seed: seed as u64,
            };
            let row = StoredRow {
                id: r.get(0)?,
                planned,
                attempt: r.get(7)?,
                outcome: None,
                detail: r.get(9)?,
                last_hash: r.get(10)?,
            };
            Ok((row, outcome))
        })?;
        rows.into_iter()
            .map(|(mut row, outcome)| {
                row.outcome = match outcome {
                    None => None,
                    Some(name) => Some(Outcome::parse(&name).ok_or_else(|| TraceError::Corrupt {
                        file: self.file.display().to_string(),
                        place: format!("row {}, outcome", row.planned.key),
                        expected: "one of the outcomes".into(),
                        found: name.clone(),
                    })?),
                };
                Ok(row)
            })
            .collect()
    }

    /// The calls of the row's current attempt.
    pub(super) fn records(&self, row: &StoredRow) -> Result<Vec<CallRecord>, TraceError> {
        let stored = self.stored(row)?;
        stored
            .into_iter()
            .filter(|s| s.attempt == row.attempt)
            .map(|s| self.record(s))
            .collect()
    }

    fn record(&self, stored: Stored) -> Result<CallRecord, TraceError> {
        let Stored { line, measured, .. } = stored;
        let place = |column: &str| format!("row {}, call {}, {column}", line.row, line.call);
        let typed = |value: Value, column: &'static str| (value.to_string(), column);
        macro_rules! read {
            ($value:expr, $column:literal) => {{
                let (json, column) = typed($value, $column);
                from_json(&json, self.file, || place(column))?
            }};
        }
        Ok(CallRecord {
            call: line.call,
            messages: read!(line.messages.clone(), "messages"),
            prompt_text: line.prompt_text.clone(),
            prompt_tokens: read!(line.prompt_tokens.clone(), "prompt_tokens"),
            reply: line.reply.clone(),
            reply_tokens: read!(line.reply_tokens.clone(), "reply_tokens"),
            stop: read!(Value::from(line.stop.clone()), "stop"),
            reused_from: line.reused_from,
            candidate: read!(line.candidate.clone(), "candidate"),
            judgement: read!(line.judgement.clone(), "judgement"),
            feedback: match &line.feedback {
                Some(feedback) => Some(read!(feedback.clone(), "feedback")),
                None => None,
            },
            repeats_plan: line.repeats_plan,
            sampling: read!(line.sampling.clone(), "sampling"),
            prompt_words: line.prompt_words,
            reply_words: line.reply_words,
            cost: measured.cost,
            gate_us: measured.gate_us,
        })
    }

    /// Everything stored of a row, past attempts first.
    fn stored(&self, row: &StoredRow) -> Result<Vec<Stored>, TraceError> {
        let sql = "SELECT c.attempt, c.call, messages_json, prompt_text, prompt_tokens_json, reply, reply_tokens_json,
                stop, reused_from, candidate_json, judgement_json, feedback_json, repeats_plan, identity_json,
                sampling_json, seed, prompt_words, reply_words, hash,
                coalesce(cached_tokens, 0), coalesce(queued_us, 0), coalesce(prefill_us, 0),
                coalesce(decode_us, 0), coalesce(gate_us, 0)
            FROM calls c LEFT JOIN measurements m ON m.row = c.row AND m.attempt = c.attempt AND m.call = c.call
            WHERE c.row = ?1 ORDER BY c.attempt, c.call";
        let key = &row.planned.key;
        let raw = self.query(sql, [row.id], |r| {
            let texts = [2, 4, 6, 9, 10, 13, 14].map(|i| r.get::<_, String>(i));
            let texts: Vec<String> = texts.into_iter().collect::<Result<_, _>>()?;
            let numbers = [15, 16, 17, 19, 20, 21, 22, 23].map(|i| r.get::<_, i64>(i));
            let n: Vec<u64> = numbers
                .into_iter()
                .map(|n| n.map(|n| n as u64))
                .collect::<Result<_, _>>()?;
            let cost = Cost {
                cached_tokens: n[3] as usize,
                queued_us: n[4],
                prefill_us: n[5],
                decode_us: n[6],
            };
            let line = CallLine {
                row: key.clone(),
                call: r.get(1)?,
                messages: Value::Null,
                prompt_text: r.get(3)?,
                prompt_tokens: Value::Null,
                reply: r.get(5)?,
                reply_tokens: Value::Null,
                stop: r.get(7)?,
                reused_from: r.get(8)?,
                candidate: Value::Null,
                judgement: Value::Null,
                feedback: None,
                repeats_plan: r.get(12)?,
                identity: Value::Null,
                sampling: Value::Null,
                seed: n[0],
                prompt_words: n[1],
                reply_words: n[2],
            };
            let measured = Measured { cost, gate_us: n[7] };
            let stored = Stored {
                attempt: r.get(0)?,
                line,
                hash: r.get(18)?,
                measured,
            };
            Ok((stored, texts, r.get::<_, Option<String>>(11)?))
        })?;
        raw.into_iter()
            .map(|(mut stored, texts, feedback)| {
                let call = stored.line.call;
                let json = |text: &str| from_json(text, self.file, || format!("row {key}, call {call}"));
                let line = &mut stored.line;
                let columns = [
                    &mut line.messages,
                    &mut line.prompt_tokens,
                    &mut line.reply_tokens,
                    &mut line.candidate,
                    &mut line.judgement,
                    &mut line.identity,
                    &mut line.sampling,
                ];
                for (column, text) in columns.into_iter().zip(&texts) {
                    *column = json(text)?;
                }
                line.feedback = feedback.as_deref().map(json).transpose()?;
                Ok(stored)
            })
            .collect()
    }
}
