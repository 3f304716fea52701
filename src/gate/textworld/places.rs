//! Who holds what, in the order in which the story file lists it.
//!
//! Not the facts: `at`, `in` and `on` say the same without an order, and the logic never reads this.

use super::state::{Fact, Id, NONE};

/// The holder of each entity, and its place among the holder's children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `(holder, rank)` of each entity; the holder is [`NONE`] when nothing holds it. Lower ranks are listed first.
    held: Vec<(Id, i64)>,
    /// Rank of the next thing moved, below all others: what is moved is listed first.
    front: i64,
}

impl Places {
    /// Nothing placed, for `entities` entities.
    pub fn new(entities: usize) -> Self {
        Self {
            held: vec![(NONE, 0); entities],
            front: -1,
        }
    }

    /// Puts `entity` behind everything that `holder` has so far.
    pub fn append(&mut self, entity: Id, holder: Id, rank: usize) {
        self.held[usize::from(entity)] = (holder, rank as i64);
    }

    /// Follows an action's effects; `is_holding` tells the predicates that place their first argument in the second.
    pub fn follow(&mut self, added: &[Fact], removed: &[Fact], is_holding: impl Fn(&Fact) -> bool) {
        for fact in removed.iter().filter(|f| is_holding(f)) {
            let held = &mut self.held[usize::from(fact.args[0])];
            if held.0 == fact.args[1] {
                held.0 = NONE;
            }
        }
        for fact in added.iter().filter(|f| is_holding(f)) {
            self.held[usize::from(fact.args[0])] = (fact.args[1], self.front);
            self.front -= 1;
        }
    }

    /// What holds `entity`; [`NONE`] when nothing does.
    pub fn holder(&self, entity: Id) -> Id {
        self.held[usize::from(entity)].0
    }

    /// What `holder` holds directly, in listing order.
    pub fn children(&self, holder: Id) -> Vec<Id> {
        let mine = self.held.iter().enumerate().filter(|(_, (h, _))| *h == holder);
        let mut ranked: Vec<(i64, Id)> = mine.map(|(entity, (_, rank))| (*rank, entity as Id)).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, entity)| entity).collect()
    }
}
