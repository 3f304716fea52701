//! No game file, however wrong, panics, hangs or fills the memory: each gets an error that names the place.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its data has failed")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use veriharness::gate::textworld::golden::verify;
use veriharness::gate::textworld::{Game, GameError, MAX_FILE_BYTES, judge};

const BASE: &[u8] = include_bytes!("../games/textworld/20261052.json");
const NAME: &str = "bad.json";

fn base() -> Value {
    serde_json::from_slice(BASE).unwrap()
}

fn changed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut game = base();
    change(&mut game);
    serde_json::to_vec(&game).unwrap()
}

fn fact(name: &str, args: &[(&str, &str)]) -> Value {
    let args: Vec<Value> = args
        .iter()
        .map(|(id, kind)| json!({"name": id, "type": kind}))
        .collect();
    json!({"name": name, "arguments": args})
}

fn refused(bytes: &[u8]) -> GameError {
    let begun = Instant::now();
    let error = Game::parse(bytes, NAME).expect_err("a hostile game was accepted");
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{error} took {:?}",
        begun.elapsed()
    );
    let text = error.to_string();
    assert!(text.starts_with(NAME) && text.len() < 500, "{text}");
    error
}

#[test]
fn each_hostile_file_gets_an_error_that_names_the_place() {
    let rules = |text: &str| {
        changed(|g| g["KB"]["logic"] = format!("{}\n{text}", g["KB"]["logic"].as_str().unwrap()).into())
    };
    let world = |f: Value| changed(|g| g["world"].as_array_mut().unwrap().push(f));
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "line 1"),
        ("truncated", BASE[..BASE.len() / 2].to_vec(), "EOF while parsing"),
        (
            "not UTF-8",
            [&BASE[..100], &[0xff, 0xfe], &BASE[100..]].concat(),
            "byte 100: expected UTF-8",
        ),
        (
            "NUL bytes",
            [&BASE[..100], &[0, 0], &BASE[100..]].concat(),
            "line 1",
        ),
        ("only NUL", vec![0; 4096], "line 1"),
        (
            "NUL in a name",
            changed(|g| g["infos"][5][1]["name"] = "a\0b".into()),
            "infos[5][1].name",
        ),
        (
            "newline in a name",
            changed(|g| g["infos"][5][1]["name"] = "a\nb".into()),
            "infos[5][1].name",
        ),
        (
            "long name",
            changed(|g| g["infos"][5][1]["name"] = "x".repeat(1 << 20).into()),
            "infos[5][1].name",
        ),
        ("two documents", [BASE, b"{}"].concat(), "trailing characters"),
        (
            "wrong version",
            changed(|g| g["version"] = 2.into()),
            "at `version`: expected 1, found `2`",
        ),
        (
            "no version",
            changed(|g| drop(g.as_object_mut().unwrap().remove("version"))),
            "missing field `version`",
        ),
        ("a list", b"[1, 2]".to_vec(), "at `[1]`"),
        ("a number", b"7".to_vec(), "at `.`"),
        (
            "wrong shape",
            changed(|g| g["world"][3]["arguments"] = "x".into()),
            "at `world[3].arguments`",
        ),
        (
            "fraction of a point",
            changed(|g| g["quests"][0]["reward"] = 1.5.into()),
            "at `quests[0].reward`",
        ),
        (
            "unknown predicate",
            world(fact("teleported", &[("o_0", "o")])),
            "expected a predicate of the rule text",
        ),
        (
            "wrong arity",
            world(fact("open", &[("c_0", "c"), ("r_0", "r")])),
            "found `open/2`",
        ),
        (
            "unknown entity",
            world(fact("open", &[("c_9", "c")])),
            "expected an entity of `infos`, found `c_9`",
        ),
        (
            "unknown type",
            world(fact("open", &[("c_0", "zz")])),
            "expected a type of the rule text, found `zz`",
        ),
        (
            "other type",
            world(fact("open", &[("c_0", "s")])),
            "expected the type that `infos` gives `c_0`",
        ),
        (
            "unknown predicate in a quest",
            changed(|g| {
                g["quests"][0]["win_events"][0]["condition"]["preconditions"][0]["name"] = "x".into()
            }),
            "quests[0].win_events[0].condition.preconditions[0]",
        ),
        (
            "double id",
            changed(|g| g["infos"][6][0] = "c_0".into()),
            "infos[6][0]",
        ),
        (
            "two holders",
            world(fact("at", &[("o_0", "o"), ("r_0", "r")])),
            "one holder for each entity",
        ),
        (
            "cyclic containment",
            changed(|g| {
                let world = g["world"].as_array_mut().unwrap();
                world
                    .retain(|f| f["name"] == "at" && f["arguments"][0]["name"] == "P" || f["name"] == "free");
                world.push(fact("in", &[("k_0", "k"), ("c_0", "c")]));
                world.push(fact("in", &[("c_0", "c"), ("k_0", "k")]));
            }),
            "containment without a circle",
        ),
        (
            "unknown part",
            rules("type z { magic { } }"),
            "expected `predicates`",
        ),
        ("unclosed", rules("type z {"), "found the end of the text"),
        (
            "unclosed text",
            rules("type z { inform7 { code :: \"\"\""),
            "expected a closing \"\"\"",
        ),
        ("unknown character", rules("type z { € }"), "found `€`"),
        ("unknown parent", rules("type z : nobody { }"), "found `nobody`"),
        (
            "one placeholder, two types",
            rules("type z { rules { a :: at(P, r) & at(x: t, r: c) -> at(P, r); } }"),
            "the type that `r`",
        ),
        (
            "alias without end",
            rules("type z { predicates { q(r) = q(r); } rules { zz :: q(r) -> q(r); } }"),
            "rule zz",
        ),
        (
            "alias that doubles",
            rules(
                "type z { predicates { a1(r) = a2(r) & a2(r); a2(r) = a3(r) & a3(r); a3(r) = a4(r) & a4(r); \
                 a4(r) = a5(r) & a5(r); a5(r) = a6(r) & a6(r); a6(r) = a7(r) & a7(r); a7(r) = a8(r) & a8(r); \
                 a8(r) = a9(r) & a9(r); a9(r); } rules { zz :: a1(r) -> a1(r); } }",
            ),
            "rule zz",
        ),
        (
            "command of an unknown placeholder",
            rules(
                "type z { rules { zz :: at(P, r) -> at(P, r); } inform7 { commands { zz :: \"zz {q}\" :: \"\"; } } }",
            ),
            "rule zz",
        ),
    ];
    for (name, bytes, place) in table {
        let error = refused(&bytes).to_string();
        assert!(error.contains(place), "{name}: `{place}` is not in: {error}");
    }
}

