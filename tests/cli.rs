//! Claim: the binary says what it does in 80 columns, fails with words and the right exit code, and a study can be
//! stopped, resumed, refused and played back from the command line.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_veriharness"));
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("VERIHARNESS_") && name != "VERIHARNESS_HOME")
    {
        command.env_remove(name);
    }
    command.env("COLUMNS", "80").env_remove("RUST_LOG");
    command
}

fn run(args: &[&str]) -> Output {
    binary().args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A study of two games, one policy short of quick, and a script that answers all of it.
fn scripted(dir: &Path) -> (PathBuf, PathBuf) {
    let study = dir.join("tiny.toml");
    let text = "name = \"tiny\"\nprofile = \"compact\"\nmodel = \"none\"\n[[lane]]\nname = \"primary\"\ngames = [\"20261061\", \"20261062\"]\n";
    std::fs::write(&study, text).unwrap();
    let script = dir.join("script.jsonl");
    let mut lines = String::new();
    for (game, win) in [
        (
            "20261061",
            r#"["unlock type 9 chest with type 9 passkey", "open type 9 chest"]"#,
        ),
        ("20261062", r#"["go east", "take nest of insects"]"#),
    ] {
        for policy in ["RawDiag", "LocObs", "SameNL", "TypedFields"] {
            for call in 1..=4 {
                let knows = matches!(policy, "SameNL" | "TypedFields") && call >= 2;
                let commands = if knows { win } else { r#"["fly"]"# };
                let reply = format!("{{\"commands\": {commands}}}");
                let row = format!("primary/{game}/{policy}/b4/s0");
                lines += &format!(
                    "{}\n",
                    serde_json::json!({ "row": row, "call": call, "reply": reply })
                );
            }
        }
    }
    std::fs::write(&script, lines).unwrap();
    (study, script)
}

fn study_args<'a>(study: &'a Path, model: &'a str, runs: &'a Path) -> Vec<&'a str> {
    vec![
        "study",
        study.to_str().unwrap(),
        "--model",
        model,
        "--runs",
        runs.to_str().unwrap(),
    ]
}

fn only_run(runs: &Path) -> PathBuf {
    let mut found: Vec<_> = std::fs::read_dir(runs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn help_of_every_command() {
    let commands: [&[&str]; 12] = [
        &[],
        &["study"],
        &["report"],
        &["show"],
        &["trace"],
        &["trace", "export"],
        &["model"],
        &["game"],
        &["generate"],
        &["bench"],
        &["doctor"],
        &["completions"],
    ];
    for command in commands {
        let output = run(&[command, &["--help"]].concat());
        assert_eq!(output.status.code(), Some(0));
        let text = stdout(&output);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let name = [&["help"], command].concat().join("_");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn errors_name_what_was_expected_and_exit_with_2() {
    let cases: [(&str, &[&str]); 9] = [
        ("no_command", &[]),
        ("unknown_command", &["stduy"]),
        ("unknown_policy", &["study", "--policy", "Typed"]),
        ("no_study", &["study", "nonesuch.toml"]),
        ("no_row", &["study", "--games", "20261199", "--dry-run"]),
        ("bad_set", &["study", "--set", "sampling.warmth=3", "--dry-run"]),
        (
            "no_game",
            &["study", "--set", "lane.0.games=[\"99\"]", "--dry-run"],
        ),
        ("no_model", &["study", "--model", "nonesuch"]),
        ("no_run", &["report", "nonesuch"]),
    ];
    for (name, args) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        insta::assert_snapshot!(format!("error_{name}"), stderr(&output));
    }
}

#[test]
fn a_misspelt_variable_is_warned_about() {
    let output = binary()
        .env("VERIHARNESS_MODLE", "x")
        .args(["study", "--dry-run"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("warning: VERIHARNESS_MODLE is set"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn variables_are_flags() {
    let output = binary()
        .env("VERIHARNESS_LIMIT", "3")
        .args(["study", "--dry-run"])
        .output()
        .unwrap();
    assert!(
        stdout(&output).contains("rows        3 of"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_scripted_study_ends_with_tables_resumes_verifies_exports_and_plays_back() {
    let dir = tempfile::tempdir().unwrap();
    let (study, script) = scripted(dir.path());
    let model = format!("scripted:{}", script.display());
    let runs = dir.path().join("runs");
    let part = run(&[study_args(&study, &model, &runs), vec!["--limit", "3"]].concat());
    assert_eq!(part.status.code(), Some(0), "{}", stderr(&part));
    assert!(
        stdout(&part).contains("partial: 3 of 8 rows"),
        "{}",
        stdout(&part)
    );
    let all = run(&study_args(&study, &model, &runs));
    assert_eq!(all.status.code(), Some(0), "{}", stderr(&all));
    assert!(
        stderr(&all).contains("resuming: 3 of 8 rows are done"),
        "{}",
        stderr(&all)
    );
    let text = stdout(&all).replace(dir.path().to_str().unwrap(), "DIR");
    let tables = text.split("all tables:").next().unwrap();
    assert!(tables.lines().all(|line| line.chars().count() <= 80), "{tables}");
    insta::assert_snapshot!("study_tables", tables);

    let run_dir = only_run(&runs);
    let path = run_dir.to_str().unwrap();
    let verified = run(&["trace", "verify", path]);
    assert_eq!(
        (verified.status.code(), stdout(&verified).as_str()),
        (Some(0), "8 rows, 24 calls checked, 0 problems\n")
    );
    let manifest: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(run_dir.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["header"]["study"], "tiny");
    for name in ["report.md", "tables.csv", "report.json"] {
        assert!(run_dir.join("report").join(name).is_file());
    }
    let row = run(&["show", path, "--row", "primary/20261061/TypedFields"]);
    assert_eq!(row.status.code(), Some(0));
    insta::assert_snapshot!(
        "transcript",
        stdout(&row).replace(dir.path().to_str().unwrap(), "DIR")
    );

    // A full disk is an error in words, not half an export called done.
    if Path::new("/dev/full").exists() {
        let full = run(&["trace", "export", path, "--out", "/dev/full"]);
        assert_eq!(full.status.code(), Some(2));
        assert!(
            stderr(&full).contains("cannot write the export"),
            "{}",
            stderr(&full)
        );
    }

    // The export is a script: played back it gives the same calls, in another run.
    let export = dir.path().join("export.jsonl");
    let export_path = export.to_str().unwrap();
    assert_eq!(
        run(&["trace", "export", path, "--out", export_path])
            .status
            .code(),
        Some(0)
    );
    let again = dir.path().join("again");
    let model = format!("scripted:{export_path}");
    let replayed = run(&study_args(&study, &model, &again));
    assert_eq!(replayed.status.code(), Some(0), "{}", stderr(&replayed));
    let replayed = run(&["trace", "export", only_run(&again).to_str().unwrap()]);
    let replies = |text: &str| -> Vec<serde_json::Value> {
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines
            .map(|line| serde_json::json!([line["row"], line["call"], line["reply"], line["outcome"]]))
            .collect()
    };
    assert_eq!(
        replies(&stdout(&replayed)),
        replies(&std::fs::read_to_string(&export).unwrap())
    );
}

#[test]
fn fresh_sets_the_old_run_aside_and_a_changed_study_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (study, script) = scripted(dir.path());
    let model = format!("scripted:{}", script.display());
    let runs = dir.path().join("runs");
    let args = study_args(&study, &model, &runs);
    assert_eq!(run(&args).status.code(), Some(0));
    let text = std::fs::read_to_string(&study).unwrap();
    std::fs::write(&study, text.replace("compact\"", "compact\"\nmax_steps = 3")).unwrap();
    let refused = run(&args);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    let hashes = said
        .split_whitespace()
        .filter(|word| word.trim_matches(&[',', ';'][..]).len() == 64);
    assert!(
        said.contains("was started with another study") && hashes.count() == 2,
        "{said}"
    );
    let fresh = run(&[args, vec!["--fresh"]].concat());
    assert_eq!(fresh.status.code(), Some(0), "{}", stderr(&fresh));
    assert_eq!(std::fs::read_dir(&runs).unwrap().count(), 2);
}

#[test]
fn rows_that_fail_exit_with_1_and_can_be_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let (study, script) = scripted(dir.path());
    let whole = std::fs::read_to_string(&script).unwrap();
    let short: String = whole
        .lines()
        .filter(|l| !l.contains("20261062/SameNL"))
        .map(|l| format!("{l}\n"))
        .collect();
    std::fs::write(&script, short).unwrap();
    let model = format!("scripted:{}", script.display());
    let runs = dir.path().join("runs");
    let failed = run(&study_args(&study, &model, &runs));
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        stderr(&failed).contains("1 rows ended in an error; --retry-errors"),
        "{}",
        stderr(&failed)
    );
    let again = run(&[study_args(&study, &model, &runs), vec!["--retry-errors"]].concat());
    assert_eq!(again.status.code(), Some(1), "the script still lacks the reply");
    assert!(
        stderr(&again).contains("1 rows with errors will be run again"),
        "{}",
        stderr(&again)
    );
}

#[test]
fn a_tampered_run_fails_verification_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let (study, script) = scripted(dir.path());
    let model = format!("scripted:{}", script.display());
    let runs = dir.path().join("runs");
    assert_eq!(run(&study_args(&study, &model, &runs)).status.code(), Some(0));
    let run_dir = only_run(&runs);
    let connection = rusqlite::Connection::open(run_dir.join("trace.sqlite")).unwrap();
    connection
        .execute("UPDATE calls SET reply = 'better' WHERE row = 2 AND call = 1", [])
        .unwrap();
    drop(connection);
    let verified = run(&["trace", "verify", run_dir.to_str().unwrap()]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(stdout(&verified).contains("row primary/20261061/LocObs/b4/s0, call 1: expected hash"));
}

/// A real, small model: Ctrl-C keeps what is committed and exits with 130; a second process is refused meanwhile; the
/// same command goes on.
#[test]
fn ctrl_c_stops_a_real_study_which_then_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    let flags = [
        "--set",
        "sampling.max_tokens=16",
        "--set",
        "lane.0.budgets=[2]",
        "--limit",
        "12",
        "--concurrency",
        "1",
    ];
    let args = [&study_args(Path::new("quick"), "smollm2-135m", &runs)[..], &flags].concat();
    let mut child = binary()
        .args(&args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let calls = || {
        let run = std::fs::read_dir(&runs).ok()?.next()?.ok()?.path();
        let connection = rusqlite::Connection::open(run.join("trace.sqlite")).ok()?;
        connection
            .query_row("SELECT count(*) FROM calls", [], |row| row.get::<_, i64>(0))
            .ok()
    };
    let started = Instant::now();
    while calls().unwrap_or(0) == 0 {
        assert!(
            started.elapsed() < Duration::from_secs(600),
            "no call after ten minutes"
        );
        assert!(
            child.try_wait().unwrap().is_none(),
            "the study ended before its first call"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = run(&args);
    assert_eq!(second.status.code(), Some(2));
    assert!(
        stderr(&second).contains(&format!("in use by process {}", child.id())),
        "{}",
        stderr(&second)
    );
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let stopped = child.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(130), "{}", stderr(&stopped));
    assert!(
        stderr(&stopped).contains("the same command goes on from here"),
        "{}",
        stderr(&stopped)
    );
    let kept = calls().unwrap();
    let resumed = run(&args);
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    assert!(
        calls().unwrap() > kept,
        "nothing was left to do: {kept} calls were kept"
    );
    let verified = run(&["trace", "verify", only_run(&runs).to_str().unwrap()]);
    assert_eq!(verified.status.code(), Some(0), "{}", stdout(&verified));
}

#[test]
fn a_closed_pipe_is_success() {
    for args in [&["game", "list"][..], &["completions", "bash"], &["--help"]] {
        let mut child = binary().args(args).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
    }
}
