//! Claim: what is known only afterwards never reaches a prompt.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use veriharness::agent::{Next, RowLoop, RowSpec, examine};
use veriharness::candidate::Fences;
use veriharness::engine::{Completion, Cost, Identity, Prompt, Sampling, StopReason};
use veriharness::feedback::Policy;
use veriharness::gate::chain::Task;
use veriharness::gate::textworld::library;
use veriharness::prompt::Profile;
use veriharness::trace::{Header, PlannedRow, Trace};

const SECRET: &str = "xyzzy-the-hidden-answer";

fn row(game: &str, policy: Policy, profile: Profile) -> RowSpec {
    let task = Task::TextWorld {
        id: game.into(),
        game: library::open(game).unwrap().into(),
        max_steps: 4,
    };
    RowSpec {
        planned: PlannedRow::new("primary", game, policy.name(), 4, 0),
        policy,
        view: task.view(),
        task,
        profile,
        caps: profile.caps(),
        fences: Fences::Strict,
        sampling: Sampling::default(),
    }
}

fn completion() -> Completion {
    let text = r#"{"commands": ["fly"]}"#.to_owned();
    Completion {
        text,
        tokens: Vec::new(),
        stop: StopReason::EndOfTurn,
        cost: Cost::default(),
    }
}

#[test]
fn a_secret_planted_in_the_post_hoc_record_is_in_no_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let empty = String::new;
    let identity = Identity {
        model: empty(),
        model_sha256: empty(),
        template_sha256: empty(),
        backend: empty(),
    };
    let header = Header {
        study: empty(),
        study_sha256: empty(),
        study_toml: empty(),
        identity,
        model_source: empty(),
        schema_sha256: None,
        tasks: Default::default(),
    };
    for (index, profile) in [Profile::Paper, Profile::Compact].into_iter().enumerate() {
        let planned = Policy::ALL.map(|policy| row("20261052", policy, profile).planned);
        let mut trace = Trace::open(&dir.path().join(index.to_string()), &header, &planned, "").unwrap();
        for policy in Policy::ALL {
            let spec = row("20261052", policy, profile);
            let mut state = RowLoop::new(row("20261052", policy, profile).into(), Vec::new());
            let asked = state.first().unwrap().asked(Prompt::default());
            let mut record = examine(&spec, asked, completion(), None).unwrap();
            record.judgement.post_hoc = serde_json::json!({ "next_winning": SECRET });
            let committed = trace.commit(&spec.planned, &record, None).unwrap();
            state.push(record);
            let Some(Next::Prompt(next)) = state.next(committed) else {
                panic!("the row goes on")
            };
            assert!(
                next.messages()
                    .iter()
                    .all(|message| !message.content.contains(SECRET)),
                "{policy:?}"
            );
        }
    }
}

/// The policies without alternatives name no command that neither the task nor the model named.
#[test]
fn policies_without_alternatives_show_none() {
    for game in library::names() {
        for policy in [Policy::RawDiag, Policy::LocObs] {
            let spec = row(game, policy, Profile::Compact);
            let first = RowLoop::new(row(game, policy, Profile::Compact).into(), Vec::new())
                .first()
                .unwrap();
            let known: String = first
                .messages()
                .iter()
                .map(|message| message.content.as_str())
                .collect();
            let record = examine(&spec, first.asked(Prompt::default()), completion(), None).unwrap();
            let shown = record.feedback.unwrap().payload.join(" ");
            let admissible = record.judgement.post_hoc["admissible"].as_array().unwrap();
            assert!(admissible.len() > 2);
            for command in admissible.iter().map(|command| command.as_str().unwrap()) {
                assert!(
                    !shown.contains(command) || known.contains(command),
                    "{game} {policy:?}: {command}"
                );
            }
        }
    }
}
