//! Claim: a request's tokens do not depend on what shares its batch, on what the prefix cache held, or on when it
//! was submitted; and what cannot be completed is said, not made up.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use veriharness::backend::cpu::{CpuBackend, Options};
use veriharness::backend::{BLOCK, Backend, BackendError, BlockId, Step};
use veriharness::candidate::{self, Fences, Format};
use veriharness::engine::local::{Limits, LocalEngine};
use veriharness::engine::{Completion, Engine, EngineError, Request, Sampling, Schema, StopReason};
use veriharness::model::chat::Message;
use veriharness::model::fetch::Silent;
use veriharness::model::{Model, obtain_exact};

static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| {
    let path = obtain_exact("smollm2-135m", &mut Silent).unwrap().path;
    Arc::new(Model::open(&path).unwrap())
});

fn backend() -> CpuBackend {
    CpuBackend::load(&MODEL, Options::default()).unwrap()
}

fn engine(limits: Limits) -> LocalEngine {
    LocalEngine::new("smollm2-135m".into(), MODEL.clone(), Box::new(backend()), limits).unwrap()
}

/// A prompt whose first part is shared by all.
fn prompt(i: usize) -> Vec<Message> {
    let shared =
        "You are in a kitchen. There is a red chest, a green door and a table with a lamp on it. ".repeat(4);
    vec![
        Message::system("Answer in one short sentence."),
        Message::user(format!("{shared}Question {i}: what is {i} plus {i}?")),
    ]
}

fn request(engine: &LocalEngine, i: usize, temperature: f64) -> Request {
    let sampling = Sampling {
        temperature,
        max_tokens: 6,
        ..Sampling::default()
    };
    Request {
        row: format!("row{i}"),
        call: 1,
        seed: 3,
        prompt: engine.encode(&prompt(i)).unwrap(),
        sampling,
    }
}

fn complete(engine: &mut LocalEngine, order: &[usize], temperature: f64) -> BTreeMap<usize, Completion> {
    let ids: BTreeMap<_, _> = order
        .iter()
        .map(|&i| (engine.submit(request(engine, i, temperature)), i))
        .collect();
    let mut done = BTreeMap::new();
    while engine.pending() > 0 {
        for finished in engine.step() {
            done.insert(ids[&finished.id], finished.result.unwrap());
        }
    }
    done
}

fn tokens(done: &BTreeMap<usize, Completion>) -> Vec<&[u32]> {
    done.values().map(|completion| &completion.tokens[..]).collect()
}

#[test]
fn batch_order_and_cache_do_not_change_a_token() {
    for temperature in [0.0, 0.8] {
        let alone: BTreeMap<_, _> = (0..4)
            .flat_map(|i| {
                // A new engine has nothing cached.
                complete(&mut engine(Limits::default()), &[i], temperature)
            })
            .collect();
        assert!(
            alone
                .values()
                .all(|c| c.cost.cached_tokens == 0 && !c.tokens.is_empty())
        );
        let mut cached = engine(Limits {
            batch: 1,
            ..Limits::default()
        });
        let one_by_one = complete(&mut cached, &[2, 0, 1, 3], temperature);
        let again = complete(&mut cached, &[3, 1], temperature);
        let mut wide = engine(Limits {
            batch: 8,
            chunk: 48,
            ..Limits::default()
        });
        let together = complete(&mut wide, &[3, 0, 1, 2], temperature);
        assert_eq!(tokens(&alone), tokens(&one_by_one));
        assert_eq!(tokens(&alone), tokens(&together));
        assert_eq!(
            [&alone[&1].tokens, &alone[&3].tokens],
            [&again[&1].tokens, &again[&3].tokens]
        );
        assert!(
            one_by_one[&3].cost.cached_tokens >= 2 * BLOCK,
            "{:?}",
            one_by_one[&3].cost
        );
    }
}

