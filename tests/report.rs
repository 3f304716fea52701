//! Claim: a report says what the trace says, in four formats, and says when the run is partial.
//!
//! The run is invented (`report/invented.rs`); its figures are worked out here by hand.

#![allow(clippy::unwrap_used)] // A test may panic.

#[path = "report/invented.rs"]
mod invented;

use invented::{Fate, POLICIES, Why, run, six_games};
use proptest::prelude::*;
use veriharness::report::figures::PolicyFigures;
use veriharness::report::page::{WIDTH, columns};
use veriharness::report::table::{Cell, Table};
use veriharness::report::{self, Report, contrasts, transcript};
use veriharness::trace::PlannedRow;

fn report_of(rows: &[(PlannedRow, Fate)]) -> Report {
    let dir = tempfile::tempdir().unwrap();
    report::build(&run(dir.path(), "invented", rows)).unwrap()
}

fn policy<'a>(report: &'a Report, name: &str) -> &'a PolicyFigures {
    let mut policies = report.conditions[0].policies.iter();
    policies.find(|figures| figures.policy == name).unwrap()
}

fn table<'a>(report: &'a Report, id: &str) -> &'a Table {
    report.tables().iter().find(|table| table.id == id).unwrap()
}

#[test]
fn every_format_of_a_partial_run() {
    let report = report_of(&six_games());
    assert_eq!(report.overview.state(), "partial: 23 of 24 rows");
    for table in report.tables() {
        assert!(
            table.title.ends_with("(partial: 23 of 24 rows)"),
            "{}",
            table.title
        );
    }
    insta::assert_snapshot!("terminal", report.terminal());
    insta::assert_snapshot!("markdown", report.markdown());
    insta::assert_snapshot!("csv", report.csv());
    insta::assert_snapshot!("json", report.json());
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json["tables"].as_array().unwrap().len(), report.tables().len());
    let csv = report.csv();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    assert!(reader.records().all(|record| record.unwrap().len() == 6));
}

#[test]
fn a_terminal_of_80_columns_is_wide_enough() {
    let mut rows = six_games();
    let long = PlannedRow::new(&"lane".repeat(40), &"task".repeat(60), &"Policy".repeat(20), 8, 0);
    rows.push((long, Fate::Lose(Why::Quest)));
    rows.last_mut().unwrap().0.budget = 4;
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "invented", &rows);
    let mut text = report::build(&run).unwrap().terminal();
    for row in run.rows().unwrap() {
        text += &transcript::of(&run, &row).unwrap();
    }
    for line in text.lines() {
        assert!(columns(line) <= WIDTH, "{} columns: {line}", columns(line));
        assert!(
            !line.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{line:?}"
        );
    }
}

#[test]
fn success_and_costs_are_those_worked_out_by_hand() {
    let report = report_of(&six_games());
    let figures = |name| {
        let f = policy(&report, name);
        (
            f.planned,
            f.ended,
            f.counted,
            f.wins,
            f.first_call_wins(),
            f.calls,
        )
    };
    assert_eq!(figures("RawDiag"), (6, 6, 6, 1, 1, 4 + 4 + 1 + 4 + 4 + 2));
    assert_eq!(figures("LocObs"), (6, 6, 5, 2, 1, 4 + 2 + 1 + 4 + 4));
    assert_eq!(figures("SameNL"), (6, 6, 6, 4, 1, 2 + 3 + 1 + 4 + 2 + 4));
    assert_eq!(figures("TypedFields"), (6, 5, 5, 5, 1, 2 + 2 + 1 + 4 + 2));
    assert_eq!(policy(&report, "TypedFields").wins_by_call, [1, 3, 0, 1]);
    let ends =
        |name: &str| -> Vec<(String, u64)> { policy(&report, name).ends.clone().into_iter().collect() };
    let pairs = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
        pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    };
    assert_eq!(
        ends("RawDiag"),
        pairs(&[
            ("accepted", 1),
            ("context full", 1),
            ("textworld.action_invalid", 4)
        ])
    );
    assert_eq!(
        ends("LocObs"),
        pairs(&[
            ("accepted", 2),
            ("engine_error", 1),
            ("schema.reply_unparseable", 1),
            ("textworld.action_invalid", 2)
        ])
    );
    assert_eq!(
        ends("SameNL"),
        pairs(&[
            ("accepted", 4),
            ("textworld.action_invalid", 1),
            ("textworld.quest_incomplete", 1)
        ])
    );
    assert_eq!(ends("TypedFields"), pairs(&[("accepted", 5), ("not ended", 1)]));

    let loc = policy(&report, "LocObs");
    assert_eq!(
        (loc.strict["fenced"], loc.strict["ok"], loc.lenient["ok"]),
        (4, 11, 15)
    );

    // Four rows of 100 + 150 + 160 + 170 words, one of 100, one of 100 + 150; one of the 19 calls is reused.
    let raw = policy(&report, "RawDiag");
    assert_eq!(
        (raw.retries, raw.retry_words, raw.prompt_words),
        (13, 4 * 480 + 150, 2_670)
    );
    assert_eq!((raw.reused, raw.same_plan), (1, 1));
    assert_eq!(
        (raw.tokens_in, raw.tokens_cached, raw.tokens_out),
        (Some(18 * 200), Some(12 * 64), Some(18 * 12))
    );
    assert_eq!(raw.micros, [18_000, 360_000, 5_400_000, 19 * 50]);
}

