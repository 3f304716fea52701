//! The writer's side of a trace: open or resume, commit a call, end a row.
//!
//! Not the reader's side (`read`) and not the check (`verify`). [`Committed`] is made here and nowhere else: it is
//! the proof that a call is on disk, and the agent loop builds no further prompt without it.

use super::export::{CallLine, chain_hash, row_seed};
use super::lock::RunLock;
use super::{CallRecord, Header, Outcome, PlannedRow, TraceError, start};
use rusqlite::{Connection, ErrorCode, Transaction, params};
use std::path::{Path, PathBuf};

/// Proof that a call of a row is durable. Only [`Trace`] makes one; it is used up by the next prompt.
///
/// ```
/// use veriharness::trace::Committed;
/// fn next(committed: Committed) -> u32 {
///     let call = committed.call();
///     drop(committed);
///     call
/// }
/// ```
/// It cannot be made by hand,
/// ```compile_fail,E0451
/// use veriharness::trace::Committed;
/// let forged = Committed { row: "lane/task".into(), call: 1 };
/// ```
/// cloned,
/// ```compile_fail,E0599
/// use veriharness::trace::Committed;
/// fn twice(committed: Committed) -> (Committed, Committed) {
///     (committed.clone(), committed)
/// }
/// ```
/// or used for two prompts.
/// ```compile_fail,E0382
/// use veriharness::trace::Committed;
/// fn twice(committed: Committed) {
///     drop(committed);
///     drop(committed);
/// }
/// ```
#[derive(Debug)]
#[must_use = "the next prompt of the row needs it"]
pub struct Committed {
    row: String,
    call: u32,
}

impl Committed {
    /// Key of the row.
    pub fn row(&self) -> &str {
        &self.row
    }

    /// The call that is durable, from 1.
    pub fn call(&self) -> u32 {
        self.call
    }
}

/// A row as the store has it when a session starts.
#[derive(Debug)]
pub struct Resumed {
    /// The row.
    pub row: PlannedRow,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
    /// The calls of its current attempt, in order.
    pub calls: Vec<CallRecord>,
    /// Proof for the last of them.
    pub committed: Option<Committed>,
}

/// A run that is being written.
#[derive(Debug)]
pub struct Trace {
    connection: Connection,
    file: PathBuf,
    identity_json: String,
    session: i64,
    _lock: RunLock,
}

impl Trace {
    /// Opens the run in `dir`, or starts it: `rows` is the whole study in its order.
    ///
    /// # Errors
    /// [`TraceError::Locked`] when another process has it; [`TraceError::Changed`] when the stored run was of another
    /// study, task or model; or what SQLite and the system say.
    pub fn open(
        dir: &Path,
        header: &Header,
        rows: &[PlannedRow],
        selection: &str,
    ) -> Result<Self, TraceError> {
        std::fs::create_dir_all(dir).map_err(|source| TraceError::Io {
            file: dir.display().to_string(),
            source,
        })?;
        let lock = RunLock::take(dir)?;
        let file = dir.join("trace.sqlite");
        let wrap = |source| sqlite_error(&file, source);
        let mut connection = Connection::open(&file).map_err(wrap)?;
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")
            .map_err(wrap)?;
        match super::tables::check_form(&connection, &file)? {
            0 => start::create(&mut connection, header, rows).map_err(wrap)?,
            _ => start::same_run(&connection, dir, &file, header, rows)?,
        }
        let sql = "INSERT INTO sessions (pid, version, selection) VALUES (?1, ?2, ?3)";
        let version = crate::trace::PROGRAM;
        connection
            .execute(sql, params![std::process::id(), version, selection])
            .map_err(wrap)?;
        let session = connection.last_insert_rowid();
        let identity_json = serde_json::json!(header.identity).to_string();
        Ok(Self {
            connection,
            file,
            identity_json,
            session,
            _lock: lock,
        })
    }

