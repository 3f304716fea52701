//! Random loads over a backend that remembers its blocks: every request gets the tokens it gets alone.
//!
//! Not real logits (`tests/reproducible.rs`), and not the watching itself: `fake` has the backend, and the load that
//! checks the rules of the scheduler after each step.

mod fake;
mod held;

use super::super::{Drafts, Prompt, Sampling, StopReason};
use super::*;
use fake::{Fake, Load, alone};
use proptest::prelude::*;

/// A prompt of full blocks of these kinds, and `rest` tokens more: prompts share beginnings, and have equal blocks
/// behind different beginnings.
fn tokens(kinds: &[u32], rest: usize) -> Vec<u32> {
    let last = kinds.iter().sum::<u32>() + 5;
    let full = kinds.iter().flat_map(|kind| vec![kind; BLOCK]);
    let token = |(i, kind): (usize, &u32)| (i % BLOCK) as u32 * (2 * kind + 1) % 31;
    full.chain(std::iter::repeat_n(&last, rest))
        .enumerate()
        .map(token)
        .collect()
}

/// Every other row is greedy.
fn request(row: usize, tokens: Vec<u32>, new: usize) -> Request {
    Request {
        row: format!("row {row}"),
        call: 1,
        seed: 5,
        prompt: Prompt {
            text: String::new(),
            tokens,
        },
        sampling: Sampling {
            temperature: if row.is_multiple_of(2) { 0.0 } else { 0.9 },
            max_tokens: new,
            ..Sampling::default()
        },
    }
}

/// The positions of a request in blocks, at most.
fn blocks(request: &Request) -> usize {
    (request.prompt.tokens.len() + request.sampling.max_tokens - 1).div_ceil(BLOCK)
}

/// A request, and how many steps are made before the next one comes.
fn arrival() -> impl Strategy<Value = (Request, usize)> {
    let rest = prop_oneof![Just(0), Just(1), Just(BLOCK - 1), 0..BLOCK];
    let stops = prop::collection::vec("[a-z]?[01][a-z]", 0..2);
    let prompt = (prop::collection::vec(0u32..2, 0..5), rest);
    (prompt, 0usize..100, 1usize..70, stops, 0usize..12).prop_map(|((kinds, rest), row, new, stop, gap)| {
        let rest = if kinds.is_empty() { rest.max(1) } else { rest };
        let mut request = request(row, tokens(&kinds, rest), new);
        request.sampling.stop = stop;
        (request, gap)
    })
}

/// The next call of a row: its prompt holds what the last one answered.
fn follow_up(request: &Request, answer: &Completion) -> Request {
    let mut next = request.clone();
    next.call += 1;
    next.prompt.tokens.extend(&answer.tokens);
    next.prompt.tokens.extend([1, 2, 3]);
    next
}

/// What a request got, which is what it gets alone; at the second try, when the pass that fails was one of its own.
fn right(
    load: &mut Load,
    id: RequestId,
    request: &Request,
    invariant: bool,
) -> Result<Completion, TestCaseError> {
    let mut found = load.results[&id].clone();
    if let Err(error) = &found {
        prop_assert!(error.contains("gone"), "{}", error);
        found = load.finish(request);
    }
    let (found, right) = (found.unwrap(), alone(invariant, request));
    prop_assert_eq!(
        (&found.tokens, found.stop, &found.text),
        (&right.tokens, right.stop, &right.text)
    );
    Ok(found)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_request_gets_what_it_gets_alone(
        invariant: bool,
        arrivals in prop::collection::vec(arrival(), 1..10),
        batch in 1usize..9,
        chunk in 1usize..200,
        spare in 0usize..14,
        failing in prop::option::weighted(0.3, 0usize..60),
        draft in prop_oneof![Just(0), 1usize..20],
    ) {
        let fake = Fake { failing, ..Fake::new(invariant) };
        let largest = arrivals.iter().map(|(request, _)| blocks(request)).max().unwrap();
        let pool = largest + spare;
        let mut load = Load::guessing(fake, batch, chunk, pool, draft);
        let mut ids = Vec::new();
        for (request, gap) in &arrivals {
            ids.push(load.submit(request));
            for _ in 0..*gap {
                load.step();
            }
        }
        load.drain();
        let failed = load.results.values().filter(|result| result.is_err()).count();
        if failed == 0 {
            let stats = load.batcher.stats();
            let cached = |result: &Result<Completion, _>| result.as_ref().unwrap().cost.cached_tokens;
            let all_cached: usize = load.results.values().map(cached).sum();
            prop_assert_eq!(stats.prompt_cached, all_cached as u64);
            prop_assert_eq!(stats.prompt_cached + stats.prompt_computed, stats.prompt_tokens);
        }
        // Then all go on together from where they ended.
        let mut next = Vec::new();
        for (id, (request, _)) in ids.iter().zip(&arrivals) {
            let found = right(&mut load, *id, request, invariant)?;
            next.push(follow_up(request, &found));
        }
        next.retain(|request| blocks(request) <= pool);
        let ids: Vec<_> = next.iter().map(|request| load.submit(request)).collect();
        load.drain();
        for (id, request) in ids.iter().zip(&next) {
            right(&mut load, *id, request, invariant)?;
        }
    }
}

