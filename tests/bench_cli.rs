//! Claim: `generate` prints the reply of a model as it grows and ends where it is told; `bench` measures backends, and
//! policies on a recorded run, whose replies it reproduces.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const MODEL: &str = "smollm2-135m";
const QUESTION: &str = "Name the days of the week.";

fn binary(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_veriharness"));
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("VERIHARNESS_") && name != "VERIHARNESS_HOME")
    {
        command.env_remove(name);
    }
    command.args(args).env_remove("RUST_LOG");
    command
}

fn run(args: &[&str]) -> Output {
    binary(args).output().unwrap()
}

/// Stdout of a command that succeeds.
fn said(args: &[&str]) -> String {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn generate<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["generate", "--model", MODEL, "--max-tokens", "24"], more].concat()
}

#[test]
fn a_greedy_reply_is_the_same_again_and_from_stdin() {
    let first = said(&generate(&[QUESTION]));
    assert!(first.trim().len() > 10 && first.ends_with('\n'), "{first:?}");
    assert_eq!(said(&generate(&["--threads", "1", QUESTION])), first);
    let mut child = binary(&generate(&["-"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(QUESTION.as_bytes())
        .unwrap();
    // In the pieces in which it comes.
    let (mut pipe, mut pieces) = (child.stdout.take().unwrap(), Vec::new());
    let mut piece = [0; 4096];
    loop {
        match pipe.read(&mut piece).unwrap() {
            0 => break,
            n => pieces.push(piece[..n].to_vec()),
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(String::from_utf8(pieces.concat()).unwrap(), first);
    assert!(
        pieces.len() > 2,
        "the reply came in {} pieces, so not as it grew",
        pieces.len()
    );
}

#[test]
fn sampling_flags_and_instructions_reach_the_engine() {
    let greedy = said(&generate(&[QUESTION]));
    let drawn = |seed| said(&generate(&["--temperature", "1.5", "--seed", seed, QUESTION]));
    assert_eq!(drawn("7"), drawn("7"));
    assert_ne!(drawn("7"), drawn("8"));
    assert_eq!(
        said(&generate(&["--temperature", "1.5", "--top-k", "1", QUESTION])),
        greedy
    );
    assert_ne!(said(&generate(&["--repetition-penalty", "5", QUESTION])), greedy);
    let system = [
        "--system",
        "You are a pirate. Answer in the words of a pirate.",
        QUESTION,
    ];
    assert_ne!(said(&generate(&system)), greedy);
}

#[test]
fn a_reply_ends_before_a_stop_string() {
    let whole = said(&generate(&[QUESTION]));
    let whole = whole.trim_end_matches('\n');
    // Three characters from the middle, which may cut a token.
    let middle: String = whole.chars().skip(whole.chars().count() / 2).take(3).collect();
    let cut = whole.find(&middle).unwrap();
    assert_eq!(
        said(&generate(&["--stop", "nonesuch", "--stop", &middle, QUESTION])),
        format!("{}\n", &whole[..cut])
    );
}

#[test]
fn a_reader_that_leaves_ends_it_with_success() {
    let mut child = binary(&generate(&[QUESTION]))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn ctrl_c_ends_it_with_130() {
    let long = ["generate", "--model", MODEL, "--max-tokens", "1500", QUESTION];
    // Without its end-of-turn token being unlikely the reply could end first: heat makes it long.
    let args = [&long[..], &["--temperature", "100"]].concat();
    let mut child = binary(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut [0]).unwrap();
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(rest.last(), Some(&b'\n'));
}

#[test]
fn values_out_of_range_are_refused_with_their_range() {
    let generate = |flag, value| ["generate", "--model", MODEL, flag, value, QUESTION];
    let bench = |flag, value| ["bench", "--model", MODEL, flag, value, "--repeat=2"];
    let cases: [([&str; 6], &str); 9] = [
        (
            generate("--temperature", "101"),
            "--temperature: expected a number from 0 to 100, found 101",
        ),
        (
            generate("--top-p", "1.5"),
            "--top-p: expected a number from 0 to 1, found 1.5",
        ),
        (
            generate("--min-p", "2"),
            "--min-p: expected a number from 0 to 1, found 2",
        ),
        (
            generate("--repetition-penalty", "0"),
            "--repetition-penalty: expected a number above 0, at most 10",
        ),
        (generate("--max-tokens", "0"), "--max-tokens: expected 1 to"),
        (
            generate("--stop", ""),
            "--stop: expected strings of 1 to 256 bytes, found one of 0",
        ),
        (bench("--pp", "0"), "--pp: expected 1 to 65536, found 0"),
        (
            bench("--batch", "1,70000"),
            "--batch: expected 1 to 65536, found 70000",
        ),
        (
            ["bench", "--model", MODEL, "--repeat", "1", "--tg=1"],
            "--repeat: expected 2 to 65536, found 1",
        ),
    ];
    for (args, expected) in cases {
        let output = run(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}

const TINY: [&str; 9] = [
    "bench", "--pp", "8", "--tg", "2", "--batch", "1,2", "--repeat", "2",
];

fn has_cell(markdown: &str, text: &str) -> bool {
    markdown.split('|').any(|cell| cell.trim() == text)
}

#[test]
fn bench_measures_in_three_forms() {
    let args = [&TINY[..], &["--model", MODEL]].concat();
    let markdown = said(&args);
    assert!(
        markdown.lines().skip(1).all(|line| line.chars().count() <= 80),
        "{markdown}"
    );
    assert!(markdown.lines().next().unwrap().contains("threads"), "{markdown}");
    for test in ["pp8", "tg2", "tg2 x2"] {
        assert!(has_cell(&markdown, test), "{markdown}");
    }

    let json: Value = serde_json::from_str(&said(&[&args[..], &["--format", "json"]].concat())).unwrap();
    assert!(json["machine"]["threads"].as_u64().unwrap() >= 1, "{json}");
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(row["model"], MODEL);
        assert_eq!(row["backend"], "cpu fast");
        assert!(row["limit_percent"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["tokens_per_second"].as_f64().unwrap() > 0.0, "{row}");
        // SmolLM2-135M has 134.5 million numbers.
        assert!(
            (134_000_000..136_000_000).contains(&row["parameters"].as_u64().unwrap()),
            "{row}"
        );
        assert!(
            (60_000_000..200_000_000).contains(&row["bytes"].as_u64().unwrap()),
            "{row}"
        );
    }

    let csv = said(&[&args[..], &["--format", "csv"]].concat());
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    assert_eq!(reader.headers().unwrap().len(), 10);
    assert_eq!(reader.records().map(Result::unwrap).count(), 3);
}

#[test]
fn a_test_that_does_not_fit_says_so_in_its_row() {
    let args = [
        "bench", "--model", MODEL, "--pp", "60000", "--tg", "1", "--batch", "1", "--repeat", "2",
    ];
    let text = said(&args);
    assert!(
        has_cell(&text, "pp60000") && has_cell(&text, "over context"),
        "{text}"
    );
    let json: Value = serde_json::from_str(&said(&[&args[..], &["--format", "json"]].concat())).unwrap();
    assert_eq!(json["rows"][0]["tokens_per_second"], Value::Null);
    let note = json["rows"][0]["note"].as_str().unwrap();
    assert!(
        note.starts_with("60000 positions needed, the context holds"),
        "{note}"
    );
    assert!(json["rows"][1]["tokens_per_second"].as_f64().unwrap() > 0.0);
}

/// A study of one game under two policies, played by the small model.
fn record(runs: &Path) -> String {
    let runs = runs.to_str().unwrap();
    let args = [
        "study",
        "quick",
        "--model",
        MODEL,
        "--runs",
        runs,
        "--games",
        "20261061",
        "--policy",
        "RawDiag,TypedFields",
        "--set",
        "sampling.max_tokens=24",
        "--set",
        "lane.0.budgets=[2]",
        "--budget",
        "2",
    ];
    said(&args);
    let entry = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap();
    entry.path().to_str().unwrap().to_owned()
}

#[test]
fn policies_reproduce_a_recorded_run_and_say_when_the_backend_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = record(dir.path());
    let args = ["bench", "--policies", &recorded, "--format", "json"];
    let json: Value = serde_json::from_str(&said(&args)).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let policies: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["RawDiag", "TypedFields"]);
    for row in rows {
        assert_eq!(row["rows"], 1);
        assert!(row["calls"].as_u64().unwrap() >= 1, "{row}");
        assert_eq!(row["identical_replies"], row["calls"], "{row}");
        for key in [
            "calls_per_second",
            "tokens_in_per_second",
            "tokens_out_per_second",
            "new_tokens_per_call",
            "seconds_per_row",
            "prompt_tokens",
        ] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{key}: {row}");
        }
        assert!(row["guessed_tokens"].is_u64(), "{row}");
        // A retry begins as the first prompt does.
        if row["calls"] == 2 {
            assert!(row["cached_tokens"].as_u64().unwrap() >= 32, "{row}");
        }
        assert!(row["cached_percent"].as_f64().unwrap() < 100.0, "{row}");
    }

    let exact = run(&["bench", "--policies", &recorded, "--exact"]);
    let stderr = String::from_utf8_lossy(&exact.stderr);
    assert_eq!(exact.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("backend: recorded with cpu fast, this is cpu exact"),
        "{stderr}"
    );
    let markdown = String::from_utf8(exact.stdout).unwrap();
    assert!(
        markdown.lines().skip(1).all(|line| line.chars().count() <= 100),
        "{markdown}"
    );

    let clash = run(&["bench", "--policies", &recorded, "--pp", "8"]);
    assert_eq!(clash.status.code(), Some(2));
    let several = run(&["bench", "--policies", &recorded, "--model", "a,b"]);
    assert!(
        String::from_utf8_lossy(&several.stderr)
            .contains("--model: expected one model with --policies, found 2")
    );
}

/// Recorded prompts without token ids are rendered again.
#[test]
fn a_run_played_back_from_a_script_needs_a_model() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script.jsonl");
    let line =
        r#"{"row": "primary/20261061/RawDiag/b4/s0", "call": 1, "reply": "{\"commands\": [\"go east\"]}"}"#;
    let lines: Vec<String> = (1..=4)
        .map(|call| line.replace("\"call\": 1", &format!("\"call\": {call}")))
        .collect();
    std::fs::write(&script, lines.join("\n")).unwrap();
    let model = format!("scripted:{}", script.display());
    let runs = dir.path().join("runs");
    let study = [
        "study",
        "quick",
        "--model",
        &model,
        "--runs",
        runs.to_str().unwrap(),
        "--games",
        "20261061",
        "--policy",
        "RawDiag",
        "--set",
        "sampling.max_tokens=4",
    ];
    said(&study);
    let recorded = std::fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let recorded = recorded.to_str().unwrap();
    let refused = run(&["bench", "--policies", recorded]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--model says which one decodes its prompts"));
    let json = said(&[
        "bench",
        "--policies",
        recorded,
        "--model",
        MODEL,
        "--format",
        "json",
    ]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let row = &json["rows"][0];
    assert!(row["prompt_tokens"].as_u64().unwrap() > 100, "{row}");
    assert_eq!(row["identical_replies"], 0, "{row}");
}