#[test]
fn too_much_of_anything_is_refused_in_time() {
    // A million objects: over the limit on bytes.
    let info = |i: usize| json!([format!("o_{i}"), {"type": "o", "name": format!("thing {i}")}]);
    let million = changed(|g| {
        g["infos"]
            .as_array_mut()
            .unwrap()
            .extend((10..1_000_000).map(info))
    });
    assert!(million.len() as u64 > MAX_FILE_BYTES);
    assert!(matches!(refused(&million), GameError::TooLarge { .. }));
    // The most that fits into the bytes: over the limit on entities.
    let many = changed(|g| g["infos"].as_array_mut().unwrap().extend((10..100_000).map(info)));
    assert!(
        refused(&many)
            .to_string()
            .contains("at `infos`: expected at most")
    );
    // Nested beyond what JSON readers take, in a field that is kept and in one that is ignored.
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let kept = format!("{{\"metadata\": {{\"x\": {deep}}}}}");
    assert!(refused(kept.as_bytes()).to_string().contains("recursion limit"));
    refused(format!("{{\"unheard_of\": {deep}}}").as_bytes());
    assert!(matches!(refused(&multiplying("at(P, r)")), GameError::Work { rule, .. } if rule == "zz"));
}

/// A game whose rule `zz` matches 30 facts in 20 places that nothing ties together, once `gate` holds.
fn multiplying(gate: &str) -> Vec<u8> {
    let info = |i: usize| json!([format!("o_{i}"), {"type": "o", "name": format!("thing {i}")}]);
    let mut rule = format!("type z {{ predicates {{ here(t); }} rules {{ zz :: {gate} & here(a: t)");
    (1..20).for_each(|i| rule.push_str(&format!(" & here(a{i}: t)")));
    rule.push_str(" & here(never: r) -> here(a); } inform7 { commands { zz :: \"zz\" :: \"\"; } } }");
    changed(|g| {
        g["KB"]["logic"] = format!("{}\n{rule}", g["KB"]["logic"].as_str().unwrap()).into();
        g["infos"].as_array_mut().unwrap().extend((10..40).map(info));
        g["world"]
            .as_array_mut()
            .unwrap()
            .extend((10..40).map(|i| fact("here", &[(&format!("o_{i}"), "o")])));
    })
}

