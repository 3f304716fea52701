//! The line `(the key)` that the story file prints when the words of a command fit another thing in scope as well.
//!
//! Not a parser: the command is admissible, so what it means is settled, and only the line has to be told.

use std::collections::HashMap;

use super::game::Game;
use super::logic::{Action, Piece};
use super::state::{Id, NONE};
use super::text::View;

/// Words that the story file does not learn as names of their own.
const UNLEARNT: [&str; 2] = ["of", "the"];
/// Beyond this many named things nothing is compared: no generated game is near it.
const MAX_NAMED: usize = 2048;

/// Each entity with the others that the words of its name fit as well.
pub(super) fn clashes(game: &Game) -> HashMap<Id, Vec<Id>> {
    let named: Vec<(Id, Vec<String>)> = (0..game.names.len())
        .filter(|e| game.is_a(*e as Id, game.known.thing))
        .map(|e| {
            (
                e as Id,
                game.names[e]
                    .to_lowercase()
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect(),
            )
        })
        .collect();
    let mut out = HashMap::new();
    if named.len() > MAX_NAMED {
        return out;
    }
    for (entity, words) in &named {
        let fits = |(other, theirs): &&(Id, Vec<String>)| {
            let learnt = |w: &String| theirs.contains(w) && !UNLEARNT.contains(&w.as_str());
            other != entity && !words.is_empty() && (words == theirs || words.iter().all(learnt))
        };
        let others: Vec<Id> = named.iter().filter(fits).map(|(other, _)| *other).collect();
        if !others.is_empty() {
            out.insert(*entity, others);
        }
    }
    out
}

/// The clarification of `action` given in `before`: the first noun that fits something else there, and all after it.
pub(super) fn clarification(before: &View<'_>, action: &Action) -> Option<String> {
    let game = before.game;
    let rule = &game.rules[usize::from(action.rule)];
    let of = |slot: u8| action.binding[usize::from(slot)];
    // `take … from Y` looks for its first noun in or on Y only.
    let taken_from = rule
        .name
        .strip_prefix("take/")
        .and(rule.command.iter().rev().find_map(|piece| match piece {
            Piece::Slot(slot) => Some(of(*slot)),
            Piece::Text(_) => None,
        }));
    let unclear = |piece: &Piece| {
        let Piece::Slot(slot) = piece else { return false };
        let entity = of(*slot);
        let within = taken_from.filter(|holder| *holder != entity);
        let meant = |other: &Id| match within {
            Some(holder) => before.places.holder(*other) == holder,
            None => in_scope(before, *other),
        };
        game.clashes
            .get(&entity)
            .is_some_and(|others| others.iter().any(meant))
    };
    let first = rule.command.iter().position(unclear)?;
    let said = rule.command[first..].iter().map(|piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Slot(slot) => before.the(of(*slot)),
    });
    Some(format!("({})", said.collect::<String>()))
}

/// Whether the player can see `entity`: carried, in this room, on something here or in something open here; a door
/// is seen from both its rooms.
fn in_scope(view: &View<'_>, entity: Id) -> bool {
    let game = view.game;
    let Some(room) = view.room() else { return false };
    if game.is_a(entity, game.known.door) {
        return view
            .state
            .facts()
            .iter()
            .any(|f| f.args.contains(&room) && f.args.contains(&entity));
    }
    let mut at = entity;
    // Containment has no circles at the start, but rules could tie one: the tree is walked at most once around.
    for _ in 0..game.names.len() {
        let holder = view.places.holder(at);
        if holder == NONE {
            return false;
        }
        if holder == room || Some(holder) == game.known.inventory {
            return true;
        }
        if game.is_a(holder, game.known.container) && !view.is_open(holder) {
            return false;
        }
        at = holder;
    }
    false
}
