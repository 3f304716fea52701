//! The answer to a command, byte for byte: what Inform 7's library and TextWorld 1.7.0's additions print.
//!
//! Not the logic: which command is admissible and what it does comes from the file's rules. This table says only
//! how the story file words the rules of the house; another rule gets a plain sentence, and counts as not modelled.

use super::clarify::clarification;
use super::compile::command_slots;
use super::game::{Entity, Game};
use super::logic::{Action, CompiledRule};
use super::play::Before;
use super::quest::Progress;
use super::state::Id;
use super::template::{Node, paragraph};
use super::text::{View, in_words};

/// TextWorld's own opening picture: data of TextWorld, under its licence.
const BANNER: &str = include_str!("../../../games/textworld/banner.txt");
const AFTERMATH: &str = "Would you like to RESTART, RESTORE a saved game, QUIT or UNDO the last command?";

/// The first text of a game.
pub(super) fn opening(view: &View<'_>) -> String {
    let objective = objective(&view.game.objective);
    let tail = tail(&view.title_of(view.room()), 0, 1, 128);
    format!("\n\n\n\n{BANNER}\n{objective}\n\n{}\n{tail}", view.room_text())
}

/// The story file holds each line of the objective in pieces, so an apostrophe at the edge of one is not inside a
/// word.
fn objective(text: &str) -> String {
    const PIECE: usize = 200;
    let line = |line: &str| -> String {
        let chars: Vec<char> = line.chars().collect();
        chars
            .chunks(PIECE)
            .map(|piece| paragraph(&piece.iter().collect::<String>()))
            .collect()
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// The status line that the interpreter leaves at the end of every text.
fn tail(title: &str, score: i64, turn: u64, blanks: usize) -> String {
    format!("\n>{:blanks$}{title}{score}/{turn}", "")
}

/// The text printed for `action`, which led from `before` to `view` and `progress`.
pub(super) fn feedback(
    view: &View<'_>,
    action: &Action,
    before: &Before,
    progress: &Progress,
    moves: u64,
) -> String {
    let rule = &view.game.rules[usize::from(action.rule)];
    let mut text = body(view, rule, action);
    let earlier = before.state.as_ref().map(|(state, places)| View {
        game: view.game,
        state,
        places,
    });
    if let Some(line) = earlier.and_then(|earlier| clarification(&earlier, action)) {
        text.insert_str(0, &format!("\n{line}"));
    }
    let gained = points(progress.score - before.score);
    if !(progress.won || progress.lost) {
        if let Some(gained) = gained {
            text.push_str(&format!("\n{gained}\n"));
        }
        return text + &tail(&view.title_of(view.room()), progress.score, moves + 1, 128);
    }
    text.truncate(text.trim_end_matches('\n').len());
    let taken = rule.name.starts_with("take");
    text.push_str(if taken { "\n\n\n\n" } else { "\n\n\n" });
    if let Some(gained) = gained {
        text.push_str(&format!("{gained}\n\n\n"));
    }
    let (blanks, end, turns) = if progress.lost {
        (54, "You lost!", moves)
    } else {
        (55, "The End", moves + 1)
    };
    let most = view
        .game
        .max_score()
        .map_or_else(|| "infinity".into(), |m| m.to_string());
    text.push_str(&format!(
        "{:blanks$}*** {end} ***\n\nYou scored {} out of a possible {most}, in {turns} turns.",
        "", progress.score
    ));
    text.push_str(&format!("\n\n\n{AFTERMATH}"));
    text + &tail(&view.title_of(before.room), before.score, moves, 129)
}

fn points(gained: i64) -> Option<String> {
    let s = if gained.unsigned_abs() == 1 { "" } else { "s" };
    let way = if gained > 0 { "up" } else { "down" };
    (gained != 0).then(|| {
        format!(
            "Your score has just gone {way} by {} point{s}.",
            in_words(gained.unsigned_abs())
        )
    })
}

/// How the story file words a rule.
enum Wording {
    Look,
    Go,
    Inventory,
    Examine,
    TakeUp,
    TakeFrom,
    Drop,
    Insert,
    Put,
    Open,
    Simple(&'static str),
    Eat,
    Unknown,
}

fn wording(rule: &str) -> Wording {
    match rule {
        "look" => Wording::Look,
        "inventory" => Wording::Inventory,
        "take" => Wording::TakeUp,
        "take/c" | "take/s" => Wording::TakeFrom,
        "drop" => Wording::Drop,
        "insert" => Wording::Insert,
        "put" => Wording::Put,
        "open/c" | "open/d" => Wording::Open,
        "close/c" | "close/d" => Wording::Simple("close"),
        "lock/c" | "lock/d" => Wording::Simple("lock"),
        "unlock/c" | "unlock/d" => Wording::Simple("unlock"),
        "eat" => Wording::Eat,
        _ if rule.starts_with("go/") => Wording::Go,
        _ if rule.starts_with("examine/") => Wording::Examine,
        _ => Wording::Unknown,
    }
}

fn body(view: &View<'_>, rule: &CompiledRule, action: &Action) -> String {
    let named: Vec<Id> = command_slots(rule)
        .map(|slot| action.binding[usize::from(slot)])
        .collect();
    let the = |i: usize| named.get(i).map(|e| view.the(*e)).unwrap_or_default();
    let (x, y) = (the(0), the(1));
    let here = || {
        let floor = view.room().is_some_and(|room| !view.floor(room).is_empty());
        view.room_text() + if floor { "\n\n" } else { "\n\n\n" }
    };
    match wording(&rule.name) {
        Wording::Look => format!("\n{}", here()),
        Wording::Go => format!("\n\n{}", here()),
        Wording::Inventory => format!("\n{}\n\n\n", view.inventory()),
        Wording::Examine => named.first().map(|e| examine(view, *e)).unwrap_or_default(),
        Wording::TakeUp => format!("\nYou pick up {x} from the ground.\n\n\n"),
        Wording::TakeFrom => format!("\nYou take {x} from {y}.\n\n\n"),
        Wording::Drop => format!("\nYou drop {x} on the ground.\n\n"),
        Wording::Insert => format!("\nYou put {x} into {y}.\n\n"),
        Wording::Put => format!("\nYou put {x} on {y}.\n\n"),
        Wording::Open => {
            let inside = named
                .first()
                .map(|e| view.places.children(*e))
                .unwrap_or_default();
            let revealed = if inside.is_empty() {
                String::new()
            } else {
                format!(", revealing {}", view.list_of(&inside))
            };
            format!("\nYou open {x}{revealed}.\n\n")
        }
        Wording::Simple(verb) => format!("\nYou {verb} {x}.\n\n"),
        Wording::Eat => format!("\nYou eat {x}. Not bad.\n\n"),
        Wording::Unknown => format!("\nYou {}.\n\n", action.command),
    }
}

fn examine(view: &View<'_>, entity: Id) -> String {
    let game = view.game;
    let mut text = format!("\n{}", view.desc(entity));
    let inside = view.places.children(entity);
    let on = game.is_a(entity, game.known.supporter);
    let open = game.is_a(entity, game.known.container) && view.is_open(entity);
    if !inside.is_empty() && (on || open) {
        let are = if inside.len() == 1 { "is" } else { "are" };
        let place = if on { "On" } else { "In" };
        text.push_str(&format!(
            "\n\n{place} {} {are} {}.",
            view.the(entity),
            view.list_of(&inside)
        ));
    }
    text + "\n\n\n"
}

/// What of a game's text this table and the templates do not cover, one sentence each.
pub(super) fn unmodelled(entities: &[Entity], rules: &[CompiledRule], has_code: bool) -> Vec<String> {
    let mut out = Vec::new();
    if has_code {
        out.push("The game carries Inform 7 code of its own, which can change any text (how food is named, for one).".into());
    }
    let verbs: Vec<&str> = rules
        .iter()
        .map(|r| r.name.as_str())
        .filter(|n| matches!(wording(n), Wording::Unknown))
        .collect();
    if !verbs.is_empty() {
        out.push(format!(
            "The answers to these rules are plain sentences: {}.",
            verbs.join(", ")
        ));
    }
    let forms = entities
        .iter()
        .flat_map(|e| &e.desc)
        .filter(|n| matches!(n, Node::Unknown(_)))
        .count();
    if forms > 0 {
        out.push(format!(
            "{forms} bracketed forms in descriptions are printed as they stand."
        ));
    }
    out
}

impl Game {
    /// Whether every text of this game is modelled.
    pub fn has_exact_text(&self) -> bool {
        self.unmodelled.is_empty()
    }
}
