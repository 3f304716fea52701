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
    while let Some((here, way)) = open.pop_front() {
        for (index, command) in here.admissible().enumerate() {
            if !here.changes(index) && way != 0 {
                continue;
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
            if seen.len() > most {
                return Search::TooMany;
            }
            ways.push((way, command.to_owned()));
            open.push_back((next, ways.len() - 1));
        }
    }
    Search::Impossible
}
