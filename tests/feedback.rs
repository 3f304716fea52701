//! Claim: the four policies say of one failure what the paper's section 2.3 has them say, and the prompts carry it
//! where the profile promises.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use veriharness::agent::{RowLoop, RowSpec, examine};
use veriharness::candidate::Fences;
use veriharness::engine::{Completion, Cost, Prompt, Sampling, StopReason};
use veriharness::feedback::{Caps, Policy, render};
use veriharness::gate::chain::Task;
use veriharness::gate::textworld::{judge, library};
use veriharness::gate::{Expected, Failure};
use veriharness::model::chat::Role;
use veriharness::prompt::{Attempt, Profile, Rejected};
use veriharness::trace::PlannedRow;

fn plan(commands: &[&str]) -> Vec<String> {
    commands.iter().map(|command| (*command).to_owned()).collect()
}

fn failure(game: &str, commands: &[&str]) -> Failure {
    judge(&library::open(game).unwrap(), &plan(commands), 4)
        .failure
        .unwrap()
}

fn payload(failure: &Failure, caps: &Caps) -> String {
    let lines = Policy::ALL.map(|policy| {
        let feedback = render(policy, std::slice::from_ref(failure), caps);
        format!("{}\n{}", policy.name(), feedback.payload[0])
    });
    lines.join("\n\n")
}

/// The paper's own example: after `go east` the chest is open already, so the second command fails.
#[test]
fn the_papers_example_under_all_policies() {
    let failure = failure("20261052", &["go east", "open chest", "take spork"]);
    let Expected::OneOf(all) = &failure.expected else {
        panic!("{failure:?}")
    };
    assert_eq!(all.len(), 13);
    assert_eq!(
        (all[0].as_str(), all[11].as_str()),
        ("close type 4 chest", "take spork from type 4 chest")
    );
    insta::assert_snapshot!("paper_example", payload(&failure, &Caps::default()));
}

#[test]
fn a_list_of_more_than_240_characters_is_cut_by_the_paper_profile_only() {
    let failure = failure("20261051", &["take worm"]);
    let Expected::OneOf(all) = &failure.expected else {
        panic!("{failure:?}")
    };
    assert!(
        serde_json::to_string(all).unwrap().len() > 240,
        "the state is to have a long list"
    );
    insta::assert_snapshot!("cut_at_240", payload(&failure, &Profile::Paper.caps()));
    let whole = payload(&failure, &Profile::Compact.caps());
    assert!(
        whole.contains(&all[10]) && all.len() == 11,
        "no cut without a cap"
    );
}

#[test]
fn every_kind_of_failure_has_its_payload() {
    let unparseable = Failure {
        gate: "schema".into(),
        code: "reply_unparseable".into(),
        location: "LeafOutput".into(),
        observed: "x".repeat(400),
        expected: Expected::Value("one JSON object".into()),
        message: "The reply could not be read.".into(),
    };
    let unknown = Failure {
        expected: Expected::Unknown,
        observed: "short".into(),
        ..unparseable.clone()
    };
    let kinds = [
        failure("20261052", &[]),
        failure("20261052", &["look", "look", "look", "look", "look"]),
        failure("20261052", &["look"]),
        unparseable,
        unknown,
    ];
    let text: Vec<_> = kinds
        .iter()
        .map(|failure| payload(failure, &Caps::default()))
        .collect();
    insta::assert_snapshot!("kinds", text.join("\n\n---\n\n"));
}

fn row(profile: Profile, policy: Policy) -> RowSpec {
    let game = library::open("20261052").unwrap();
    let task = Task::TextWorld {
        id: "20261052".into(),
        game: game.into(),
        max_steps: 4,
    };
    RowSpec {
        planned: PlannedRow::new("primary", "20261052", policy.name(), 4, 0),
        policy,
        view: task.view(),
        task,
        profile,
        caps: profile.caps(),
        fences: Fences::Strict,
        sampling: Sampling::default(),
    }
}

/// The first prompt and the one after a rejected reply, as one text.
fn two_prompts(profile: Profile, policy: Policy, reply: &str) -> (String, String) {
    let text = |messages: &[veriharness::model::chat::Message]| {
        let blocks = messages.iter().map(|m| match m.role {
            Role::System => format!("[system]\n{}", m.content),
            _ => format!("[user]\n{}", m.content),
        });
        blocks.collect::<Vec<_>>().join("\n\n")
    };
    let spec = row(profile, policy);
    let first = RowLoop::new(row(profile, policy).into(), Vec::new())
        .first()
        .unwrap();
    let first_text = text(first.messages());
    let completion = Completion {
        text: reply.into(),
        tokens: Vec::new(),
        stop: StopReason::EndOfTurn,
        cost: Cost::default(),
    };
    let record = examine(&spec, first.asked(Prompt::default()), completion, None).unwrap();
    let rejected = Rejected {
        plan: record.candidate.plan.as_ref(),
        answer: record.candidate.envelope.as_ref().map_or("", |e| &e.answer),
        reply: &record.reply,
        feedback: record.feedback.as_ref().unwrap(),
    };
    let attempt = Attempt {
        number: 2,
        budget: 4,
        policy,
        rejected: Some(rejected),
    };
    (first_text, text(&profile.messages(&spec.view, &attempt)))
}

