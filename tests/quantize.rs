//! `model quantize` writes a folder that opens as what it was made from, loses little, and is the same again.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use veriharness::agent::RowLoop;
use veriharness::backend::cpu::{CpuBackend, Isa, Options};
use veriharness::backend::{BLOCK, Backend, BlockId, Step};
use veriharness::candidate::{self, Fences, Format};
use veriharness::engine::local::{Limits, LocalEngine};
use veriharness::engine::{Completion, Engine, Prompt, Request, Sampling};
use veriharness::model::chat::Message;
use veriharness::model::weights::Storage;
use veriharness::model::{Model, fetch::Silent, obtain_exact};
use veriharness::quantize::compare::compare;
use veriharness::quantize::{Calibration, write};
use veriharness::study::file::Study;
use veriharness::study::plan::Plan;

fn quantize(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_veriharness"));
    let foreign = |name: &str| name.starts_with("VERIHARNESS_") && name != "VERIHARNESS_HOME";
    for (name, _) in std::env::vars().filter(|(name, _)| foreign(name)) {
        command.env_remove(name);
    }
    command.args(["model", "quantize"]).args(args).output().unwrap()
}

fn tiny(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("models/tiny")
        .join(name)
}

fn done(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_folder_opens_as_what_it_was_made_from_and_is_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    for (name, group) in [("qwen2-tied-fp16", "64"), ("llama3-fp16", "128")] {
        let source = tiny(name);
        let mut folders = Vec::new();
        for turn in 0..2 {
            let out = dir.path().join(format!("{name}-{turn}"));
            let args = [
                source.to_str().unwrap(),
                "--out",
                out.to_str().unwrap(),
                "--group",
                group,
                "--json",
            ];
            let said = done(&quantize(&args));
            let losses = said["methods"].as_array().unwrap();
            assert_eq!(losses.len(), 2, "rounding alone is measured beside");
            for one in losses {
                let kl = one["losses"]["kl"].as_f64().unwrap();
                assert!(kl > 0.0 && kl < 0.5, "{one}");
            }
            assert!(said["error_share"].as_f64().unwrap() <= 1.0, "{said}");
            folders.push(out);
        }
        let (was, is) = (Model::open(&source).unwrap(), Model::open(&folders[0]).unwrap());
        assert_eq!(is.config, was.config);
        assert_eq!(is.template.sha256(), was.template.sha256());
        assert_eq!(is.eos(), was.eos());
        let storage = is.weights.get("blk.0.ffn_down.weight").unwrap().storage;
        assert_eq!(
            storage,
            Storage::Awq {
                group: group.parse().unwrap()
            }
        );
        assert_eq!(is.sha256, Model::open(&folders[1]).unwrap().sha256);
    }
    // Nothing but the four folders is left beside them.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
}

/// A GGUF file's tokenizer, template and configuration come along.
#[test]
fn a_gguf_file_becomes_a_folder_that_answers() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("small");
    let args = [
        "smollm2-135m",
        "--method",
        "rtn",
        "--group",
        "64",
        "--out",
        out.to_str().unwrap(),
        "--json",
    ];
    let said = done(&quantize(&args));
    assert!(
        said["methods"][0]["losses"]["agree"].as_u64().unwrap() > 500,
        "{said}"
    );
    let gguf = Model::open(&obtain_exact("smollm2-135m", &mut Silent).unwrap().path).unwrap();
    let model = Model::open(&out).unwrap();
    assert_eq!(model.config, gguf.config);
    let messages = [
        Message::system("Be brief."),
        Message::user("Name <|im_end|> the days, très 1234 vite."),
    ];
    let (found, expected) = (
        model.encode_chat(&messages).unwrap(),
        gguf.encode_chat(&messages).unwrap(),
    );
    assert_eq!((found.text, &found.tokens), (expected.text, &expected.tokens));
    let backend = CpuBackend::load(&model, Options::default()).unwrap();
    let mut engine = LocalEngine::new("small".into(), model, Box::new(backend), Limits::default()).unwrap();
    let prompt = engine.encode(&messages).unwrap();
    engine.submit(Request {
        row: "row".into(),
        call: 1,
        seed: 0,
        prompt,
        sampling: Sampling {
            max_tokens: 12,
            ..Sampling::default()
        },
    });
    let mut finished = Vec::new();
    while engine.pending() > 0 {
        finished.extend(engine.step());
    }
    let reply = finished.remove(0).result.unwrap();
    assert!(reply.text.trim().len() > 3, "{reply:?}");
}

#[test]
fn what_cannot_be_written_is_refused_before_any_work() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("mine"), "").unwrap();
    let source = tiny("qwen2-tied-fp16");
    let source = source.to_str().unwrap();
    let new = dir.path().join("new");
    let (full, new) = (full.to_str().unwrap(), new.to_str().unwrap());
    for (args, expected) in [
        (
            [source, "--out", full, "--group", "32"],
            "expected a folder that is empty or not there",
        ),
        (
            [source, "--out", new, "--group", "48"],
            "--group: expected 32, 64 or 128, found 48",
        ),
        (
            ["smollm2-135m", "--out", new, "--group", "128"],
            "a multiple of 8 outputs, and of 128 inputs, found 576 outputs, 576 inputs",
        ),
    ] {
        let output = quantize(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing is left behind"
    );
}

