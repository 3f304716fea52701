//! Claim: a study that constrains its replies gets candidates, whatever the model would say, and the same ones whatever
//! shares a batch; engines that cannot hold a reply to a schema say so before any call.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use veriharness::backend::cpu::{CpuBackend, Options};
use veriharness::backend::{Backend, BackendError, BlockId, Step};
use veriharness::candidate::{Category, Fences, Format, parse};
use veriharness::engine::local::{Limits, LocalEngine};
use veriharness::engine::scripted::ScriptedEngine;
use veriharness::engine::{Engine, Prompt, Request, Sampling, Schema, StopReason};
use veriharness::model::fetch::Silent as Quiet;
use veriharness::model::{Model, obtain_exact};
use veriharness::rng;
use veriharness::study::file::Study;
use veriharness::study::plan::{Plan, Selection};
use veriharness::study::progress::Silent;
use veriharness::study::run::{Settings, run};
use veriharness::trace::export::export;
use veriharness::trace::{CallRecord, Header, RunReader, Trace};

static MODEL: LazyLock<Arc<Model>> = LazyLock::new(|| {
    let path = obtain_exact("smollm2-135m", &mut Quiet).unwrap().path;
    Arc::new(Model::open(&path).unwrap())
});

/// A model's vocabulary with logits that mean nothing: any allowed token is as likely as another, but that at a position
/// in eight those are likelier that end a string, a list or an object, and at another those with an escape.
struct Noise {
    /// By token, whether it is likelier at positions of the one and of the other kind.
    likelier: Vec<[bool; 2]>,
}

impl Noise {
    fn new() -> Self {
        let has = |id, marks: &[u8]| MODEL.tokenizer.bytes(id).iter().any(|byte| marks.contains(byte));
        let likelier = |id| [has(id, b"\"]}"), has(id, b"\\")];
        Self {
            likelier: (0..MODEL.tokenizer.vocab() as u32).map(likelier).collect(),
        }
    }
}

impl Backend for Noise {
    fn name(&self) -> &str {
        "noise"
    }
    fn vocab(&self) -> usize {
        self.likelier.len()
    }
    fn context(&self) -> usize {
        4096
    }
    fn block_bytes(&self) -> usize {
        1 << 20
    }
    fn invariant(&self) -> bool {
        true
    }
    fn reserve(&mut self, _blocks: usize) -> Result<(), BackendError> {
        Ok(())
    }
    fn copy(&mut self, _from: BlockId, _to: BlockId) {}
    fn forward(&mut self, batch: &[Step<'_>]) -> Result<Vec<Vec<f32>>, BackendError> {
        let row = |step: &Step<'_>, position: usize| {
            let state = rng::value(9, u64::from(step.tokens[position - step.start]), position as u64);
            let noise = move |id| rng::unit(state, 0, id as u64) as f32;
            let bonus = move |likelier: &[bool; 2]| match likelier.get((state % 8) as usize) {
                Some(true) => 1.0,
                _ => 0.0,
            };
            let logit = move |(id, likelier): (usize, &[bool; 2])| noise(id) + bonus(likelier);
            self.likelier.iter().enumerate().map(logit).collect::<Vec<f32>>()
        };
        let rows = |step: &Step<'_>| {
            let end = step.start + step.tokens.len();
            (end - step.logits..end)
                .flat_map(|position| row(step, position))
                .collect()
        };
        Ok(batch.iter().map(rows).collect())
    }
}

#[test]
fn whatever_can_be_drawn_under_a_schema_is_read_as_a_candidate() {
    let mut engine = LocalEngine::new(
        "noise".into(),
        MODEL.clone(),
        Box::new(Noise::new()),
        Limits::default(),
    )
    .unwrap();
    for format in [Format::Commands, Format::LeafOutput] {
        let (mut whole, mut escaped) = (0, 0);
        for row in 0..60u32 {
            let sampling = Sampling {
                max_tokens: 300,
                schema: Some(Schema(format.json_schema(4))),
                ..Sampling::default()
            };
            engine.submit(Request {
                row: format!("row {row}"),
                call: 1,
                seed: 0,
                prompt: Prompt {
                    text: String::new(),
                    tokens: vec![100 + row],
                },
                sampling,
            });
            while engine.pending() > 0 {
                for completion in engine.step().into_iter().map(|finished| finished.result.unwrap()) {
                    let candidate = parse(&completion.text, completion.stop, format, Fences::Strict);
                    if completion.stop == StopReason::EndOfTurn {
                        assert_eq!(candidate.problem, None, "{}", completion.text);
                        assert!(completion.cost.forced_tokens > 0);
                        whole += 1;
                        escaped += usize::from(completion.text.contains('\\'));
                    } else {
                        assert_eq!(candidate.strict, Category::Truncated, "{}", completion.text);
                    }
                }
            }
        }
        assert!(
            whole >= 30 && escaped > 0,
            "{format:?}: {whole} whole, {escaped} with an escape"
        );
    }
}