const COMPACT: &str = r#"{"commands": ["go east", "open chest", "take spork"]}"#;
const LEAF: &str = r#"{"task_id": "20261052", "answer": "{\"commands\": [\"go east\", \"open chest\", \"take spork\"]}", "artifacts": ["action_plan.json"], "claims": [], "self_assessment": {}, "done": true}"#;

#[test]
fn the_compact_prompts() {
    let (first, retry) = two_prompts(Profile::Compact, Policy::TypedFields, COMPACT);
    insta::assert_snapshot!("compact_first", first);
    insta::assert_snapshot!("compact_retry", retry);
    let (_, unparseable) = two_prompts(Profile::Compact, Policy::RawDiag, "go east, then take the spork");
    insta::assert_snapshot!("compact_unparseable", unparseable);
}

#[test]
fn the_paper_prompts() {
    let (first, retry) = two_prompts(Profile::Paper, Policy::SameNL, LEAF);
    insta::assert_snapshot!("paper_first", first);
    insta::assert_snapshot!("paper_retry", retry);
}

#[test]
fn first_calls_carry_no_feedback_and_differ_by_the_policys_name_alone() {
    for (profile, reply) in [(Profile::Compact, COMPACT), (Profile::Paper, LEAF)] {
        let firsts = Policy::ALL.map(|policy| {
            let (first, retry) = two_prompts(profile, policy, reply);
            assert!(retry.contains(policy.name()) && first.contains(policy.name()));
            first.replace(policy.name(), "POLICY")
        });
        assert!(firsts.iter().all(|first| *first == firsts[0]));
        assert!(!firsts[0].contains("admissible in the current") && !firsts[0].contains("typed_failure"));
    }
}

#[test]
fn the_paper_profile_shows_feedback_twice_and_compact_once() {
    for (profile, reply, times) in [(Profile::Compact, COMPACT, 1), (Profile::Paper, LEAF, 2)] {
        let (_, retry) = two_prompts(profile, Policy::RawDiag, reply);
        let said =
            "Raw validation message from textworld: Command 1 is not admissible in the current game state.";
        assert_eq!(retry.matches(said).count(), times, "{retry}");
    }
}

#[test]
fn compact_prompts_share_everything_before_the_policys_name() {
    let (first, retry) = two_prompts(Profile::Compact, Policy::LocObs, COMPACT);
    let shared = first.split("Feedback policy:").next().unwrap();
    assert!(retry.starts_with(shared) && shared.len() > 800);
}

/// A winning plan still fails when the envelope around it is wrong.
#[test]
fn the_envelope_is_judged_too() {
    let win = r#"{\"commands\": [\"go east\", \"take spork from type 4 chest\"]}"#;
    let spec = row(Profile::Paper, Policy::RawDiag);
    let labels = |reply: String| {
        let first = RowLoop::new(row(Profile::Paper, Policy::RawDiag).into(), Vec::new())
            .first()
            .unwrap();
        let completion = Completion {
            text: reply,
            tokens: Vec::new(),
            stop: StopReason::EndOfTurn,
            cost: Cost::default(),
        };
        let record = examine(&spec, first.asked(Prompt::default()), completion, None).unwrap();
        record
            .judgement
            .failures()
            .iter()
            .map(Failure::label)
            .collect::<Vec<_>>()
    };
    let leaf = |id: &str, artifacts: &str| {
        labels(format!(
            r#"{{"task_id": "{id}", "answer": "{win}", "artifacts": {artifacts}}}"#
        ))
    };
    assert!(leaf("20261052", r#"["action_plan.json"]"#).is_empty());
    assert_eq!(
        leaf("20261053", r#"["action_plan.json"]"#),
        ["schema.task_id_mismatch"]
    );
    assert_eq!(leaf("20261052", "[]"), ["artifact.artifact_missing"]);
    assert_eq!(
        labels("no".into()),
        [
            "schema.reply_unparseable",
            "artifact.artifact_missing",
            "textworld.action_plan_invalid"
        ]
    );
}