#[test]
fn guesses_spare_passes_and_change_nothing() {
    let requests: Vec<Request> = (0..6)
        .map(|row| request(row, tokens(&[row as u32 % 2], 9), 60))
        .collect();
    let mut passes = Vec::new();
    for draft in [0, 16] {
        let mut load = Load::guessing(Fake::new(true), 3, 512, 60, draft);
        let ids: Vec<_> = requests.iter().map(|request| load.submit(request)).collect();
        load.drain();
        let mut all = Drafts::default();
        for (id, request) in ids.iter().zip(&requests) {
            let found = load.results[id].as_ref().unwrap();
            assert_eq!(found.tokens, alone(true, request).tokens);
            all += found.cost.drafts;
        }
        let stats = load.batcher.stats();
        assert_eq!(stats.drafts, all);
        assert!(
            all.confirmed <= all.guessed && (all.confirmed > 0) == (draft > 0),
            "{all:?}"
        );
        passes.push(stats.passes);
    }
    assert!(passes[1] < passes[0], "{passes:?}");
    // Where bits depend on the cut, nothing is guessed.
    let mut load = Load::new(Fake::new(false), 3, 512, 60);
    assert_eq!(load.finish(&requests[0]).unwrap().cost.drafts, Drafts::default());
}

/// `Load::step` asserts that the older row is not the one.
#[test]
fn a_row_that_lost_its_blocks_loses_nothing_else() {
    let requests = [request(0, tokens(&[0], 28), 60), request(1, tokens(&[1], 28), 60)];
    for invariant in [true, false] {
        let mut load = Load::new(Fake::new(invariant), 2, 64, 5);
        let ids = requests.each_ref().map(|request| load.submit(request));
        load.drain();
        for (id, request) in ids.iter().zip(&requests) {
            let found = load.results[id].as_ref().unwrap();
            assert_eq!(found.tokens, alone(invariant, request).tokens);
        }
        let stats = load.batcher.stats();
        assert!(stats.preemptions > 0 && stats.recomputed > 0, "{stats:?}");
    }
}

#[test]
fn a_shared_beginning_is_computed_once_and_a_retry_computes_what_changed() {
    for (invariant, chunk) in [(true, 512), (false, 512), (true, 40), (false, 1)] {
        let mut load = Load::new(Fake::new(invariant), 8, chunk, 60);
        for row in 0..6 {
            let mut prompt = tokens(&[0, 1, 0], 14);
            prompt[3 * BLOCK + 2] = row as u32;
            load.submit(&request(row, prompt, 4));
        }
        load.drain();
        let computed = load.batcher.stats().prompt_computed as usize;
        assert_eq!(computed, 3 * BLOCK + 6 * 14);
        // A retry keeps the beginning up to within its third block.
        let mut retry = tokens(&[0, 1, 0], 20);
        retry[2 * BLOCK + 5] = 30;
        let found = load.finish(&request(9, retry.clone(), 4)).unwrap();
        // Within a block only where bits do not depend on the cut.
        let cached = 2 * BLOCK + if invariant { 5 } else { 0 };
        assert_eq!(found.cost.cached_tokens, cached);
        let now = load.batcher.stats().prompt_computed as usize;
        assert_eq!(now - computed, retry.len() - cached);
    }
}

#[test]
fn a_completion_is_cached_only_where_its_bits_are_those_of_a_prompt() {
    for (invariant, cached) in [(true, 3 * BLOCK), (false, BLOCK)] {
        let mut load = Load::new(Fake::new(invariant), 2, 512, 20);
        let first = (0..100)
            .map(|row| request(row, tokens(&[1], 8), 60))
            .find(|request| alone(invariant, request).stop == StopReason::MaxTokens)
            .unwrap();
        let answer = load.finish(&first).unwrap();
        let next = follow_up(&first, &answer);
        let found = load.finish(&next).unwrap();
        assert_eq!(found.tokens, alone(invariant, &next).tokens);
        assert_eq!(found.cost.cached_tokens, cached);
    }
}

