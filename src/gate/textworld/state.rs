//! Facts and states over interned ids.
//!
//! Not the rules (`logic.rs`): a state is a set, and anything can be added to it or removed.

use super::rules::MAX_ARGUMENTS;

/// Index of an entity, a type or a predicate.
pub type Id = u16;
/// An argument place that a predicate does not have.
pub const NONE: Id = Id::MAX;

/// A fact: a predicate and its arguments, unused places [`NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fact {
    /// Predicate; the same name with another number of arguments is another predicate.
    pub predicate: Id,
    /// Arguments.
    pub args: [Id; MAX_ARGUMENTS],
}

/// The facts that hold, sorted, so that those of one predicate and first argument lie together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State(Vec<Fact>);

impl State {
    /// The state in which exactly `facts` hold.
    pub fn new(mut facts: Vec<Fact>) -> Self {
        facts.sort_unstable();
        facts.dedup();
        Self(facts)
    }

    /// Whether `fact` holds.
    pub fn holds(&self, fact: &Fact) -> bool {
        self.0.binary_search(fact).is_ok()
    }

    /// All facts, sorted by predicate and arguments.
    pub fn facts(&self) -> &[Fact] {
        &self.0
    }

    /// Applies an action's effects.
    pub fn apply(&mut self, added: &[Fact], removed: &[Fact]) {
        for fact in added {
            self.add(*fact);
        }
        for fact in removed {
            self.remove(fact);
        }
    }

    fn add(&mut self, fact: Fact) {
        if let Err(at) = self.0.binary_search(&fact) {
            self.0.insert(at, fact);
        }
    }

    fn remove(&mut self, fact: &Fact) {
        if let Ok(at) = self.0.binary_search(fact) {
            self.0.remove(at);
        }
    }

    /// The facts of `predicate`, and of that first argument where it is known.
    pub fn of(&self, predicate: Id, first: Option<Id>) -> impl Iterator<Item = &Fact> {
        let key = |predicate: Id, first: Id| u32::from(predicate) << 16 | u32::from(first);
        let (low, high) = (
            key(predicate, first.unwrap_or(0)),
            key(predicate, first.unwrap_or(NONE)),
        );
        let start = self.0.partition_point(|f| key(f.predicate, f.args[0]) < low);
        self.0[start..]
            .iter()
            .take_while(move |f| key(f.predicate, f.args[0]) <= high)
    }
}

/// Which type descends from which.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Type names.
    pub names: Vec<String>,
    /// `descends[a * n + b]`: `b` is `a` or a descendant of it.
    pub descends: Vec<bool>,
    /// Type of each entity.
    pub of_entity: Vec<Id>,
    /// Whether each entity is a constant (`P`, `I`): it stands for the placeholder of its own name only.
    pub constant: Vec<bool>,
}

impl Kinds {
    /// Whether `entity` may stand where `kind` is asked for.
    pub fn fits(&self, entity: Id, kind: Id) -> bool {
        let entity_kind = usize::from(self.of_entity[usize::from(entity)]);
        self.descends[usize::from(kind) * self.names.len() + entity_kind]
    }
}
