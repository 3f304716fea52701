//! Loads of replies that are held to a schema: each gets the tokens it gets alone, and is a document when it ended.
//!
//! Not the schemas' automata (`grammar`): what is tried here is how forced tokens, blocks and preemption meet.

use super::super::super::{Sampling, Schema, StopReason};
use super::fake::{Fake, Load, alone};
use super::{BLOCK, Request, blocks, request, tokens};
use proptest::prelude::*;
use serde_json::{Value, json};

fn object_of_strings() -> Schema {
    let strings = json!({ "type": "array", "items": { "type": "string", "minLength": 4, "maxLength": 6 }, "minItems": 3, "maxItems": 4 });
    Schema(json!({
        "type": "object", "properties": { "k": strings }, "required": ["k"], "additionalProperties": false,
    }))
}

#[test]
fn held_replies_are_documents_alone_and_together() {
    for invariant in [true, false] {
        let held: Vec<Request> = (0..12)
            .map(|row| {
                let mut request = request(row, tokens(&[row as u32 % 2], 26), 90);
                request.sampling.schema = Some(object_of_strings());
                request
            })
            .collect();
        // Too few blocks for all, prompts in pieces.
        let mut load = Load::new(Fake::new(invariant), 6, 40, 6);
        let ids: Vec<_> = held.iter().map(|request| load.submit(request)).collect();
        load.drain();
        let stats = load.batcher.stats();
        assert!(stats.preemptions > 0, "{invariant}: {stats:?}");
        for (id, request) in ids.iter().zip(&held) {
            let found = load.results[id].as_ref().unwrap();
            assert_eq!(found.tokens, alone(invariant, request).tokens);
            assert_eq!(found.stop, StopReason::EndOfTurn, "{}", found.text);
            let document: serde_json::Value = serde_json::from_str(&found.text).unwrap();
            assert!(document["k"].is_array(), "{document}");
            // The braces, the key and the bracket at least.
            assert!(found.cost.forced_tokens >= 3, "{found:?}");
        }
    }
}

#[test]
fn a_schema_with_one_document_needs_no_pass() {
    let mut request = request(0, tokens(&[], 9), 20);
    request.sampling.schema = Some(Schema(json!({ "const": { "k": null } })));
    let mut load = Load::new(Fake::new(true), 1, 64, 9);
    let found = load.finish(&request).unwrap();
    assert_eq!(
        (found.text.as_str(), found.stop),
        ("{\"k\": null}", StopReason::EndOfTurn)
    );
    assert_eq!(
        (load.batcher.stats().passes, found.cost.forced_tokens),
        (0, found.tokens.len())
    );
    request.sampling.max_tokens = 2;
    let cut = load.finish(&request).unwrap();
    assert_eq!((cut.stop, cut.tokens.len()), (StopReason::MaxTokens, 2));
}

/// Longer than a block, so that wherever it is forced a block ends within it.
const LONG: &str = "abcdefghijklmnopqrstabcdefghijklmnopqrst";

/// A choice, then a long text without one, then choices again.
fn forced_in_the_middle() -> Schema {
    let few = json!({ "type": "array", "items": { "type": "string", "maxLength": 3 }, "maxItems": 3 });
    Schema(json!({
        "type": "object",
        "properties": { "k": { "type": "string", "maxLength": 5 }, "l": { "const": LONG }, "m": few },
        "required": ["k", "l", "m"],
        "additionalProperties": false,
    }))
}

/// A request under one schema, another or none, and how many steps are made before the next one comes.
fn arrival() -> impl Strategy<Value = (Request, usize)> {
    let rest = prop_oneof![Just(1), Just(BLOCK - 1), 1..BLOCK];
    let prompt = (prop::collection::vec(0u32..2, 0..3), rest);
    (prompt, 0usize..100, 1usize..120, 0usize..3, 0usize..12).prop_map(
        |((kinds, rest), row, new, schema, gap)| {
            let mut request = request(row, tokens(&kinds, rest), new);
            request.sampling.schema = match schema {
                0 => None,
                1 => Some(object_of_strings()),
                _ => Some(forced_in_the_middle()),
            };
            (request, gap)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn every_held_request_gets_what_it_gets_alone(
        invariant: bool,
        arrivals in prop::collection::vec(arrival(), 1..8),
        batch in 1usize..7,
        chunk in 1usize..120,
        spare in 0usize..6,
    ) {
        let largest = arrivals.iter().map(|(request, _)| blocks(request)).max().unwrap();
        let mut load = Load::new(Fake::new(invariant), batch, chunk, largest + spare);
        let mut ids = Vec::new();
        for (request, gap) in &arrivals {
            ids.push(load.submit(request));
            for _ in 0..*gap {
                load.step();
            }
        }
        load.drain();
        for (id, (request, _)) in ids.iter().zip(&arrivals) {
            let found = load.results[id].as_ref().unwrap();
            let right = alone(invariant, request);
            prop_assert_eq!((&found.tokens, found.stop, found.cost.forced_tokens), (&right.tokens, right.stop, right.cost.forced_tokens));
            prop_assert!(found.cost.cached_tokens <= request.prompt.tokens.len());
            if request.sampling.schema.is_some() && found.stop == StopReason::EndOfTurn {
                let document = serde_json::from_str::<Value>(&found.text);
                prop_assert!(document.is_ok_and(|document| document["k"] != Value::Null), "{}", found.text);
            }
        }
    }
}

#[test]
fn a_forced_text_runs_on_over_the_end_of_a_block() {
    for (invariant, draft) in [(true, 8), (true, 0), (false, 0)] {
        // Wherever the first block ends.
        for rest in 1..=BLOCK {
            let mut request = request(0, tokens(&[], rest), 120);
            request.sampling = Sampling {
                schema: Some(forced_in_the_middle()),
                ..request.sampling
            };
            let mut load = Load::guessing(Fake::new(invariant), 2, 64, 8, draft);
            let found = load.finish(&request).unwrap();
            assert_eq!(found.stop, StopReason::EndOfTurn);
            assert!(
                found.text.contains(LONG) && found.cost.forced_tokens > LONG.len(),
                "{}",
                found.text
            );
        }
    }
}