#[test]
fn a_failed_pass_ends_its_rows_and_leaves_nothing_behind() {
    let requests = [
        request(0, tokens(&[0, 1], 26), 9),
        request(1, tokens(&[1], 8), 9),
        request(2, tokens(&[1, 1], 8), 9),
    ];
    // In the first pass, where prompts are computed, and in one where both rows decode.
    for failing in [0, 2] {
        let fake = Fake {
            failing: Some(failing),
            ..Fake::new(true)
        };
        let mut load = Load::new(fake, 2, 512, 40);
        let ids = requests.each_ref().map(|request| load.submit(request));
        for _ in 0..=failing {
            load.step();
        }
        let said = "forward failed: forward failed: gone".to_owned();
        assert_eq!(load.results[&ids[0]], Err(said.clone()));
        assert_eq!(load.results[&ids[1]], Err(said));
        let kept = load.batcher.stats().blocks_idle;
        assert_eq!(
            kept,
            if failing == 0 { 0 } else { 3 },
            "prompts of earlier passes"
        );
        load.drain();
        assert_eq!(
            load.results[&ids[2]].as_ref().unwrap().tokens,
            alone(true, &requests[2]).tokens
        );
        for request in &requests {
            assert_eq!(load.finish(request).unwrap().tokens, alone(true, request).tokens);
        }
    }
}

#[test]
fn bad_logits_end_one_row_only() {
    let fake = Fake {
        poison: Some(35),
        ..Fake::new(true)
    };
    let mut load = Load::new(fake, 4, 512, 40);
    let mut bad = tokens(&[0], 18);
    bad[45] = 35;
    let good = request(1, tokens(&[1], 18), 5);
    let ids = [load.submit(&request(0, bad, 5)), load.submit(&good)];
    load.drain();
    let error = load.results[&ids[0]].as_ref().unwrap_err();
    assert_eq!(error, "non-finite logits: 1 of 40 at position 50");
    let found = load.results[&ids[1]].as_ref().unwrap();
    assert_eq!(found.tokens, alone(true, &good).tokens);
    // Only the good row's full block is kept.
    assert_eq!(load.batcher.stats().blocks_idle, 1);
}

/// `Load::step` asserts that what is shown grows, and that the completion begins with it.
#[test]
fn partial_texts_grow_into_the_whole_and_stop_strings_span_tokens() {
    let mut plain = request(0, tokens(&[], 20), 40);
    let whole = alone(true, &plain);
    assert_ne!(whole.stop, StopReason::StopString);
    // The second byte of one token and the first of the next.
    plain.sampling.stop = vec![whole.text[5..7].to_owned()];
    let cut = whole.text.find(&plain.sampling.stop[0]).unwrap();
    let mut load = Load::new(Fake::new(true), 1, 512, 40);
    let id = load.submit(&plain);
    let mut shown = Vec::new();
    while load.batcher.pending() > 0 {
        shown.extend(load.batcher.partial(id));
        load.step();
    }
    let found = load.results[&id].as_ref().unwrap();
    assert_eq!(
        (found.text.as_str(), found.stop),
        (&whole.text[..cut], StopReason::StopString)
    );
    assert_eq!(shown.first().map(String::as_str), Some(""));
    // All of the last one but the byte with which the stop string began.
    assert_eq!(shown.last().map(String::as_str), Some(&whole.text[..cut]));
}

#[test]
fn what_can_never_run_is_said_at_once() {
    let mut load = Load::new(Fake::new(true), 1, 512, 3);
    let ids = [
        load.submit(&request(0, tokens(&[0, 0], 26), 8)),
        load.submit(&request(1, tokens(&[0; 28], 4), 200)),
        load.submit(&request(2, vec![77], 2)),
        load.submit(&request(3, tokens(&[0, 0], 26), 7)),
    ];
    load.drain();
    let said = |i: usize| load.results[&ids[i]].as_ref().unwrap_err().clone();
    assert!(
        said(0).contains("97 positions, but the KV blocks hold 96"),
        "{}",
        said(0)
    );
    assert!(said(1).contains("the context holds 1000"), "{}", said(1));
    assert!(said(2).contains("token 77"), "{}", said(2));
    assert!(load.results[&ids[3]].is_ok());
}