    /// Bounds the database to `pages` pages; what comes after is a full disk. For tests of that fault.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn limit_pages(&self, pages: u32) -> Result<(), TraceError> {
        self.connection
            .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
            .map_err(|source| sqlite_error(&self.file, source))
    }

    /// All rows with what is stored of them, in the study's order.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`] when a stored call cannot be read back.
    pub fn resume(&self) -> Result<Vec<Resumed>, TraceError> {
        let reader = super::tables::Tables::new(&self.connection, &self.file);
        let mut resumed = Vec::new();
        for row in reader.rows()? {
            let calls = reader.records(&row)?;
            let committed = calls.last().map(|last| Committed {
                row: row.planned.key.clone(),
                call: last.call,
            });
            resumed.push(Resumed {
                outcome: row.outcome,
                row: row.planned,
                calls,
                committed,
            });
        }
        Ok(resumed)
    }

    /// Makes a call durable, and with it the end of the row when this call ends it.
    ///
    /// # Errors
    /// [`TraceError::Order`] when it is not the row's next call, [`TraceError::DiskFull`], [`TraceError::NonFinite`];
    /// nothing of the call is stored then.
    pub fn commit(
        &mut self,
        row: &PlannedRow,
        record: &CallRecord,
        outcome: Option<Outcome>,
    ) -> Result<Committed, TraceError> {
        finite(row, record)?;
        let file = self.file.clone();
        let wrap = |source| sqlite_error(&file, source);
        let line = CallLine::new(row, record, &self.identity_json);
        let session = self.session;
        let tx = self.connection.transaction().map_err(wrap)?;
        let (id, attempt, previous): (i64, i64, String) = tx
            .query_row(
                "SELECT row, attempt, last_hash FROM rows WHERE key = ?1",
                [&row.key],
                |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)),
            )
            .map_err(wrap)?;
        let last: Option<u32> = tx
            .query_row(
                "SELECT max(call) FROM calls WHERE row = ?1 AND attempt = ?2",
                [id, attempt],
                |r| r.get(0),
            )
            .map_err(wrap)?;
        let expected = last.unwrap_or(0) + 1;
        if record.call != expected {
            return Err(TraceError::Order {
                row: row.key.clone(),
                expected,
                found: record.call,
            });
        }
        let hash = chain_hash(&previous, &line.canonical());
        insert(&tx, id, attempt, session, record, &line, &hash).map_err(wrap)?;
        tx.execute(
            "UPDATE rows SET last_hash = ?2, outcome = ?3 WHERE row = ?1",
            params![id, hash, outcome.map(Outcome::name)],
        )
        .map_err(wrap)?;
        tx.commit().map_err(wrap)?;
        Ok(Committed {
            row: row.key.clone(),
            call: record.call,
        })
    }

    /// Ends a row that no call ended: an error, or a context that is full.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn end_row(&mut self, row: &PlannedRow, outcome: Outcome, detail: &str) -> Result<(), TraceError> {
        let sql = "UPDATE rows SET outcome = ?2, detail = ?3 WHERE key = ?1 AND outcome IS NULL";
        let changed = self
            .connection
            .execute(sql, params![row.key, outcome.name(), detail])
            .map_err(|source| sqlite_error(&self.file, source))?;
        match changed {
            1 => Ok(()),
            _ => Err(TraceError::Corrupt {
                file: self.file.display().to_string(),
                place: format!("row {}", row.key),
                expected: "a row that has not ended".into(),
                found: "none".into(),
            }),
        }
    }

    /// Opens those of `rows` again that ended in an error; their calls so far are kept as a past attempt, and a new
    /// hash chain begins. Returns how many.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn retry_errors<'k>(&mut self, rows: impl Iterator<Item = &'k str>) -> Result<usize, TraceError> {
        let wrap = |source| sqlite_error(&self.file, source);
        let tx = self.connection.transaction().map_err(wrap)?;
        let failed = "key = ?1 AND outcome IN ('engine_error', 'gate_error', 'cancelled')";
        let keep = format!(
            "INSERT INTO past_attempts SELECT row, attempt, outcome, detail, last_hash FROM rows WHERE {failed}"
        );
        let open = format!(
            "UPDATE rows SET attempt = attempt + 1, outcome = NULL, detail = NULL, last_hash = ?2 WHERE {failed}"
        );
        let mut count = 0;
        for key in rows {
            tx.execute(&keep, [key]).map_err(wrap)?;
            count += tx.execute(&open, [key, &row_seed(key)]).map_err(wrap)?;
        }
        tx.commit().map_err(wrap)?;
        Ok(count)
    }

    /// Notes the end of this session. A session without an end was killed.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn end_session(&mut self, wall_ms: u64) -> Result<(), TraceError> {
        let sql = "UPDATE sessions SET ended_utc = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), wall_ms = ?2 WHERE session = ?1";
        self.connection
            .execute(sql, params![self.session, wall_ms as i64])
            .map(|_| ())
            .map_err(|source| sqlite_error(&self.file, source))
    }
}

