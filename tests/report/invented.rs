//! An invented run: what its calls say is made up so that every figure can be worked out by hand.
//!
//! Not a study: no model and no gate has seen it.

use std::path::Path;
use veriharness::candidate::{self, Fences, Format};
use veriharness::engine::{Cost, Identity, Sampling, StopReason};
use veriharness::feedback::Feedback;
use veriharness::gate::chain::Judgement;
use veriharness::gate::{Expected, Failure, GateResult, Verdict};
use veriharness::model::chat::Message;
use veriharness::trace::{CallRecord, Header, Outcome, PlannedRow, RunReader, Trace};

pub const POLICIES: [&str; 4] = ["RawDiag", "LocObs", "SameNL", "TypedFields"];

/// What a terminal would act on: a colour, and writing from right to left.
const HOSTILE: &str = "\u{1b}[31m\u{202e}";

/// How a row goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Accepted at this call.
    Win(u32),
    /// All calls of the budget are rejected, the last one for this.
    Lose(Why),
    /// Rejected so often; then the next prompt does not fit.
    Full(u32),
    /// Rejected once; then the engine fails.
    Error,
    /// Rejected once so far.
    Open,
}

/// Why a candidate is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Action,
    Quest,
    Fence,
}

pub fn header(study: &str) -> Header {
    Header {
        study: study.into(),
        study_sha256: "5".repeat(64),
        study_toml: String::new(),
        identity: Identity {
            model: "invented-1b".into(),
            model_sha256: "a".repeat(64),
            template_sha256: String::new(),
            backend: "none".into(),
        },
        model_source: String::new(),
        schema_sha256: None,
        tasks: [("20261051".to_owned(), "0".repeat(64))].into(),
    }
}

/// Six games of the primary lane, row by row.
pub fn six_games() -> Vec<(PlannedRow, Fate)> {
    use Fate::{Error, Full, Lose, Open, Win};
    use Why::{Action, Fence, Quest};
    let fates = [
        [Lose(Action), Lose(Action), Win(2), Win(2)],
        [Lose(Action), Win(2), Win(3), Win(2)],
        [Win(1), Win(1), Win(1), Win(1)],
        [Lose(Action), Lose(Action), Lose(Quest), Win(4)],
        [Lose(Action), Error, Win(2), Win(2)],
        [Full(2), Lose(Fence), Lose(Action), Open],
    ];
    let mut rows = Vec::new();
    for (game, fates) in fates.into_iter().enumerate() {
        for (policy, fate) in POLICIES.into_iter().zip(fates) {
            let task = (20261051 + game).to_string();
            rows.push((PlannedRow::new("primary", &task, policy, 4, 0), fate));
        }
    }
    rows
}

/// Writes a run into `dir` and opens it.
pub fn run(dir: &Path, study: &str, rows: &[(PlannedRow, Fate)]) -> RunReader {
    let planned: Vec<PlannedRow> = rows.iter().map(|(row, _)| row.clone()).collect();
    let mut trace = Trace::open(dir, &header(study), &planned, "").unwrap();
    for (row, fate) in rows {
        let calls = match *fate {
            Fate::Win(call) => call,
            Fate::Lose(_) => row.budget,
            Fate::Full(calls) => calls,
            Fate::Error | Fate::Open => 1,
        };
        for call in 1..=calls {
            let why = match *fate {
                Fate::Win(at) if at == call => None,
                Fate::Lose(why) => Some(why),
                _ => Some(Why::Action),
            };
            let outcome = match *fate {
                Fate::Win(at) if at == call => Some(Outcome::Accepted),
                Fate::Lose(_) if call == row.budget => Some(Outcome::BudgetExhausted),
                _ => None,
            };
            let committed = trace.commit(row, &record(row, call, why), outcome).unwrap();
            drop(committed);
        }
        match fate {
            Fate::Full(_) => trace
                .end_row(row, Outcome::BudgetExhausted, "the prompt does not fit")
                .unwrap(),
            Fate::Error => trace
                .end_row(row, Outcome::EngineError, "non-finite logits")
                .unwrap(),
            _ => {}
        }
    }
    drop(trace);
    RunReader::open(dir).unwrap()
}

