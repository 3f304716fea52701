//! Play equals TextWorld 1.7.0, byte for byte: the recorded games, the judged plans, and kinds of game that the
//! library does not have.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its data has failed")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest, Sha256};
use veriharness::gate::Expected;
use veriharness::gate::textworld::golden::{Comparison, verify};
use veriharness::gate::textworld::{Game, judge, library, view};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn unpacked(path: &Path) -> impl BufRead + use<> {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    BufReader::new(GzDecoder::new(file))
}

fn manifest(folder: &str) -> Vec<Value> {
    let path = root().join(folder).join("MANIFEST.json");
    let manifest: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    manifest["games"].as_array().unwrap().clone()
}

fn compare(game: &Game, golden: PathBuf) -> Comparison {
    let result = verify(game, unpacked(&golden), &golden.display().to_string()).unwrap();
    assert_eq!(result.differences, [], "{}", game.file());
    assert!(result.compared > 0, "{}: an empty recording", game.file());
    result
}

#[test]
fn the_fifty_games_play_exactly_as_recorded() {
    let listed = manifest("games/textworld");
    assert!(library::names().eq(listed.iter().map(|g| g["name"].as_str().unwrap())));
    let mut steps = 0;
    for name in library::names() {
        let golden = root().join(format!("tests/data/textworld/golden/{name}.jsonl.gz"));
        steps += compare(&library::open(name).unwrap(), golden).compared;
    }
    assert_eq!(steps, 1650);
}

#[test]
fn games_of_other_kinds_play_exactly_as_recorded() {
    let mut steps = 0;
    for entry in manifest("games/textworld/holdout") {
        let name = entry["name"].as_str().unwrap();
        let game = Game::load(root().join(format!("games/textworld/holdout/{name}.json"))).unwrap();
        let golden = root().join(format!("tests/data/textworld/holdout/{name}.jsonl.gz"));
        steps += compare(&game, golden).compared;
        // Cooking games alone carry code that changes texts; their recordings hold no text.
        assert_eq!(game.has_exact_text(), !name.starts_with("cooking"), "{name}");
    }
    assert_eq!(steps, 2956);
}

/// The recording compared raw strings; the gate strips outer white space first. So the environment is held to every
/// plan, and the gate to the plans as they are after stripping.
#[test]
fn every_recorded_plan_gets_its_recorded_verdict() {
    let (mut plans, mut stripped) = (0, 0);
    for line in unpacked(&root().join("tests/data/textworld/plans.jsonl.gz")).lines() {
        let record: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let game = library::open(record["game"].as_str().unwrap()).unwrap();
        let plan: Vec<String> = serde_json::from_value(record["plan"].clone()).unwrap();
        let (verdict, index, listed) = run_raw(&game, &plan);
        assert_eq!(verdict, record["verdict"].as_str().unwrap(), "{record}");
        if verdict != "not_won" {
            assert_eq!(index as u64, record["index"].as_u64().unwrap(), "{record}");
        }
        if verdict != "won" {
            assert_eq!(
                listed.len() as u64,
                record["n_admissible"].as_u64().unwrap(),
                "{record}"
            );
        }
        if verdict == "invalid" {
            // The recording cuts the list at 12.
            let expected: Vec<String> = serde_json::from_value(record["expected"].clone()).unwrap();
            assert_eq!(listed[..listed.len().min(12)], expected, "{record}");
            assert_eq!(plan[index], record["observed"].as_str().unwrap());
        }
        let trimmed: Vec<String> = plan.iter().map(|c| c.trim().to_owned()).collect();
        stripped += usize::from(run_raw(&game, &trimmed) != (verdict, index, listed));
        gate_agrees(&game, &plan, &record);
        plans += 1;
    }
    assert_eq!((plans, stripped), (1102, 7));
}

/// Plays `plan` as it is: the verdict, the index of the last command looked at, and the list there.
fn run_raw(game: &Game, plan: &[String]) -> (&'static str, usize, Vec<String>) {
    let mut play = game.start();
    for (i, command) in plan.iter().enumerate() {
        let listed: Vec<String> = play.admissible().map(str::to_owned).collect();
        assert_eq!(play.step(command).is_some(), listed.contains(command));
        if !listed.contains(command) {
            return ("invalid", i, listed);
        }
        if play.won() {
            return ("won", i, play.admissible().map(str::to_owned).collect());
        }
    }
    (
        "not_won",
        plan.len().saturating_sub(1),
        play.admissible().map(str::to_owned).collect(),
    )
}

fn gate_agrees(game: &Game, plan: &[String], record: &Value) {
    let trimmed: Vec<String> = plan.iter().map(|c| c.trim().to_owned()).collect();
    let (expected, index, listed) = run_raw(game, &trimmed);
    let verdict = judge(game, plan, 4);
    let Some(failure) = verdict.failure else {
        assert_eq!(
            (expected, verdict.executed, verdict.unused),
            ("won", index + 1, plan.len() - index - 1),
            "{record}"
        );
        if expected == record["verdict"] {
            assert_eq!(
                verdict.unused as u64,
                record["unused"].as_u64().unwrap(),
                "{record}"
            );
        }
        return;
    };
    assert_eq!(verdict.post_hoc.admissible, listed, "{record}");
    match expected {
        "invalid" => {
            assert_eq!(failure.label(), "textworld.action_invalid", "{record}");
            assert_eq!(failure.location, format!("LeafOutput.answer.commands[{index}]"));
            assert_eq!(failure.observed, plan[index]);
            assert_eq!(
                failure.message,
                format!("Command {index} is not admissible in the current game state.")
            );
            assert_eq!(failure.expected, Expected::OneOf(listed), "{record}");
        }
        _ if plan.is_empty() => assert_eq!(failure.label(), "textworld.command_missing"),
        _ => assert_eq!(failure.label(), "textworld.quest_incomplete", "{record}"),
    }
}

