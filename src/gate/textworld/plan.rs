//! The gate: a plan of commands, played from a fresh start, to a verdict.
//!
//! Not an environment: the model never sees the intermediate states, and what is known only afterwards
//! ([`PostHoc`]) stands beside the failure, never in it.

use serde::{Deserialize, Serialize};

use crate::gate::{Expected, Failure, TaskView};

use super::game::Game;
use super::play::Play;
use super::search::{Search, shortest_win};

/// The gate's name in every failure.
pub const GATE: &str = "textworld";
/// Where the plan stands in the reply.
const COMMANDS: &str = "LeafOutput.answer.commands";
/// States that the search for a next winning command may look at: some milliseconds at most.
const SEARCH_STATES: usize = 400;

/// A judged plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanVerdict {
    /// Why the plan is rejected; `None` when it wins.
    pub failure: Option<Failure>,
    /// Commands that ran.
    pub executed: usize,
    /// Commands after the win, which were ignored.
    pub unused: usize,
    /// The plan wins the game.
    pub won: bool,
    /// Stored beside the verdict, never fed back.
    pub post_hoc: PostHoc,
}

/// What is known only afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostHoc {
    /// All admissible commands where the plan failed, or where it ended.
    pub admissible: Vec<String>,
    /// For a plan that is too long: how its first commands, as many as allowed, would have been judged: `accepted`
    /// or a failure's code.
    pub first_steps: Option<String>,
    /// The first command of a shortest win from where the plan failed, where the search is cheap.
    pub next_winning: Option<String>,
    /// How many commands that win takes.
    pub commands_to_win: Option<usize>,
    /// Points at the end of the plan.
    pub score: i64,
    /// Most points there are; `None` when there is no limit.
    pub max_score: Option<i64>,
}

/// Judges `commands`, at most `max_steps` of them, from a fresh start of `game`. Outer white space of a command is
/// stripped; then it must equal an admissible command. The first win ends the plan.
pub fn judge(game: &Game, commands: &[String], max_steps: usize) -> PlanVerdict {
    let mut verdict = run(game, commands, max_steps);
    if commands.len() > max_steps {
        let first = run(game, &commands[..max_steps], max_steps);
        let code = first.failure.map_or_else(|| "accepted".to_owned(), |f| f.code);
        verdict.post_hoc.first_steps = Some(code);
    }
    verdict
}

/// The failure of a reply in which there is no plan at all; `observed` is what stood in its place.
pub fn no_plan(observed: &str, max_steps: usize) -> Failure {
    let expected = Expected::Value(format!("a list of {}", count(max_steps)));
    failure(
        "action_plan_invalid",
        COMMANDS.into(),
        observed.into(),
        expected,
        "The answer holds no list of commands.".into(),
    )
}

fn failure(code: &str, location: String, observed: String, expected: Expected, message: String) -> Failure {
    Failure {
        gate: GATE.into(),
        code: code.into(),
        location,
        observed,
        expected,
        message,
    }
}

fn count(max_steps: usize) -> String {
    if max_steps == 1 {
        "1 command".into()
    } else {
        format!("1 to {max_steps} commands")
    }
}

fn commands_text(n: usize) -> String {
    if n == 1 {
        "1 command".into()
    } else {
        format!("{n} commands")
    }
}

fn run(game: &Game, commands: &[String], max_steps: usize) -> PlanVerdict {
    let mut play = game.start();
    let whole = |code: &str, message: String| {
        let observed = commands_text(commands.len());
        failure(
            code,
            COMMANDS.into(),
            observed,
            Expected::Value(count(max_steps)),
            message,
        )
    };
    if commands.is_empty() {
        let failure = whole("command_missing", "The plan has no command.".into());
        return verdict(&play, Some(failure), 0, 0);
    }
    if commands.len() > max_steps {
        let failure = whole(
            "turn_budget_exceeded",
            format!("The plan has more than {}.", commands_text(max_steps)),
        );
        return verdict(&play, Some(failure), 0, 0);
    }
    for (i, command) in commands.iter().enumerate() {
        let location = format!("{COMMANDS}[{i}]");
        if let Some(fault) = play.fault() {
            let failure = failure(
                "environment_error",
                location,
                command.clone(),
                Expected::Unknown,
                fault.to_string(),
            );
            return verdict(&play, Some(failure), i, 0);
        }
        let Some(outcome) = play.step(command.trim()) else {
            let expected = Expected::OneOf(play.admissible().map(str::to_owned).collect());
            let message = format!("Command {i} is not admissible in the current game state.");
            let failure = failure("action_invalid", location, command.clone(), expected, message);
            return verdict(&play, Some(failure), i, 0);
        };
        if outcome.won {
            return verdict(&play, None, i + 1, commands.len() - i - 1);
        }
        if outcome.lost {
            let expected = Expected::Value("a command that does not lose the game".into());
            let failure = failure(
                "game_lost",
                location,
                command.clone(),
                expected,
                format!("Command {i} loses the game."),
            );
            return verdict(&play, Some(failure), i + 1, 0);
        }
    }
    if let Some(fault) = play.fault() {
        let observed = commands_text(commands.len());
        let failure = failure(
            "environment_error",
            COMMANDS.into(),
            observed,
            Expected::Unknown,
            fault.to_string(),
        );
        return verdict(&play, Some(failure), commands.len(), 0);
    }
    let observed = match commands.len() {
        1 => "1 command ran and the game is not won".to_owned(),
        n => format!("{n} commands ran and the game is not won"),
    };
    let expected = Expected::Value("a plan whose last command wins the game".into());
    let message = "Every command ran, but the quest is not complete.".into();
    let failure = failure("quest_incomplete", COMMANDS.into(), observed, expected, message);
    verdict(&play, Some(failure), commands.len(), 0)
}

fn verdict(play: &Play<'_>, failure: Option<Failure>, executed: usize, unused: usize) -> PlanVerdict {
    let way = match failure {
        Some(_) if !play.done() => shortest_win(play, SEARCH_STATES),
        _ => Search::TooMany,
    };
    let win = if let Search::Found(commands) = way {
        Some(commands)
    } else {
        None
    };
    let post_hoc = PostHoc {
        admissible: play.admissible().map(str::to_owned).collect(),
        first_steps: None,
        next_winning: win.as_ref().and_then(|w| w.first().cloned()),
        commands_to_win: win.map(|w| w.len()),
        score: play.score(),
        max_score: play.game().max_score(),
    };
    PlanVerdict {
        failure,
        executed,
        unused,
        won: play.won(),
        post_hoc,
    }
}

/// What a prompt may know of `game`, called `id`.
pub fn view(game: &Game, id: &str, max_steps: usize) -> TaskView {
    let play = game.start();
    TaskView {
        id: id.into(),
        family: GATE.into(),
        objective: game.objective().into(),
        description: play.description(),
        inventory: play.inventory(),
        max_steps,
    }
}
