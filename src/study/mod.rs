//! Lanes to rows, and rows to their end: the study file, the plan, the driver, the progress display.
//!
//! Not the loop of a row (that is `agent`) and not what the rows add up to (that is `report`).

pub mod file;
pub mod plan;
pub mod progress;
pub mod run;

use crate::gate::textworld::GameError;
use crate::trace::TraceError;

/// What stops a study before or while it runs.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The study file is not one.
    #[error("{file}: {place}: {reason}")]
    File {
        /// The file.
        file: String,
        /// Key or line.
        place: String,
        /// What was expected and found.
        reason: String,
    },
    /// A game of the study cannot be loaded.
    #[error("game {name}")]
    Game {
        /// Its name in the study.
        name: String,
        /// Why.
        source: GameError,
    },
    /// The filters leave nothing to run.
    #[error(
        "no row of study {study} matches {filter}; it has {has}; to change the study itself, use --set (lane.0.seeds=[1,2])"
    )]
    NothingSelected {
        /// The study.
        study: String,
        /// What was asked for.
        filter: String,
        /// What there is.
        has: String,
    },
    /// The trace failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The agent loop and the trace disagree; a fault of this program.
    #[error("row {row}: the committed call is not the row's last one")]
    OutOfStep {
        /// The row.
        row: String,
    },
}