#[test]
fn seeds_rows_and_calls_draw_differently() {
    let mut engine = engine(Limits::default());
    let base = request(&engine, 1, 1.5);
    let other_seed = Request {
        seed: 4,
        ..base.clone()
    };
    let other_row = Request {
        row: "another".into(),
        ..base.clone()
    };
    let other_call = Request {
        call: 2,
        ..base.clone()
    };
    let mut texts = Vec::new();
    for request in [base.clone(), base, other_seed, other_row, other_call] {
        engine.submit(request);
        while engine.pending() > 0 {
            texts.extend(
                engine
                    .step()
                    .into_iter()
                    .map(|finished| finished.result.unwrap().text),
            );
        }
    }
    assert_eq!(texts[0], texts[1]);
    assert!(texts[2..].iter().all(|text| *text != texts[0]), "{texts:?}");
}

#[test]
fn the_cap_and_the_context_hold() {
    let mut engine = engine(Limits::default());
    let mut capped = request(&engine, 0, 0.0);
    capped.sampling.max_tokens = 2;
    let mut endless = request(&engine, 0, 0.0);
    endless.sampling.max_tokens = 1_000_000;
    let (a, b) = (engine.submit(capped), engine.submit(endless));
    let mut results = BTreeMap::new();
    while engine.pending() > 0 {
        results.extend(
            engine
                .step()
                .into_iter()
                .map(|finished| (finished.id, finished.result)),
        );
    }
    let cut = results.remove(&a).unwrap().unwrap();
    assert_eq!((cut.tokens.len(), cut.stop), (2, StopReason::MaxTokens));
    assert!(matches!(
        results.remove(&b).unwrap(),
        Err(EngineError::Context { new: 1_000_000, .. })
    ));
}

/// Two rows for whose keys and values there is no room together: the older one needs a third block just when the
/// younger one has filled its first, and that one has to be computed again.
#[test]
fn a_preempted_row_goes_on_as_if_nothing_had_happened() {
    let block_bytes = backend().block_bytes();
    let prompts = [2 * BLOCK - 6, BLOCK - 6];
    let run = |blocks: usize, rows: &[usize]| {
        let mut engine = engine(Limits {
            kv_bytes: blocks * block_bytes,
            ..Limits::default()
        });
        for &i in rows {
            let mut request = request(&engine, i, 0.8);
            let start = request.prompt.tokens.len() - prompts[i];
            request.prompt.tokens.drain(..start);
            request.sampling.max_tokens = 16;
            engine.submit(request);
        }
        let mut tokens = BTreeMap::new();
        while engine.pending() > 0 {
            for finished in engine.step() {
                tokens.insert(finished.id, finished.result.unwrap().tokens);
            }
        }
        (tokens.into_values().collect::<Vec<_>>(), engine.stats())
    };
    let (narrow, stats) = run(3, &[0, 1]);
    assert_eq!(
        (stats.preemptions, stats.recomputed),
        // Its first token is that of the block which the other row left in the cache.
        (1, BLOCK as u64 - 1),
        "{stats:?}"
    );
    assert_eq!(narrow, [run(9, &[0]).0, run(9, &[1]).0].concat());
}

type Logits = Result<Vec<Vec<f32>>, BackendError>;

/// A backend that breaks in a chosen way.
struct Broken(CpuBackend, fn(Vec<Vec<f32>>) -> Logits);