/// SQLite's error with its file, a full disk being an error of its own.
pub(super) fn sqlite_error(file: &Path, source: rusqlite::Error) -> TraceError {
    let file = file.display().to_string();
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => TraceError::DiskFull { file },
        _ => TraceError::Sqlite { file, source },
    }
}

fn insert(
    tx: &Transaction<'_>,
    id: i64,
    attempt: i64,
    session: i64,
    record: &CallRecord,
    line: &CallLine,
    hash: &str,
) -> rusqlite::Result<()> {
    tx.execute(
        "INSERT INTO calls VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
        params![
            id,
            attempt,
            line.call,
            line.messages.to_string(),
            line.prompt_text,
            line.prompt_tokens.to_string(),
            line.reply,
            line.reply_tokens.to_string(),
            line.stop,
            line.reused_from,
            line.candidate.to_string(),
            line.judgement.to_string(),
            line.feedback.as_ref().map(ToString::to_string),
            line.repeats_plan,
            line.identity.to_string(),
            line.sampling.to_string(),
            line.seed as i64,
            line.prompt_words as i64,
            line.reply_words as i64,
            hash,
        ],
    )?;
    tx.execute(
        "INSERT INTO measurements (row, attempt, call, session, cached_tokens, queued_us, prefill_us, decode_us, gate_us,
            forced_tokens, guessed_tokens, confirmed_tokens)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            id,
            attempt,
            line.call,
            session,
            record.cost.cached_tokens as i64,
            record.cost.queued_us as i64,
            record.cost.prefill_us as i64,
            record.cost.decode_us as i64,
            record.gate_us as i64,
            record.cost.forced_tokens as i64,
            record.cost.drafts.guessed as i64,
            record.cost.drafts.confirmed as i64,
        ],
    )?;
    Ok(())
}

/// JSON has no NaN: a store that took one would give back something else.
fn finite(row: &PlannedRow, record: &CallRecord) -> Result<(), TraceError> {
    let sampling = &record.sampling;
    let fields = [
        ("temperature", sampling.temperature),
        ("top_p", sampling.top_p),
        ("min_p", sampling.min_p),
    ];
    match fields.into_iter().find(|(_, value)| !value.is_finite()) {
        Some((field, value)) => Err(TraceError::NonFinite {
            row: row.key.clone(),
            call: record.call,
            field,
            value,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Identity;

    #[test]
    fn commits_are_synced_to_a_write_ahead_log() {
        let dir = tempfile::tempdir().unwrap();
        let text = String::new;
        let identity = Identity {
            model: text(),
            model_sha256: text(),
            template_sha256: text(),
            backend: text(),
        };
        let header = Header {
            study: text(),
            study_sha256: text(),
            study_toml: text(),
            identity,
            model_source: text(),
            schema_sha256: None,
            tasks: Default::default(),
        };
        let trace = Trace::open(dir.path(), &header, &[], "").unwrap();
        let pragma = |name: &str| -> String {
            let value = |r: &rusqlite::Row<'_>| r.get::<_, rusqlite::types::Value>(0);
            format!(
                "{:?}",
                trace
                    .connection
                    .query_row(&format!("PRAGMA {name}"), [], value)
                    .unwrap()
            )
        };
        assert_eq!(pragma("journal_mode"), "Text(\"wal\")");
        assert_eq!(pragma("synchronous"), "Integer(2)", "2 is FULL");
    }
}
