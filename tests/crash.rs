//! Claim: whatever kills a run, at most the call in flight is done again, and the resumed run exports the same
//! bytes as an uninterrupted one.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use veriharness::engine::scripted::ScriptedEngine;
use veriharness::engine::{Engine, EngineError, Finished, Identity, Prompt, Request, RequestId, Stats};
use veriharness::model::chat::Message;
use veriharness::study::StudyError;
use veriharness::study::file::Study;
use veriharness::study::plan::{Plan, Selection};
use veriharness::study::progress::Silent;
use veriharness::study::run::{Settings, Summary, run};
use veriharness::trace::export::export;
use veriharness::trace::verify::verify;
use veriharness::trace::{Header, PlannedRow, RunReader, Trace, TraceError};

const STUDY: &str = "name = \"crash\"\nprofile = \"compact\"\nmodel = \"scripted\"\n[[lane]]\nname = \"primary\"\ngames = [\"20261061\", \"20261062\"]\n";

fn plan() -> Plan {
    Plan::new(Study::parse("crash.toml", STUDY, &[]).unwrap()).unwrap()
}

/// Replies that take rows through every kind of call: rejected, unparseable, repeated (so reused), accepted.
fn script() -> String {
    let mut lines = String::new();
    for row in &plan().rows {
        let win = match row.planned.task.as_str() {
            "20261061" => r#"{"commands": ["unlock type 9 chest with type 9 passkey", "open type 9 chest"]}"#,
            _ => r#"{"commands": ["go east", "take nest of insects"]}"#,
        };
        let wrong = r#"{"commands": ["look", "fly"]}"#;
        let replies = match row.policy.name() {
            "RawDiag" => vec![wrong, wrong, wrong, wrong],
            "LocObs" => vec!["I would go east.", wrong, r#"{"commands": ["look"]}"#, "```"],
            "SameNL" => vec![wrong, "{\"commands\": [", win],
            _ => vec![wrong, win],
        };
        for (i, reply) in replies.into_iter().enumerate() {
            let stop = if reply.ends_with('[') {
                "max_tokens"
            } else {
                "end_of_turn"
            };
            let line =
                serde_json::json!({ "row": row.planned.key, "call": i + 1, "reply": reply, "stop": stop });
            lines += &format!("{line}\n");
        }
    }
    lines
}

/// Plays the script back and does something at every prompt and every completion.
struct Watched<'a> {
    inner: ScriptedEngine,
    events: std::cell::Cell<usize>,
    at_event: &'a dyn Fn(usize),
}

impl Watched<'_> {
    fn event(&self) {
        self.events.set(self.events.get() + 1);
        (self.at_event)(self.events.get());
    }
}

