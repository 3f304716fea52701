//! The tables of a trace, and the version of their form.
//!
//! Not queries: those are where they are used.

/// Version of the form below, in `PRAGMA user_version`. A store of a later version is refused.
pub const VERSION: i64 = 2;

/// What makes a store of form 1 one of form 2.
pub const FROM_1: &str = "
ALTER TABLE measurements ADD COLUMN forced_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE measurements ADD COLUMN guessed_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE measurements ADD COLUMN confirmed_tokens INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = 2;
";

/// The tables. Text columns named after JSON hold JSON.
pub const SQL: &str = "
CREATE TABLE header (json TEXT NOT NULL) STRICT;

-- One process that worked on the run.
CREATE TABLE sessions (
    session INTEGER PRIMARY KEY,
    started_utc TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    ended_utc TEXT,
    wall_ms INTEGER,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    selection TEXT NOT NULL
) STRICT;

-- All rows of the study, in its order. attempt counts retries after an error, from 1.
CREATE TABLE rows (
    row INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    lane TEXT NOT NULL,
    task TEXT NOT NULL,
    policy TEXT NOT NULL,
    budget INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 1,
    outcome TEXT,
    detail TEXT,
    last_hash TEXT NOT NULL
) STRICT;

CREATE TABLE calls (
    row INTEGER NOT NULL REFERENCES rows (row),
    attempt INTEGER NOT NULL,
    call INTEGER NOT NULL,
    messages_json TEXT NOT NULL,
    prompt_text TEXT NOT NULL,
    prompt_tokens_json TEXT NOT NULL,
    reply TEXT NOT NULL,
    reply_tokens_json TEXT NOT NULL,
    stop TEXT NOT NULL,
    reused_from INTEGER,
    candidate_json TEXT NOT NULL,
    judgement_json TEXT NOT NULL,
    feedback_json TEXT,
    repeats_plan INTEGER NOT NULL,
    identity_json TEXT NOT NULL,
    sampling_json TEXT NOT NULL,
    seed INTEGER NOT NULL,
    prompt_words INTEGER NOT NULL,
    reply_words INTEGER NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (row, attempt, call)
) STRICT, WITHOUT ROWID;

-- What may differ between two runs of the same study; neither hashed nor exported.
CREATE TABLE measurements (
    row INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    call INTEGER NOT NULL,
    session INTEGER NOT NULL,
    committed_utc TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    cached_tokens INTEGER NOT NULL,
    queued_us INTEGER NOT NULL,
    prefill_us INTEGER NOT NULL,
    decode_us INTEGER NOT NULL,
    gate_us INTEGER NOT NULL,
    forced_tokens INTEGER NOT NULL DEFAULT 0,
    guessed_tokens INTEGER NOT NULL DEFAULT 0,
    confirmed_tokens INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (row, attempt, call)
) STRICT, WITHOUT ROWID;

-- Earlier ends of rows that were tried again.
CREATE TABLE past_attempts (
    row INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT,
    last_hash TEXT NOT NULL,
    PRIMARY KEY (row, attempt)
) STRICT, WITHOUT ROWID;
";
