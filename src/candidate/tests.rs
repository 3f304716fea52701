//! Every kind of reply, by hand and at random.
//!
//! Not what gates make of a candidate.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn plan(text: &str) -> Candidate {
    parse(text, StopReason::EndOfTurn, Format::Commands, Fences::Strict)
}

#[test]
fn a_plan_is_read_as_written() {
    let candidate = plan(" {\"commands\": [\"go east\", \" take  worm \"]}\n");
    assert_eq!(candidate.strict, Category::Ok);
    assert_eq!(candidate.plan.unwrap().commands, ["go east", " take  worm "]);
}

#[test]
fn everything_wrong_has_its_category() {
    let deep = "[".repeat(1_000);
    let large = format!("{{\"commands\": [\"{}\"]}}", "x".repeat(MAX_BYTES));
    let table: &[(&str, Category)] = &[
        ("", Category::Empty),
        (" \n\t", Category::Empty),
        ("I would go east.", Category::NoJson),
        ("```json\n{\"commands\": []}\n```", Category::Fenced),
        ("Sure: {\"commands\": []}", Category::Prose),
        ("{\"commands\": []} Good luck!", Category::Prose),
        ("{\"commands\": []}\n{\"commands\": []}", Category::Prose),
        ("{\"commands\": [\"a\",]}", Category::Syntax),
        ("{\"commands\": [NaN]}", Category::Syntax),
        ("{'commands': []}", Category::Syntax),
        ("{\"commands\": [\"go", Category::Syntax),
        ("{\"commands\": [\"\\ud800\"]}", Category::Syntax),
        ("{\"commands\": [], \"commands\": []}", Category::DuplicateKey),
        (&deep, Category::TooDeep),
        (&large, Category::TooLarge),
        ("[]", Category::Schema),
        ("7", Category::Schema),
        ("{}", Category::Schema),
        ("{\"commands\": \"go east\"}", Category::Schema),
        ("{\"commands\": [1]}", Category::Schema),
        ("{\"commands\": [], \"note\": \"\"}", Category::Schema),
    ];
    for (text, category) in table {
        let candidate = plan(text);
        assert_eq!(candidate.strict, *category, "{text:.60}");
        assert_eq!(candidate.problem.as_ref().map(|p| p.category), Some(*category));
        assert!(candidate.plan.is_none());
    }
    assert_eq!(
        plan("{\"commands\": [\"a\", 1]}").problem.unwrap().to_string(),
        "commands[1]: expected a string, found a number"
    );
}

#[test]
fn a_cut_reply_is_truncated_whatever_it_trips_over() {
    for text in ["{\"commands\": [\"go", "```json\n{", "let me think", ""] {
        let candidate = parse(text, StopReason::MaxTokens, Format::Commands, Fences::Strict);
        assert_eq!(candidate.strict, Category::Truncated, "{text}");
    }
    let whole = parse(
        "{\"commands\": []}",
        StopReason::MaxTokens,
        Format::Commands,
        Fences::Strict,
    );
    assert_eq!(whole.strict, Category::Ok);
}

#[test]
fn fences_come_off_only_when_asked_and_both_counts_are_kept() {
    for text in [
        "```json\n{\"commands\": [\"look\"]}\n```",
        "Here:\n```\n{\"commands\": [\"look\"]}",
        "```{\"commands\": [\"look\"]}```",
    ] {
        let strict = plan(text);
        assert_ne!(strict.strict, Category::Ok);
        assert_eq!((strict.lenient, strict.plan), (Category::Ok, None));
        let stripped = parse(text, StopReason::EndOfTurn, Format::Commands, Fences::Strip);
        assert_eq!(stripped.plan.unwrap().commands, ["look"]);
        assert_ne!(stripped.strict, Category::Ok);
    }
}