impl Engine for Watched<'_> {
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }
    fn encode(&self, messages: &[Message]) -> Result<Prompt, EngineError> {
        self.event();
        self.inner.encode(messages)
    }
    fn submit(&mut self, request: Request) -> RequestId {
        self.inner.submit(request)
    }
    fn step(&mut self) -> Vec<Finished> {
        let finished = self.inner.step();
        self.event();
        finished
    }
    fn pending(&self) -> usize {
        self.inner.pending()
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

fn header(plan: &Plan, identity: &Identity) -> Header {
    Header {
        study: plan.study.name.clone(),
        study_sha256: plan.study.sha256(),
        study_toml: plan.study.to_toml(),
        identity: identity.clone(),
        model_source: String::new(),
        schema_sha256: None,
        tasks: plan.tasks.clone(),
    }
}

fn open(dir: &Path) -> Result<Trace, TraceError> {
    let plan = plan();
    let engine = ScriptedEngine::parse("script", &script()).unwrap();
    let rows: Vec<PlannedRow> = plan.rows.iter().map(|row| row.planned.clone()).collect();
    Trace::open(dir, &header(&plan, engine.identity()), &rows, "")
}

fn drive(
    trace: &mut Trace,
    concurrency: usize,
    at_event: &dyn Fn(usize),
) -> (Result<Summary, StudyError>, usize) {
    let rows = plan().select(&Selection::default()).unwrap();
    let inner = ScriptedEngine::parse("script", &script()).unwrap();
    let mut engine = Watched {
        inner,
        events: Default::default(),
        at_event,
    };
    let stop = AtomicBool::new(false);
    let summary = run(
        &rows,
        &mut engine,
        trace,
        &mut Silent,
        Settings { concurrency },
        &stop,
    );
    (summary, engine.events.get())
}

fn exported(dir: &Path) -> String {
    let run = RunReader::open(dir).unwrap();
    let findings = verify(&run).unwrap();
    assert!(findings.problems.is_empty(), "{:?}", findings.problems);
    let mut bytes = Vec::new();
    export(&run, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// An uninterrupted run: its export and its number of events.
fn uninterrupted() -> (String, usize) {
    let dir = tempfile::tempdir().unwrap();
    let (summary, events) = drive(&mut open(dir.path()).unwrap(), 1, &|_| ());
    let summary = summary.unwrap();
    assert_eq!(
        (summary.rows, summary.done, summary.accepted, summary.errors),
        (8, 8, 4, 0)
    );
    (exported(dir.path()), events)
}

#[test]
fn the_script_reaches_every_kind_of_call() {
    let (export, events) = uninterrupted();
    for part in [
        "\"reused_from\":2",
        "reply_unparseable",
        "action_invalid",
        "quest_incomplete",
        "\"truncated\"",
        "\"accepted\"",
    ] {
        assert!(export.contains(part), "no call with {part}");
    }
    assert!(events > 30, "only {events} events");
}

/// The child of the next test; on its own it has nothing to do.
#[test]
fn child_that_kills_itself() {
    let (Ok(dir), Ok(at)) = (std::env::var("CRASH_DIR"), std::env::var("CRASH_AT")) else {
        return;
    };
    let at: usize = at.parse().unwrap();
    let kill = |event: usize| {
        if event == at {
            let pid = std::process::id().to_string();
            Command::new("kill").args(["-9", &pid]).status().unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
    };
    drive(&mut open(Path::new(&dir)).unwrap(), 1, &kill).0.unwrap();
}

#[test]
fn sigkill_at_every_event_then_resume_gives_the_same_export() {
    let (expected, events) = uninterrupted();
    for at in 1..=events {
        let dir = tempfile::tempdir().unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_kills_itself", "--nocapture"])
            .env("CRASH_DIR", dir.path())
            .env("CRASH_AT", at.to_string())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), None, "event {at}: the child was to be killed");
        drive(&mut open(dir.path()).unwrap(), 1, &|_| ()).0.unwrap();
        assert_eq!(exported(dir.path()), expected, "killed at event {at}");
    }
}

#[test]
fn concurrency_changes_nothing_that_is_stored() {
    let (expected, _) = uninterrupted();
    for concurrency in [2, 5, 16] {
        let dir = tempfile::tempdir().unwrap();
        drive(&mut open(dir.path()).unwrap(), concurrency, &|_| ())
            .0
            .unwrap();
        assert_eq!(exported(dir.path()), expected, "{concurrency} rows at once");
    }
}

#[test]
fn a_full_disk_at_any_page_is_a_typed_error_and_the_run_resumes() {
    let (expected, _) = uninterrupted();
    let mut refused = 0;
    for pages in (10..).step_by(3) {
        let dir = tempfile::tempdir().unwrap();
        let mut trace = open(dir.path()).unwrap();
        trace.limit_pages(pages).unwrap();
        let (result, _) = drive(&mut trace, 1, &|_| ());
        drop(trace);
        match result {
            Ok(_) => break,
            Err(StudyError::Trace(TraceError::DiskFull { file })) => assert!(file.ends_with("trace.sqlite")),
            Err(other) => panic!("{pages} pages: {other}"),
        }
        refused += 1;
        drive(&mut open(dir.path()).unwrap(), 1, &|_| ()).0.unwrap();
        assert_eq!(exported(dir.path()), expected, "full at {pages} pages");
    }
    assert!(refused > 3, "the disk was full only {refused} times");
}

#[test]
fn the_files_copied_at_any_moment_open_and_are_sound() {
    let dir = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let copy = |event: usize| {
        let to = copies.path().join(event.to_string());
        std::fs::create_dir(&to).unwrap();
        for name in ["trace.sqlite", "trace.sqlite-wal"] {
            std::fs::copy(dir.path().join(name), to.join(name)).unwrap();
        }
    };
    let mut trace = open(dir.path()).unwrap();
    let (summary, events) = drive(&mut trace, 1, &copy);
    summary.unwrap();
    drop(trace);
    let mut calls = 0;
    for event in 1..=events {
        let copied: PathBuf = copies.path().join(event.to_string());
        let findings = verify(&RunReader::open(&copied).unwrap()).unwrap();
        assert!(
            findings.problems.is_empty(),
            "event {event}: {:?}",
            findings.problems
        );
        assert!(findings.calls >= calls, "event {event}: a committed call is gone");
        calls = findings.calls;
    }
    assert!(calls > 20);
}

#[test]
fn a_second_process_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let held = open(dir.path()).unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&format!("in use by process {}", std::process::id())),
        "{error}"
    );
    drop(held);
    open(dir.path()).unwrap();
}