#[test]
fn contrasts_are_those_worked_out_by_hand() {
    let report = report_of(&six_games());
    let found = contrasts::of(&report.conditions[0]);
    // Games, left for an error, left because not ended; treatment only, baseline only; points, p, Holm p, calls.
    let expected = [
        (
            (6, 0, 0),
            (3, 0),
            50.0,
            0.25,
            0.75,
            (-2.0 - 1.0 - 2.0 + 2.0) / 6.0,
        ),
        ((5, 0, 1), (4, 0), 80.0, 0.125, 0.5, (-2.0 - 2.0 - 2.0) / 5.0),
        ((5, 0, 1), (1, 0), 20.0, 1.0, 1.0, -1.0 / 5.0),
        ((4, 1, 1), (2, 0), 50.0, 0.5, 1.0, -2.0 / 4.0),
    ];
    assert_eq!(found.len(), 4);
    for (contrast, (games, only, points, p, holm_p, calls)) in found.iter().zip(expected) {
        assert_eq!(
            (contrast.games, contrast.left_error, contrast.left_missing),
            games
        );
        assert_eq!(
            (contrast.counts.treatment_only, contrast.counts.baseline_only),
            only
        );
        assert_eq!((contrast.p, contrast.holm_p), (Some(p), Some(holm_p)));
        for (found, expected) in [(contrast.points, points), (contrast.calls, calls)] {
            assert!(
                (found.unwrap() - expected).abs() < 1e-12,
                "{found:?}, expected {expected}"
            );
        }
        let interval = contrast.interval.unwrap();
        assert!(interval.low <= points && points <= interval.high);
    }
}

#[test]
fn repeated_games_are_compared_as_clusters() {
    let mut rows = Vec::new();
    for game in 0..4 {
        for seed in [3101, 3102, 3103] {
            for (name, fate) in [
                ("RawDiag", Fate::Lose(Why::Action)),
                (
                    "SameNL",
                    if game == 0 && seed == 3103 {
                        Fate::Error
                    } else {
                        Fate::Win(2)
                    },
                ),
                (
                    "TypedFields",
                    if seed == 3101 {
                        Fate::Lose(Why::Action)
                    } else {
                        Fate::Win(1)
                    },
                ),
            ] {
                rows.push((
                    PlannedRow::new("sampled", &format!("g{game}"), name, 4, seed),
                    fate,
                ));
            }
        }
    }
    let report = report_of(&rows);
    let found = contrasts::of(&report.conditions[0]);
    assert_eq!(found.len(), 3, "LocObs has no rows here");
    let same = &found[0];
    assert_eq!(
        (same.games, same.left_error, same.counts.treatment_only),
        (3, 1, 9)
    );
    assert_eq!(
        (same.points, same.interval),
        (Some(100.0), None),
        "all games alike: nothing to resample"
    );
    // Three equal differences: both signs of all three at once are extreme, a quarter of the flips.
    assert!((same.p.unwrap() - 0.25).abs() < 0.01, "{:?}", same.p);
    assert_eq!(found[1].games, 4);
    assert_eq!(policy(&report, "SameNL").by_seed[&3103], (3, 3));
    let seeds = table(&report, "wins_by_seed");
    assert_eq!(seeds.header, ["Policy", "Seed 3101", "Seed 3102", "Seed 3103"]);
    assert_eq!(seeds.rows[2][1], Cell::Share { part: 0, whole: 4 });
    let paper = table(&report, "paper_policies");
    assert_eq!(paper.rows[1][2], Cell::Share { part: 17, whole: 60 });
}