#[test]
fn files_are_those_of_the_manifests_and_their_solutions_win() {
    for folder in ["games/textworld", "games/textworld/holdout"] {
        for entry in manifest(folder) {
            let name = entry["name"].as_str().unwrap();
            let bytes = std::fs::read(root().join(folder).join(format!("{name}.json"))).unwrap();
            let hash: String = Sha256::digest(&bytes)
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            assert_eq!(hash, entry["sha256"].as_str().unwrap(), "{name}");
            assert_eq!(bytes.len() as u64, entry["bytes"].as_u64().unwrap(), "{name}");
            let game = Game::parse(&bytes, name).unwrap();
            let solution = game.walkthrough().unwrap();
            assert_eq!(serde_json::json!(solution), entry["walkthrough"], "{name}");
            let plan: Vec<String> = solution.iter().map(|c| format!(" {c}\n")).collect();
            let verdict = judge(&game, &plan, plan.len());
            assert!(verdict.won, "{name}: {:?}", verdict.failure);
        }
    }
}

#[test]
fn a_plan_that_fails_says_where_and_keeps_the_rest_beside_it() {
    let game = library::open("20261052").unwrap();
    let plan = |commands: &[&str]| {
        judge(
            &game,
            &commands.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>(),
            4,
        )
    };

    let verdict = plan(&["go east", "open chest", "take spork"]);
    let failure = verdict.failure.unwrap();
    assert_eq!(failure.location, "LeafOutput.answer.commands[1]");
    assert_eq!((verdict.executed, verdict.unused, verdict.won), (1, 0, false));
    assert_eq!(
        verdict.post_hoc.next_winning.as_deref(),
        Some("take spork from type 4 chest")
    );
    assert_eq!(verdict.post_hoc.commands_to_win, Some(1));

    let verdict = plan(&["go east", "take spork from type 4 chest", "look", "look", "look"]);
    let failure = verdict.failure.unwrap();
    assert_eq!(failure.label(), "textworld.turn_budget_exceeded");
    assert_eq!(
        (failure.observed.as_str(), failure.location.as_str()),
        ("5 commands", "LeafOutput.answer.commands")
    );
    assert_eq!(failure.expected, Expected::Value("1 to 4 commands".into()));
    assert_eq!(verdict.post_hoc.first_steps.as_deref(), Some("accepted"));
    assert_eq!((verdict.executed, verdict.won), (0, false));

    let failure = plan(&["look", "inventory"]).failure.unwrap();
    assert_eq!(failure.label(), "textworld.quest_incomplete");
    assert_eq!(failure.observed, "2 commands ran and the game is not won");
    assert_eq!(
        failure.expected,
        Expected::Value("a plan whose last command wins the game".into())
    );

    // The command is compared exactly but for outer white space, and the raw string is what was observed.
    assert!(plan(&["  go east ", "\ttake spork from type 4 chest\n"]).won);
    assert_eq!(plan(&["Go East "]).failure.unwrap().observed, "Go East ");
}

#[test]
fn a_plan_can_lose_a_game_that_has_fail_events() {
    let game = Game::load(root().join("games/textworld/holdout/treasure_hunter_easy.json")).unwrap();
    let mut codes = Vec::new();
    for thing in ["insect", "sponge"] {
        // Walk to the thing by breadth-first search over plans of `go` commands.
        let mut open = vec![Vec::<String>::new()];
        while let Some(way) = open.pop() {
            let mut plan = way.clone();
            plan.push(format!("take {thing}"));
            let verdict = judge(&game, &plan, 16);
            match verdict.failure.as_ref().map(|f| f.code.as_str()) {
                Some("action_invalid") if way.len() < 5 => {
                    let admissible = verdict
                        .post_hoc
                        .admissible
                        .into_iter()
                        .filter(|c| c.starts_with("go "));
                    open.extend(admissible.map(|c| [way.clone(), vec![c]].concat()));
                }
                Some("action_invalid") => {}
                code => {
                    codes.push(code.unwrap_or("won").to_owned());
                    break;
                }
            }
        }
    }
    codes.sort();
    assert_eq!(codes, ["game_lost", "won"]);
}

#[test]
fn a_game_is_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&library::open("20261051").unwrap());
}

#[test]
fn the_view_of_a_task_holds_its_start_and_nothing_else() {
    let game = library::open("20261052").unwrap();
    let task = view(&game, "20261052", 4);
    assert_eq!(
        (task.id.as_str(), task.family.as_str(), task.max_steps),
        ("20261052", "textworld", 4)
    );
    assert_eq!(task.inventory, "You are carrying: a cookie.");
    assert!(
        task.description
            .starts_with("-= Workshop =-\nYou find yourself in a workshop.")
    );
    assert!(task.objective.contains("pick up the spork"));
    let text = serde_json::to_string(&task).unwrap();
    assert!(!text.contains("take spork from type 4 chest"));
}