impl Backend for Broken {
    fn name(&self) -> &str {
        "broken"
    }
    fn vocab(&self) -> usize {
        self.0.vocab()
    }
    fn context(&self) -> usize {
        self.0.context()
    }
    fn copy(&mut self, from: BlockId, to: BlockId) {
        self.0.copy(from, to);
    }
    fn forward(&mut self, batch: &[Step<'_>]) -> Logits {
        self.0.forward(batch).and_then(self.1)
    }
    fn block_bytes(&self) -> usize {
        self.0.block_bytes()
    }
    fn invariant(&self) -> bool {
        self.0.invariant()
    }
    fn reserve(&mut self, blocks: usize) -> Result<(), BackendError> {
        self.0.reserve(blocks)
    }
}

#[test]
fn broken_logits_and_a_broken_backend_end_requests_not_the_engine() {
    let poisoned: fn(Vec<Vec<f32>>) -> Logits = |mut logits| {
        for logit in logits.iter_mut().filter_map(|row| row.get_mut(7)) {
            *logit = f32::NAN;
        }
        Ok(logits)
    };
    let failing: fn(Vec<Vec<f32>>) -> Logits = |_| {
        Err(BackendError::Compute {
            op: "matmul",
            reason: "gone".into(),
        })
    };
    for (break_it, said) in [(poisoned, "non-finite logits: 1 of"), (failing, "gone")] {
        let broken = Box::new(Broken(backend(), break_it));
        let mut engine =
            LocalEngine::new("smollm2-135m".into(), MODEL.clone(), broken, Limits::default()).unwrap();
        for i in 0..2 {
            engine.submit(request(&engine, i, 0.0));
        }
        let mut errors = Vec::new();
        while engine.pending() > 0 {
            errors.extend(
                engine
                    .step()
                    .into_iter()
                    .map(|finished| finished.result.unwrap_err().to_string()),
            );
        }
        assert_eq!(errors.len(), 2);
        assert!(errors.iter().all(|error| error.contains(said)), "{errors:?}");
    }
}

/// A request whose reply is held to the schema of compact candidates, by a model that does not write such on its own.
fn held(engine: &LocalEngine, i: usize, temperature: f64) -> Request {
    let mut request = request(engine, i, temperature);
    request.sampling.max_tokens = 60;
    request.sampling.schema = Some(Schema(Format::Commands.json_schema(4)));
    request
}

#[test]
fn held_replies_are_candidates_alone_and_in_a_batch() {
    for temperature in [0.0, 0.8] {
        let mut found = Vec::new();
        for (batch, chunk) in [(1, 512), (8, 40)] {
            let mut engine = engine(Limits {
                batch,
                chunk,
                ..Limits::default()
            });
            let ids: Vec<_> = (0..6)
                .map(|i| engine.submit(held(&engine, i, temperature)))
                .collect();
            let mut done = BTreeMap::new();
            while engine.pending() > 0 {
                done.extend(engine.step().into_iter().map(|f| (f.id, f.result.unwrap())));
            }
            let texts: Vec<String> = ids.iter().map(|id| done[id].text.clone()).collect();
            for completion in done.values() {
                assert!(
                    completion.text.starts_with(r#"{"commands": ["#),
                    "{}",
                    completion.text
                );
                assert!(completion.cost.forced_tokens > 0);
                let strict = Fences::Strict;
                let candidate = candidate::parse(&completion.text, completion.stop, Format::Commands, strict);
                let whole = completion.stop == StopReason::EndOfTurn;
                assert_eq!(candidate.plan.is_some(), whole, "{completion:?}");
            }
            assert!(
                done.values()
                    .any(|completion| completion.stop == StopReason::EndOfTurn)
            );
            found.push(texts);
        }
        assert_eq!(found[0], found[1]);
    }
}

#[test]
fn a_schema_that_cannot_be_compiled_is_said_before_any_pass() {
    let mut engine = engine(Limits::default());
    let mut request = held(&engine, 0, 0.0);
    let bad = json!({ "type": "object", "properties": { "a": { "type": "strange" } } });
    request.sampling.schema = Some(Schema(bad));
    let said = engine.prepare(&request.sampling).unwrap_err().to_string();
    assert!(said.starts_with("the schema at #/properties/a: "), "{said}");
    let id = engine.submit(request);
    let finished = engine.step();
    assert_eq!(finished[0].id, id);
    assert_eq!(finished[0].result.as_ref().unwrap_err().to_string(), said);
    assert_eq!(engine.stats().passes, 0);
}
