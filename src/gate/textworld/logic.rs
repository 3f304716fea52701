//! Rule matching over interned ids: the hot path of the plan gate.
//!
//! Not text: the only strings made here are the commands themselves.

use super::error::GameError;
use super::rules::MAX_ARGUMENTS;
use super::state::{Fact, Id, Kinds, NONE, State};

/// Most placeholders of one rule.
pub const MAX_SLOTS: usize = 32;
/// Most facts tried while listing the commands of one state. The largest challenge of TextWorld 1.7.0 needs some
/// thousands.
pub const MAX_WORK: u64 = 1 << 22;
/// Most rule instances in one state.
const MAX_ACTIONS: usize = 1 << 16;

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

/// The admissible actions of a state, and what it took to find them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by command in code-point order, one for each command.
    pub actions: Vec<Action>,
    /// Facts tried.
    pub work: u64,
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
) -> Result<Listing, GameError> {
    let mut search = Search {
        kinds,
        state,
        work: MAX_WORK,
        binding: [NONE; MAX_SLOTS],
        names,
        out: Vec::new(),
    };
    for (index, rule) in rules.iter().enumerate() {
        let mut bound = 0;
        for &(slot, entity) in &rule.constants {
            search.binding[usize::from(slot)] = entity;
            bound |= 1 << slot;
        }
        if search.extend(rule, index as Id, 0, bound).is_none() {
            return Err(GameError::Work {
                file: file.into(),
                rule: rule.name.clone(),
                limit: MAX_WORK,
            });
        }
    }
    // Stable: of several rules behind one command the first by name stays, which is the one TextWorld reports.
    search.out.sort_by(|a, b| a.command.cmp(&b.command));
    search.out.dedup_by(|b, a| a.command == b.command);
    Ok(Listing {
        actions: search.out,
        work: MAX_WORK - search.work,
    })
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
        let Some(pattern) = rule.pre.get(depth) else {
            return self.free_slots(rule, index, bound);
        };
        let first = pattern.slots.first().filter(|s| bound >> **s & 1 == 1);
        let state = self.state;
        for fact in state.of(pattern.predicate, first.map(|s| self.binding[usize::from(*s)])) {
            self.work = self.work.checked_sub(1)?;
            let mut now = bound;
            let fits = pattern
                .slots
                .iter()
                .zip(fact.args)
                .all(|(&slot, entity)| self.bind(rule, slot, entity, &mut now));
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
        let possible =
            self.kinds.fits(entity, rule.slots[place]) && !self.kinds.constant[usize::from(entity)];
        let taken = || (0..rule.slots.len()).any(|s| *bound >> s & 1 == 1 && self.binding[s] == entity);
        if !possible || taken() {
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
            self.out.push(Action {
                command,
                rule: index,
                binding: self.binding,
            });
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
    let facts =
        |patterns: &[Pattern]| -> Vec<Fact> { patterns.iter().map(|p| instance(p, binding)).collect() };
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
    Fact {
        predicate: pattern.predicate,
        args,
    }
}