#[test]
fn a_leaf_output_carries_its_plan_as_text_or_object() {
    let leaf = |answer: &str| {
        format!("{{\"task_id\": \"t\", \"answer\": {answer}, \"artifacts\": [\"action_plan.json\"]}}")
    };
    let parse = |text: &str| parse(text, StopReason::EndOfTurn, Format::LeafOutput, Fences::Strict);
    let text = parse(&leaf(r#""{\"commands\": [\"look\"]}""#));
    let object = parse(&leaf(r#"{"commands": ["look"]}"#));
    for candidate in [&text, &object] {
        assert_eq!(candidate.strict, Category::Ok);
        assert_eq!(candidate.plan.as_ref().unwrap().commands, ["look"]);
        assert_eq!(
            candidate.envelope.as_ref().unwrap().artifacts,
            ["action_plan.json"]
        );
    }
    for (claims, place) in [
        (
            r#"[{"claim": "x", "confidence": "high"}]"#,
            "LeafOutput.claims[0].confidence: expected a number",
        ),
        (
            r#"[{"claim": "x", "evidence_refs": [{}]}]"#,
            "LeafOutput.claims[0].evidence_refs[0]: expected the key",
        ),
        (r#"[7]"#, "LeafOutput.claims[0]: expected an object"),
    ] {
        let text = format!("{{\"task_id\": \"t\", \"answer\": \"\", \"claims\": {claims}}}");
        let said = parse(&text).problem.unwrap().to_string();
        assert!(said.starts_with(place), "{said}");
    }
    let bad = parse(&leaf(r#""go east""#));
    assert!(bad.envelope.is_some() && bad.plan.is_none());
    assert_eq!(bad.strict, Category::Schema);
    assert!(bad.problem.unwrap().place.starts_with("LeafOutput.answer"));
}

/// Some document of a schema: properties that need not be there come and go.
fn document(schema: &Value, texts: &mut impl Iterator<Item = String>) -> Value {
    let text = texts.next().unwrap_or_default();
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().unwrap();
            let properties = schema["properties"].as_object().unwrap().iter();
            let there = properties
                .filter(|(name, _)| text.len().is_multiple_of(2) || required.contains(&json!(name)));
            let there = there.collect::<Vec<_>>().into_iter();
            Value::Object(
                there
                    .map(|(name, part)| (name.clone(), document(part, texts)))
                    .collect(),
            )
        }
        Some("array") => {
            let bound = |key: &str| schema[key].as_u64().unwrap_or(0) as usize;
            let count = bound("minItems") + text.len() % (bound("maxItems") - bound("minItems") + 1);
            (0..count).map(|_| document(&schema["items"], texts)).collect()
        }
        Some("boolean") => json!(text.len().is_multiple_of(2)),
        Some("string") => json!(text),
        other => panic!("a type that this test does not know: {other:?}"),
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*", cut: bool, strip: bool, leaf: bool) {
        let stop = if cut { StopReason::MaxTokens } else { StopReason::EndOfTurn };
        let format = if leaf { Format::LeafOutput } else { Format::Commands };
        let fences = if strip { Fences::Strip } else { Fences::Strict };
        let candidate = parse(&text, stop, format, fences);
        prop_assert_eq!(candidate.plan.is_some(), candidate.problem.is_none());
    }

    #[test]
    fn jsonish_text_never_panics(text in "[\\[\\]{}\",:a\\\\`\n ]{0,60}") {
        let candidate = plan(&text);
        prop_assert_eq!(candidate.plan.is_some(), candidate.strict == Category::Ok);
    }

    #[test]
    fn documents_of_the_schema_are_candidates(
        texts in prop::collection::vec("\\PC{0,9}", 0..40), leaf: bool, pretty: bool,
    ) {
        let format = if leaf { Format::LeafOutput } else { Format::Commands };
        let document = document(&format.json_schema(4), &mut texts.into_iter());
        let text = if pretty { format!("{document:#}") } else { document.to_string() };
        let candidate = parse(&text, StopReason::EndOfTurn, format, Fences::Strict);
        prop_assert_eq!(candidate.problem, None, "{}", text);
        prop_assert!(candidate.plan.is_some());
    }

    #[test]
    fn every_written_plan_is_read_back(commands in prop::collection::vec("\\PC{0,30}", 0..6)) {
        let text = json!({ "commands": &commands }).to_string();
        prop_assert_eq!(plan(&text).plan.unwrap().commands, commands);
    }
}