#[test]
fn a_changed_study_game_or_model_is_refused_with_both_hashes() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    let plan = plan();
    let rows: Vec<PlannedRow> = plan.rows.iter().map(|row| row.planned.clone()).collect();
    let engine = ScriptedEngine::parse("script", &script()).unwrap();
    let same = header(&plan, engine.identity());
    let game = same.tasks["20261061"].clone();
    let mut study = same.clone();
    study.study_sha256 = "feed".into();
    let mut model = same.clone();
    model.identity.model_sha256 = "beef".into();
    let mut task = same.clone();
    task.tasks.insert("20261061".into(), "cafe".into());
    let cases = [
        (study, "study", same.study_sha256.as_str(), "feed"),
        (model, "model", &same.identity.model_sha256, "beef"),
        (task, "task 20261061", &game, "cafe"),
    ];
    for (header, what, stored, found) in cases {
        let error = Trace::open(dir.path(), &header, &rows, "")
            .unwrap_err()
            .to_string();
        for part in [what, stored, found] {
            assert!(error.contains(part), "{error} does not name {part}");
        }
    }
    Trace::open(dir.path(), &same, &rows, "").unwrap();
}

#[test]
fn an_edit_of_any_stored_call_shows() {
    let dir = tempfile::tempdir().unwrap();
    drive(&mut open(dir.path()).unwrap(), 1, &|_| ()).0.unwrap();
    let edits = [
        "UPDATE calls SET reply = 'x' WHERE row = 1 AND call = 1",
        "DELETE FROM calls WHERE row = 1 AND call = 4",
        "UPDATE calls SET judgement_json = '{\"verdict\":\"accepted\",\"gates\":[],\"post_hoc\":{}}' WHERE row = 1 AND call = 2",
        "UPDATE rows SET outcome = 'accepted' WHERE row = 1",
        "UPDATE rows SET budget = 1 WHERE row = 1",
        "UPDATE rows SET outcome = 'engine_error' WHERE row = 1",
        "UPDATE rows SET outcome = NULL WHERE row = 1",
        "UPDATE rows SET policy = 'TypedFields' WHERE row = 1",
        "UPDATE rows SET seed = 7 WHERE row = 1",
        "UPDATE rows SET attempt = 2 WHERE row = 1",
        "UPDATE calls SET attempt = 2 WHERE row = 1 AND call = 4",
        "UPDATE calls SET judgement_json = '{' WHERE row = 1 AND call = 1",
    ];
    for edit in edits {
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(dir.path().join("trace.sqlite"), copy.path().join("trace.sqlite")).unwrap();
        let connection = rusqlite::Connection::open(copy.path().join("trace.sqlite")).unwrap();
        assert_eq!(connection.execute(edit, []).unwrap(), 1, "{edit}");
        drop(connection);
        let findings = verify(&RunReader::open(copy.path()).unwrap()).unwrap();
        assert!(!findings.problems.is_empty(), "unnoticed: {edit}");
        assert!(
            findings.problems.iter().all(|p| p.contains("RawDiag")),
            "{:?}",
            findings.problems
        );
    }
}

#[test]
fn rows_that_ended_in_an_error_can_be_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut trace = open(dir.path()).unwrap();
    let plan = plan();
    let rows = plan.select(&Selection::default()).unwrap();
    // The rows of SameNL fail at their second call, with one call stored.
    let short: String = script()
        .lines()
        .filter(|l| !(l.contains("SameNL") && l.contains("\"call\":2")))
        .map(|l| format!("{l}\n"))
        .collect();
    let mut engine = ScriptedEngine::parse("script", &short).unwrap();
    let stop = AtomicBool::new(false);
    let settings = Settings { concurrency: 1 };
    let summary = run(&rows, &mut engine, &mut trace, &mut Silent, settings, &stop).unwrap();
    assert_eq!((summary.done, summary.errors), (8, 2));
    assert_eq!(
        trace
            .retry_errors(rows.iter().map(|row| row.planned.key.as_str()))
            .unwrap(),
        2
    );
    drive(&mut trace, 1, &|_| ()).0.unwrap();
    drop(trace);
    assert_eq!(exported(dir.path()), uninterrupted().0);
}