#[test]
fn a_complete_run_does_not_call_itself_partial() {
    let rows: Vec<_> = six_games()
        .into_iter()
        .filter(|(_, fate)| *fate != Fate::Open)
        .collect();
    let report = report_of(&rows);
    assert_eq!(report.overview.state(), "complete");
    assert!(!report.terminal().contains("partial") && !report.markdown().contains("partial"));
    assert!(report.terminal().contains("larger models on 50 rows"));
}

#[test]
fn files_are_written_whole_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let report = report_of(&six_games());
    for _ in 0..2 {
        let files = report.write(&dir.path().join("run/report")).unwrap();
        let texts: Vec<String> = files
            .iter()
            .map(|file| std::fs::read_to_string(file).unwrap())
            .collect();
        assert_eq!(texts, [report.markdown(), report.csv(), report.json()]);
        assert_eq!(
            std::fs::read_dir(dir.path().join("run/report")).unwrap().count(),
            3
        );
    }
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = report.write(&dir.path().join("file")).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn a_transcript_tells_a_row_call_by_call() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), "invented", &six_games());
    let rows = run.rows().unwrap();
    let keys = |name| -> Vec<&str> {
        transcript::find(&rows, name)
            .iter()
            .map(|row| row.planned.key.as_str())
            .collect()
    };
    assert_eq!(
        keys("20261052/TypedFields"),
        ["primary/20261052/TypedFields/b4/s0"]
    );
    assert_eq!(keys("20261052").len(), 4);
    assert!(keys("20261060").is_empty());
    let row = transcript::find(&rows, "20261052/TypedFields")[0];
    insta::assert_snapshot!("transcript", transcript::of(&run, row).unwrap());
    let reused = transcript::find(&rows, "20261054/RawDiag")[0];
    let text = transcript::of(&run, reused).unwrap();
    assert!(text.contains("reply (that of call 2, which had the same prompt):"));
    assert!(text.contains("no model saw it"));
    let list = transcript::list(&run).unwrap();
    assert_eq!(list.lines().count(), 24);
    assert!(list.starts_with("primary/20261051/RawDiag/b4/s0      budget_exhausted  4 calls\n"));
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        (1u32..=2).prop_map(Fate::Win),
        Just(Fate::Lose(Why::Action)),
        Just(Fate::Lose(Why::Fence)),
        Just(Fate::Full(1)),
        Just(Fate::Error),
        Just(Fate::Open),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_cell_is_ever_nan(fates in prop::collection::vec(fate(), 1..10), seeds in 1u64..3) {
        let rows: Vec<_> = fates
            .into_iter()
            .enumerate()
            .map(|(i, fate)| {
                let n = i as u64 / 4;
                let task = format!("g{}", n / seeds);
                (PlannedRow::new("primary", &task, POLICIES[i % 4], 2, n % seeds), fate)
            })
            .collect();
        let report = report_of(&rows);
        for table in report.tables() {
            for row in &table.rows {
                prop_assert_eq!(row.len(), table.header.len(), "{}", table.id);
                for cell in row {
                    let shown = cell.shown();
                    prop_assert!(!shown.contains("NaN") && !shown.contains("inf"), "{}: {}", table.id, shown);
                }
            }
        }
        let texts = [report.terminal(), report.markdown(), report.csv(), report.json()];
        prop_assert!(texts.iter().all(|text| !text.contains("NaN")));
    }
}
