//! The shortest way to win from a state, breadth first.
//!
//! Not TextWorld's winning policy, which follows its own quest tree: this one knows only the rules, so it is
//! shortest, and it gives up at a bound.

use std::collections::{HashSet, VecDeque};

use super::play::Play;
use super::state::State;

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// These commands win, and no shorter list does. Of several, the first in the order of the admissible lists.
    Found(Vec<String>),
    /// No list of commands wins.
    Impossible,
    /// More states than the bound would have to be looked at.
    TooMany,
}

/// Facts tried and copied for each state that may be looked at; real games need under 4000. It bounds the time that
/// a hostile game can take, the same on every machine.
const WORK: u64 = 16_384;
/// Facts and places kept in all, some 400 MB.
const KEPT: u64 = 16_000_000;

/// Searches for the shortest win from `play`, through at most `most` states.
pub fn shortest_win(play: &Play<'_>, most: usize) -> Search {
    if play.won() {
        return Search::Found(Vec::new());
    }
    // A state is its facts and its completed quests; the score follows from them but for repeatable quests.
    let key =
        |play: &Play<'_>| -> (State, Vec<bool>) { (play.state().clone(), play.progress().completed.clone()) };
    let mut seen = HashSet::from([key(play)]);
    let mut open = VecDeque::from([(play.clone(), 0)]);
    // `(parent, command)` of every state, to tell the way back.
    let mut ways: Vec<(usize, String)> = vec![(0, String::new())];
    let size = |play: &Play<'_>| (play.state().facts().len() + play.game().names.len()) as u64;
    let mut left = WORK.saturating_mul(most as u64);
    let mut kept = 0;
    while let Some((here, way)) = open.pop_front() {
        left = left.saturating_sub(here.listing().work);
        for (index, command) in here.admissible().enumerate() {
            if !here.changes(index) && way != 0 {
                continue;
            }
            let copied = size(&here);
            left = left.saturating_sub(copied);
            if left == 0 {
                return Search::TooMany;
            }
            let mut next = here.clone();
            if next.take(index).is_none() || next.lost() {
                continue;
            }
            next.forget_last();
            if next.won() {
                let mut path = vec![command.to_owned()];
                let mut at = way;
                while at != 0 {
                    path.push(ways[at].1.clone());
                    at = ways[at].0;
                }
                path.reverse();
                return Search::Found(path);
            }
            if !seen.insert(key(&next)) {
                continue;
            }
            kept += copied;
            if seen.len() > most || kept > KEPT {
                return Search::TooMany;
            }
            ways.push((way, command.to_owned()));
            open.push_back((next, ways.len() - 1));
        }
    }
    Search::Impossible
}