/// The first prompts of the quick study's games.
fn first_prompts(model: &Model) -> Vec<Vec<u32>> {
    let study = Study::open("quick", &["lane.0.policies=[\"RawDiag\"]".to_owned()]).unwrap();
    let rows = Plan::new(study).unwrap().rows.into_iter();
    rows.map(|row| {
        let first = RowLoop::new(row, Vec::new()).first().unwrap();
        model.encode_chat(first.messages()).unwrap().tokens
    })
    .collect()
}

/// The bits of the logits behind each prompt, all in one pass.
fn logits(backend: &mut CpuBackend, prompts: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let room = prompts
        .iter()
        .map(|prompt| prompt.len().div_ceil(BLOCK))
        .max()
        .unwrap();
    backend.reserve(room * prompts.len()).unwrap();
    let blocks: Vec<BlockId> = (0..(room * prompts.len()) as u32).map(BlockId).collect();
    let step = |(tokens, blocks)| Step {
        tokens,
        start: 0,
        blocks,
        logits: 1,
    };
    let steps: Vec<Step<'_>> = prompts
        .iter()
        .map(Vec::as_slice)
        .zip(blocks.chunks(room))
        .map(step)
        .collect();
    let logits = backend.forward(&steps).unwrap();
    logits
        .iter()
        .map(|row| row.iter().map(|x| x.to_bits()).collect())
        .collect()
}

fn replies(engine: &mut LocalEngine, prompts: &[Vec<u32>]) -> Vec<Completion> {
    let mut ids = Vec::new();
    for tokens in prompts {
        ids.push(engine.submit(Request {
            row: "row".into(),
            call: 1,
            seed: 0,
            prompt: Prompt {
                text: String::new(),
                tokens: tokens.clone(),
            },
            sampling: Sampling::default(),
        }));
    }
    let mut finished = Vec::new();
    while engine.pending() > 0 {
        finished.extend(engine.step());
    }
    let reply = |id| {
        finished
            .iter()
            .find(|one| one.id == id)
            .unwrap()
            .result
            .as_ref()
            .unwrap()
            .clone()
    };
    ids.into_iter().map(reply).collect()
}

/// The real AWQ model of these tests: what it loses, that its bits are a row's own on all instruction sets, and that
/// its replies are candidates.
#[test]
fn the_half_billion_model_loses_less_by_search_and_keeps_the_promise() {
    let source = Model::open(&obtain_exact("qwen2.5-coder-0.5b", &mut Silent).unwrap().path).unwrap();
    let prompts = first_prompts(&source);
    let (measured, calibrated) = prompts.split_at(3);
    let mut whole = CpuBackend::load(&source, Options::default()).unwrap();
    let calibration = Calibration::on(&source, 128, &mut whole, calibrated).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut losses = Vec::new();
    for (name, calibration) in [("rtn", None), ("awq", Some(&calibration))] {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        write(&source, &folder, 128, calibration, &mut |_| ()).unwrap();
        let model = Model::open(&folder).unwrap();
        let mut backend = CpuBackend::load(&model, Options::default()).unwrap();
        losses.push(compare(&mut whole, &mut backend, measured).unwrap());
    }
    assert!(losses[1].kl < 0.95 * losses[0].kl, "{losses:?}");
    drop(whole);

    let model = Model::open(&dir.path().join("awq")).unwrap();
    let mut best = CpuBackend::load(&model, Options::default()).unwrap();
    let together = logits(&mut best, measured);
    for (prompt, together) in measured.iter().zip(&together) {
        assert_eq!(logits(&mut best, std::slice::from_ref(prompt))[0], *together);
    }
    let short = [measured[0][..40].to_vec()];
    let right = logits(&mut best, &short);
    for isa in Isa::available() {
        let options = Options {
            isa,
            ..Options::default()
        };
        let mut backend = CpuBackend::load(&model, options).unwrap();
        assert_eq!(logits(&mut backend, &short), right, "{}", isa.name());
    }

    let mut engine = LocalEngine::new("awq".into(), model, Box::new(best), Limits::default()).unwrap();
    let together = replies(&mut engine, measured);
    engine
        .restart(Limits {
            draft: 0,
            ..Limits::default()
        })
        .unwrap();
    for (prompt, together) in measured.iter().zip(&together) {
        let alone = replies(&mut engine, std::slice::from_ref(prompt)).remove(0);
        assert_eq!((&alone.text, &alone.tokens), (&together.text, &together.tokens));
        let candidate = candidate::parse(&alone.text, alone.stop, Format::Commands, Fences::Strict);
        assert_eq!(candidate.problem, None, "{}", alone.text);
    }
}