fn study(text: &str) -> Plan {
    let study = format!(
        "name = \"held\"\nmax_steps = 4\nconstrain = true\nmodel = \"smollm2-135m\"\n{text}\n[[lane]]\nname = \"primary\"\ngames = [\"20261061\"]\nbudgets = [2]\n"
    );
    Plan::new(Study::parse("held.toml", &study, &[]).unwrap()).unwrap()
}

fn header(plan: &Plan, engine: &dyn Engine) -> Header {
    Header {
        study: plan.study.name.clone(),
        study_sha256: plan.study.sha256(),
        study_toml: plan.study.to_toml(),
        identity: engine.identity().clone(),
        model_source: String::new(),
        schema_sha256: plan.study.schema().map(|schema| schema.sha256()),
        tasks: plan.tasks.clone(),
    }
}

/// Runs the study with so many rows at once; what it exports, and its calls.
fn played(plan: &Plan, dir: &Path, rows: usize) -> (String, Vec<CallRecord>) {
    let backend = CpuBackend::load(&MODEL, Options::default()).unwrap();
    let limits = Limits {
        batch: rows,
        ..Limits::default()
    };
    let mut engine =
        LocalEngine::new("smollm2-135m".into(), MODEL.clone(), Box::new(backend), limits).unwrap();
    let planned: Vec<_> = plan.rows.iter().map(|row| row.planned.clone()).collect();
    let mut trace = Trace::open(dir, &header(plan, &engine), &planned, "").unwrap();
    let picked = plan.select(&Selection::default()).unwrap();
    let settings = Settings { concurrency: rows };
    run(
        &picked,
        &mut engine,
        &mut trace,
        &mut Silent,
        settings,
        &AtomicBool::new(false),
    )
    .unwrap();
    drop(trace);
    let reader = RunReader::open(dir).unwrap();
    let mut exported = Vec::new();
    export(&reader, &mut exported).unwrap();
    let calls = reader
        .rows()
        .unwrap()
        .iter()
        .flat_map(|row| reader.calls(row).unwrap())
        .collect();
    (String::from_utf8(exported).unwrap(), calls)
}

#[test]
fn a_constrained_study_gets_candidates_from_a_model_that_writes_none_on_its_own() {
    for text in [
        "profile = \"compact\"",
        "profile = \"paper\"\n[sampling]\ntemperature = 0.9",
    ] {
        let plan = study(text);
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (alone, calls) = played(&plan, dirs[0].path(), 1);
        assert_eq!(calls.len(), 8);
        for call in &calls {
            assert_eq!(call.candidate.problem, None, "{}", call.reply);
            assert_eq!(call.stop, StopReason::EndOfTurn);
            assert!(call.reused_from.is_some() || call.cost.forced_tokens > 0);
        }
        assert_eq!(alone, played(&plan, dirs[1].path(), 8).0);
    }
}

#[test]
fn scripted_replies_refuse_a_schema_and_a_run_of_another_one_is_not_resumed() {
    let plan = study("profile = \"compact\"");
    let mut engine = ScriptedEngine::parse("script", "").unwrap();
    let said = engine.prepare(&plan.rows[0].sampling).unwrap_err().to_string();
    assert!(
        said.starts_with("scripted replies cannot be constrained"),
        "{said}"
    );
    engine.prepare(&Sampling::default()).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let mut header = header(&plan, &engine);
    drop(Trace::open(dir.path(), &header, &[], "").unwrap());
    let stored = header.schema_sha256.replace("another".into()).unwrap();
    let said = Trace::open(dir.path(), &header, &[], "").unwrap_err().to_string();
    assert!(
        said.contains(&format!(
            "another schema of replies (sha256): it has {stored}, this is another"
        )),
        "{said}"
    );
}