/// Call `call` of a row. A first prompt has 100 words, the next ones 150, 160 and 170; a prompt has 200 tokens, of
/// which a retry finds 64 in the cache; a reply has 12. Call 3 of game 20261054 under RawDiag reuses call 2.
fn record(row: &PlannedRow, call: u32, why: Option<Why>) -> CallRecord {
    let hostile = if row.task == "20261052" { HOSTILE } else { "" };
    let reply = match why {
        Some(Why::Fence) => "```json\n{\"commands\": [\"look\"]}\n```".to_owned(),
        None => r#"{"commands": ["go east", "take spork from type 4 chest"]}"#.to_owned(),
        Some(_) => format!(
            r#"{{"commands": ["go east", "open chest{} {call}"]}}"#,
            hostile.replace('\u{1b}', "\\u001b")
        ),
    };
    let format = Format::Commands;
    let candidate = candidate::parse(&reply, StopReason::EndOfTurn, format, Fences::Strict);
    let failure = why.map(|why| failure(why, &reply, hostile));
    let rejected = failure.is_some();
    let feedback = failure.as_ref().map(|failure| Feedback {
        opening: vec!["The plan was rejected.".into()],
        payload: vec![failure.message.clone()],
    });
    let mut user = format!(
        "Write a plan that wins.\nObjective: take the spork.\nFeedback policy: {}\n",
        row.policy
    );
    if call > 1 {
        user += &format!("Rejected: plan {}.\n", call - 1);
    }
    user += "Reply with JSON.";
    let reused_from = (row.task == "20261054" && row.policy == "RawDiag" && call == 3).then_some(2);
    let cost = match reused_from {
        Some(_) => Cost::default(),
        None => Cost {
            cached_tokens: if call > 1 { 64 } else { 0 },
            queued_us: 1_000,
            prefill_us: 20_000,
            decode_us: 300_000,
            ..Cost::default()
        },
    };
    CallRecord {
        call,
        prompt_text: user.clone(),
        messages: vec![Message::system("Answer with JSON."), Message::user(user)],
        prompt_tokens: vec![7; 200],
        reply,
        reply_tokens: vec![9; 12],
        stop: StopReason::EndOfTurn,
        reused_from,
        judgement: Judgement {
            verdict: if rejected {
                Verdict::Rejected
            } else {
                Verdict::Accepted
            },
            gates: gates(failure),
            post_hoc: serde_json::json!({ "next_winning": "take spork from type 4 chest" }),
        },
        candidate,
        feedback,
        repeats_plan: reused_from.is_some(),
        sampling: Sampling::default(),
        prompt_words: [100, 150, 160, 170][call as usize - 1],
        reply_words: 5,
        cost,
        gate_us: 50,
    }
}

fn failure(why: Why, reply: &str, hostile: &str) -> Failure {
    let (gate, code, observed) = match why {
        Why::Action => ("textworld", "action_invalid", format!("open chest{hostile}")),
        Why::Quest => ("textworld", "quest_incomplete", "the plan ended".to_owned()),
        Why::Fence => ("schema", "reply_unparseable", reply.to_owned()),
    };
    let all = (1..=14)
        .map(|n| format!("take fork from type {n} chest"))
        .collect();
    Failure {
        gate: gate.into(),
        code: code.into(),
        location: "LeafOutput.answer.commands[1]".into(),
        observed,
        expected: match why {
            Why::Action => Expected::OneOf(all),
            _ => Expected::Unknown,
        },
        message: format!("Invented diagnostic for {code}{hostile}."),
    }
}

fn gates(failure: Option<Failure>) -> Vec<GateResult> {
    let result = |gate: &str, failure| GateResult {
        gate: gate.into(),
        failure,
    };
    match failure {
        Some(failure) if failure.gate == "schema" => vec![result("schema", Some(failure))],
        failure => vec![result("schema", None), result("textworld", failure)],
    }
}