#[test]
fn a_game_that_gets_too_much_in_play_is_the_environments_error_not_the_plans() {
    let game = Game::parse(&multiplying("eaten(f: f)"), NAME).unwrap();
    let begun = Instant::now();
    let verdict = judge(&game, &["eat cookie".into(), "look".into()], 4);
    let failure = verdict.failure.unwrap();
    assert_eq!(failure.label(), "textworld.environment_error");
    assert_eq!(
        (failure.location.as_str(), verdict.executed),
        ("LeafOutput.answer.commands[1]", 1)
    );
    assert!(failure.message.contains("rule `zz`"), "{}", failure.message);
    // The search for a next winning command meets the same states, and gives up as well.
    let _ = judge(&game, &["nothing".into()], 4);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn hostile_descriptions_print_in_time() {
    let nested = "[if c_0 is open]x".repeat(20_000) + &"[end if]".repeat(30_000) + "[otherwise][end if][";
    for desc in [
        nested,
        "[if c_0 is open".into(),
        "[[[]]][if ][else if open][otherwise]a".into(),
        "'".repeat(9),
    ] {
        let bytes = changed(|g| {
            g["infos"]
                .as_array_mut()
                .unwrap()
                .iter_mut()
                .for_each(|i| i[1]["desc"] = desc.clone().into())
        });
        let game = Game::parse(&bytes, NAME).unwrap();
        let begun = Instant::now();
        let mut play = game.start();
        let _ = (play.feedback(), play.description());
        assert!(play.step("go east").is_some());
        let _ = play.feedback();
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}

/// Whatever is accepted can be played to the end of a plan and printed.
fn exercise(bytes: &[u8]) {
    let Ok(game) = Game::parse(bytes, NAME) else {
        return;
    };
    let mut play = game.start();
    for i in 0..4 {
        let _ = (
            play.feedback(),
            play.description(),
            play.inventory(),
            play.facts(),
        );
        let Some(command) = play.admissible().nth(i).map(str::to_owned) else {
            break;
        };
        play.step(&command);
    }
    let _ = judge(&game, &["go east".into(), "nothing".into()], 4);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        exercise(&bytes);
    }

    #[test]
    fn a_damaged_file_is_safe(at in 0..BASE.len(), length in 0..40_usize, new in proptest::collection::vec(any::<u8>(), 0..12)) {
        let end = (at + length).min(BASE.len());
        exercise(&[&BASE[..at], &new, &BASE[end..]].concat());
    }

    #[test]
    fn any_rule_text_is_safe(words in proptest::collection::vec(prop_oneof![
        Just("type"), Just("t"), Just("{"), Just("}"), Just("rules"), Just("predicates"), Just("inform7"), Just("commands"),
        Just("at(P, r)"), Just("::"), Just("->"), Just("&"), Just("$"), Just(";"), Just(","), Just("\"{r}\""), Just("="),
        Just("("), Just(")"), Just(":"), Just("#"), Just("\n"), Just("é"), Just("!x"), Just("\"\"\""), Just("code"),
    ], 0..60)) {
        let text = words.join(" ");
        exercise(&changed(|g| g["KB"]["logic"] = text.clone().into()));
        exercise(&changed(|g| g["KB"]["logic"] = format!("{}{text}", g["KB"]["logic"].as_str().unwrap()).into()));
    }

    #[test]
    fn any_description_is_safe(desc in "(\\[(if|else if|otherwise|end if|noun|a list of things in the)? ?(c_0|s_0|open)?( is open| contains nothing)?\\]|[ a-z'\n\\[\\]é]){0,20}") {
        exercise(&changed(|g| g["infos"].as_array_mut().unwrap().iter_mut().for_each(|i| i[1]["desc"] = desc.clone().into())));
    }

    #[test]
    fn any_recording_is_safe(lines in "(\\{\"t\":[0-9]{1,2},\"cmd\":\"(look|go east)\",\"adm\":(true|false|null)\\}\n|[ -~]{0,10}\n){0,10}") {
        let game = Game::parse(BASE, NAME).unwrap();
        let _ = verify(&game, lines.as_bytes(), "recording");
    }
}
