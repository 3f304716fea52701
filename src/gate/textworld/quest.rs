//! Quests over ids: which events hold, what they pay, when the game is won or lost.
//!
//! Not the winning policy: that a quest can no longer be finished is not a loss, as in the compiled games.

use super::state::{Fact, State};

/// A quest.
#[derive(Clone, Debug)]
pub struct Quest {
    /// Points.
    pub reward: i64,
    /// Not needed for winning.
    pub optional: bool,
    /// Pays each time.
    pub repeatable: bool,
    /// Any of these, each a conjunction, completes it.
    pub win: Vec<Vec<Fact>>,
    /// Any of these loses the game.
    pub fail: Vec<Vec<Fact>>,
}

/// Score and end of a game in play.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Which quests are completed.
    pub completed: Vec<bool>,
    /// Points so far.
    pub score: i64,
    /// The game is won.
    pub won: bool,
    /// The game is lost.
    pub lost: bool,
}

fn any(events: &[Vec<Fact>], state: &State) -> bool {
    events
        .iter()
        .any(|facts| facts.iter().all(|fact| state.holds(fact)))
}

impl Progress {
    /// Before the first command: nothing is judged at the start, even if an event already holds.
    pub fn start(quests: &[Quest]) -> Self {
        Self {
            completed: vec![false; quests.len()],
            ..Self::default()
        }
    }

    /// Judges `state` after a command.
    pub fn update(&mut self, quests: &[Quest], state: &State) {
        for (quest, completed) in quests.iter().zip(&mut self.completed) {
            if *completed {
                continue;
            }
            if any(&quest.fail, state) {
                self.lost = true;
                return;
            }
            if any(&quest.win, state) {
                self.score = self.score.saturating_add(quest.reward);
                *completed = !quest.repeatable;
            }
        }
        let mut needed = quests
            .iter()
            .zip(&self.completed)
            .filter(|(q, _)| !q.optional && !q.win.is_empty())
            .peekable();
        self.won = needed.peek().is_some() && needed.all(|(_, completed)| *completed);
    }
}

/// The most that a game can pay; `None` when a repeatable quest pays without end.
pub fn max_score(quests: &[Quest]) -> Option<i64> {
    let paying = quests.iter().filter(|q| !q.optional || q.reward > 0);
    paying
        .map(|q| (!(q.repeatable && q.reward > 0)).then_some(q.reward))
        .try_fold(0_i64, |sum, reward| Some(sum.saturating_add(reward?)))
}
