//! The queries behind the reader's side, over an open connection: the writer's or a reader's.
//!
//! Not an interface of the module: what others may read is `read`'s.

use super::export::CallLine;
use super::read::StoredRow;
use super::store::sqlite_error;
use super::{CallRecord, Header, Outcome, PlannedRow, TraceError, schema};
use crate::engine::{Cost, Drafts};
use rusqlite::{Connection, Row};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

/// Measurements of one call as stored.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// What the engine measured.
    cost: Cost,
    /// Parser and gates, in microseconds.
    gate_us: u64,
}

/// The form of a store: that which this program writes, or 0 for a new, empty database. A store of an earlier form is
/// brought to this one, which adds to it and changes nothing; one of a later form is refused.
pub(super) fn check_form(connection: &Connection, file: &Path) -> Result<i64, TraceError> {
    let wrap = |source| sqlite_error(file, source);
    let stored = || connection.query_row("PRAGMA user_version", [], |r| r.get::<_, i64>(0));
    let mut form = stored().map_err(wrap)?;
    if form == 1 {
        // Asked again under the lock: another process may have been faster.
        connection.execute_batch("BEGIN IMMEDIATE").map_err(wrap)?;
        if stored().map_err(wrap)? == 1 {
            connection.execute_batch(schema::FROM_1).map_err(wrap)?;
        }
        connection.execute_batch("COMMIT").map_err(wrap)?;
        form = stored().map_err(wrap)?;
    }
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

/// One call as stored, unparsed columns read as JSON.
pub(super) struct Stored {
    pub(super) attempt: i64,
    pub(super) line: CallLine,
    pub(super) hash: String,
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

    pub(super) fn query<T, P: rusqlite::Params>(
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
    pub(super) fn stored(&self, row: &StoredRow) -> Result<Vec<Stored>, TraceError> {
        let sql = "SELECT c.attempt, c.call, messages_json, prompt_text, prompt_tokens_json, reply, reply_tokens_json,
                stop, reused_from, candidate_json, judgement_json, feedback_json, repeats_plan, identity_json,
                sampling_json, seed, prompt_words, reply_words, hash,
                coalesce(cached_tokens, 0), coalesce(queued_us, 0), coalesce(prefill_us, 0),
                coalesce(decode_us, 0), coalesce(gate_us, 0), coalesce(forced_tokens, 0),
                coalesce(guessed_tokens, 0), coalesce(confirmed_tokens, 0)
            FROM calls c LEFT JOIN measurements m ON m.row = c.row AND m.attempt = c.attempt AND m.call = c.call
            WHERE c.row = ?1 ORDER BY c.attempt, c.call";
        let key = &row.planned.key;
        let raw = self.query(sql, [row.id], |r| {
            let texts = [2, 4, 6, 9, 10, 13, 14].map(|i| r.get::<_, String>(i));
            let texts: Vec<String> = texts.into_iter().collect::<Result<_, _>>()?;
            let numbers = [15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26].map(|i| r.get::<_, i64>(i));
            let n: Vec<u64> = numbers
                .into_iter()
                .map(|n| n.map(|n| n as u64))
                .collect::<Result<_, _>>()?;
            let cost = Cost {
                cached_tokens: n[3] as usize,
                queued_us: n[4],
                prefill_us: n[5],
                decode_us: n[6],
                forced_tokens: n[8] as usize,
                drafts: Drafts {
                    guessed: n[9],
                    confirmed: n[10],
                },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_form_1_gains_what_form_2_has_and_a_later_one_is_refused() {
        let connection = Connection::open_in_memory().unwrap();
        let file = Path::new("trace.sqlite");
        connection.execute_batch(schema::SQL).unwrap();
        connection
            .execute_batch(
                "ALTER TABLE measurements DROP COLUMN forced_tokens;
                ALTER TABLE measurements DROP COLUMN guessed_tokens;
                ALTER TABLE measurements DROP COLUMN confirmed_tokens;
                INSERT INTO measurements VALUES (1, 1, 1, 1, 'now', 64, 1, 2, 3, 4);
                PRAGMA user_version = 1;",
            )
            .unwrap();
        for _ in 0..2 {
            assert_eq!(check_form(&connection, file).unwrap(), schema::VERSION);
            let stored: (i64, i64) = connection
                .query_row("SELECT gate_us, forced_tokens FROM measurements", [], |r| {
                    Ok((r.get(0)?, r.get(1)?))
                })
                .unwrap();
            assert_eq!(stored, (4, 0));
        }
        connection.pragma_update(None, "user_version", 3).unwrap();
        let said = check_form(&connection, file).unwrap_err().to_string();
        assert!(
            said.contains("expected form 2, found form 3, of another version"),
            "{said}"
        );
    }
}
