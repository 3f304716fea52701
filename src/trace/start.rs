//! The start of a run, and the check that a stored one is the same run.
//!
//! Not its calls: those are committed by `store`.

use super::export::row_seed;
use super::{Header, PlannedRow, TraceError, schema};
use rusqlite::{Connection, params};
use std::path::Path;

/// Writes an empty run: tables, header, all rows of the study.
pub(super) fn create(
    connection: &mut Connection,
    header: &Header,
    rows: &[PlannedRow],
) -> rusqlite::Result<()> {
    let tx = connection.transaction()?;
    tx.execute_batch(schema::SQL)?;
    tx.execute(
        "INSERT INTO header (json) VALUES (?1)",
        [serde_json::json!(header).to_string()],
    )?;
    for row in rows {
        tx.execute(
            "INSERT INTO rows (key, lane, task, policy, budget, seed, last_hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![row.key, row.lane, row.task, row.policy, row.budget, row.seed as i64, row_seed(&row.key)],
        )?;
    }
    tx.pragma_update(None, "user_version", schema::VERSION)?;
    tx.commit()
}

/// Refuses a run whose study, model or tasks are not those of `header`.
pub(super) fn same_run(
    connection: &Connection,
    dir: &Path,
    file: &Path,
    header: &Header,
    rows: &[PlannedRow],
) -> Result<(), TraceError> {
    let stored = super::tables::header(connection, file)?;
    let changed = |what: &str, stored: &str, found: &str| {
        Err(TraceError::Changed {
            run: dir.display().to_string(),
            what: what.into(),
            stored: stored.into(),
            found: found.into(),
        })
    };
    let (old, new) = (&stored.identity, &header.identity);
    let pairs = [
        ("study (sha256)", &stored.study_sha256, &header.study_sha256),
        ("model (sha256)", &old.model_sha256, &new.model_sha256),
        (
            "chat template (sha256)",
            &old.template_sha256,
            &new.template_sha256,
        ),
        ("backend", &old.backend, &new.backend),
    ];
    if let Some((what, stored, found)) = pairs.into_iter().find(|(_, stored, found)| stored != found) {
        return changed(what, stored, found);
    }
    let hash = |header: &Header| header.schema_sha256.clone().unwrap_or_else(|| "none".into());
    if stored.schema_sha256 != header.schema_sha256 {
        return changed("schema of replies (sha256)", &hash(&stored), &hash(header));
    }
    for (task, found) in &header.tasks {
        match stored.tasks.get(task) {
            Some(stored) if stored == found => {}
            Some(stored) => return changed(&format!("task {task} (sha256)"), stored, found),
            None => return changed(&format!("task {task} (sha256)"), "no such task", found),
        }
    }
    // The rows follow from the study, so they can differ only when the program has changed what a study means.
    let old = super::tables::Tables::new(connection, file).rows()?;
    let old: Vec<&str> = old.iter().map(|row| row.planned.key.as_str()).collect();
    let new: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    if old.len() != new.len() {
        return changed("number of rows", &old.len().to_string(), &new.len().to_string());
    }
    match old.iter().zip(&new).find(|(old, new)| old != new) {
        Some((old, new)) => changed("list of rows", old, new),
        None => Ok(()),
    }
}
