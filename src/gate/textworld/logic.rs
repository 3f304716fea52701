//! Facts, states and rule matching over interned ids: the hot path of the plan gate.
//!
//! Not text: the only strings made here are the commands themselves.

use super::error::GameError;
use super::rules::MAX_ARGUMENTS;

/// Index of an entity, a type or a predicate.
pub type Id = u16;
/// An argument place that a predicate does not have.
pub const NONE: Id = Id::MAX;
/// Most placeholders of one rule.
pub const MAX_SLOTS: usize = 32;
/// Most facts tried while listing the commands of one state. The largest challenge of TextWorld 1.7.0 needs some
/// thousands.
pub const MAX_WORK: u64 = 1 << 22;
/// Most rule instances in one state.
const MAX_ACTIONS: usize = 1 << 16;

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
    pub fn of(&self, predicate: Id, first: Option<Id>) -> &[Fact] {
        let low = (predicate, first.unwrap_or(0));
        let high = (predicate, first.unwrap_or(NONE));
        let start = self.0.partition_point(|f| (f.predicate, f.args[0]) < low);
        let length = self.0[start..].partition_point(|f| (f.predicate, f.args[0]) <= high);
        &self.0[start..start + length]
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

/// A predicate over the placeholders of a rule.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Predicate.
    pub predicate: Id,
    /// Placeholder of each argument.
    pub slots: Vec<u8>,
}

/// A piece of a command template.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Fixed text.
    Text(String),
    /// The name of what stands for a placeholder.
    Slot(u8),
}

/// A rule over ids.
#[derive(Clone, Debug)]
pub struct CompiledRule {
    /// Name: `take/c`.
    pub name: String,
    /// Preconditions.
    pub pre: Vec<Pattern>,
    /// Postconditions.
    pub post: Vec<Pattern>,
    /// Type of each placeholder.
    pub slots: Vec<Id>,
    /// Placeholders that are constants, with their entity.
    pub constants: Vec<(u8, Id)>,
    /// The command.
    pub command: Vec<Piece>,
}

/// What stands for each placeholder of a rule.
pub type Binding = [Id; MAX_SLOTS];

/// A rule instance and its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The command, as it is listed and must be given.
    pub command: String,
    /// Index of the rule.
    pub rule: Id,
    /// Its placeholders.
    pub binding: Binding,
}

/// All admissible actions of `state`, sorted by command in code-point order, one for each command.
///
/// # Errors
/// [`GameError::Work`] when the rules and facts multiply beyond [`MAX_WORK`].
pub fn actions(
    rules: &[CompiledRule],
    kinds: &Kinds,
    names: &[String],
    state: &State,
    file: &str,
) -> Result<Vec<Action>, GameError> {
    let mut search = Search { kinds, state, work: MAX_WORK, binding: [NONE; MAX_SLOTS], names, out: Vec::new() };
    for (index, rule) in rules.iter().enumerate() {
        let mut bound = 0;
        for &(slot, entity) in &rule.constants {
            search.binding[usize::from(slot)] = entity;
            bound |= 1 << slot;
        }
        if search.extend(rule, index as Id, 0, bound).is_none() {
            return Err(GameError::Work { file: file.into(), rule: rule.name.clone(), limit: MAX_WORK });
        }
    }
    // Stable: of several rules behind one command the first by name stays, which is the one TextWorld reports.
    search.out.sort_by(|a, b| a.command.cmp(&b.command));
    search.out.dedup_by(|b, a| a.command == b.command);
    Ok(search.out)
}

struct Search<'a> {
    kinds: &'a Kinds,
    state: &'a State,
    names: &'a [String],
    work: u64,
    binding: Binding,
    out: Vec<Action>,
}

impl Search<'_> {
    /// Matches the preconditions from `depth` on, depth first; `bound` has a bit for each placeholder that
    /// `binding` already holds. `None`: out of work. The depth is bounded by the parser's limit on predicates.
    fn extend(&mut self, rule: &CompiledRule, index: Id, depth: usize, bound: u32) -> Option<()> {
        let Some(pattern) = rule.pre.get(depth) else { return self.free_slots(rule, index, bound) };
        let first = pattern.slots.first().filter(|s| bound >> **s & 1 == 1);
        let state = self.state;
        for fact in state.of(pattern.predicate, first.map(|s| self.binding[usize::from(*s)])) {
            self.work = self.work.checked_sub(1)?;
            let mut now = bound;
            let fits = pattern.slots.iter().zip(fact.args).all(|(&slot, entity)| self.bind(rule, slot, entity, &mut now));
            if fits {
                self.extend(rule, index, depth + 1, now)?;
            }
        }
        Some(())
    }

    /// Whether `slot` is or can be `entity`: never two placeholders for one entity.
    fn bind(&mut self, rule: &CompiledRule, slot: u8, entity: Id, bound: &mut u32) -> bool {
        let place = usize::from(slot);
        if *bound >> slot & 1 == 1 {
            return self.binding[place] == entity && self.kinds.fits(entity, rule.slots[place]);
        }
        let taken = (0..rule.slots.len()).any(|s| *bound >> s & 1 == 1 && self.binding[s] == entity);
        if taken || self.kinds.constant[usize::from(entity)] || !self.kinds.fits(entity, rule.slots[place]) {
            return false;
        }
        self.binding[place] = entity;
        *bound |= 1 << slot;
        true
    }

    /// Placeholders that only postconditions name range over every entity of their type.
    fn free_slots(&mut self, rule: &CompiledRule, index: Id, bound: u32) -> Option<()> {
        let Some(slot) = (0..rule.slots.len()).find(|s| bound >> s & 1 == 0) else {
            if self.out.len() >= MAX_ACTIONS {
                return None;
            }
            let command = command(&rule.command, &self.binding, self.names);
            self.out.push(Action { command, rule: index, binding: self.binding });
            return Some(());
        };
        for entity in 0..self.kinds.of_entity.len() {
            self.work = self.work.checked_sub(1)?;
            let mut now = bound;
            if self.bind(rule, slot as u8, entity as Id, &mut now) {
                self.free_slots(rule, index, now)?;
            }
        }
        Some(())
    }
}

fn command(pieces: &[Piece], binding: &Binding, names: &[String]) -> String {
    let mut out = String::with_capacity(32);
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Slot(slot) => out.push_str(&names[usize::from(binding[usize::from(*slot)])]),
        }
    }
    out
}

/// The facts that the action adds and those that it removes, in that order.
pub fn effects(rule: &CompiledRule, binding: &Binding) -> (Vec<Fact>, Vec<Fact>) {
    let facts = |patterns: &[Pattern]| -> Vec<Fact> { patterns.iter().map(|p| instance(p, binding)).collect() };
    let (pre, post) = (facts(&rule.pre), facts(&rule.post));
    let added = post.iter().filter(|f| !pre.contains(f)).copied().collect();
    let removed = pre.iter().filter(|f| !post.contains(f)).copied().collect();
    (added, removed)
}

fn instance(pattern: &Pattern, binding: &Binding) -> Fact {
    let mut args = [NONE; MAX_ARGUMENTS];
    for (arg, slot) in args.iter_mut().zip(&pattern.slots) {
        *arg = binding[usize::from(*slot)];
    }
    Fact { predicate: pattern.predicate, args }
}

impl State {
    /// Applies an action's effects.
    pub fn apply(&mut self, added: &[Fact], removed: &[Fact]) {
        for fact in added {
            self.add(*fact);
        }
        for fact in removed {
            self.remove(fact);
        }
    }
}
