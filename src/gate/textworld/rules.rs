//! What TextWorld 1.7.0's rule text (`KB.logic`) says: types, predicates, aliases, rules and command templates.
//!
//! Not its grammar (`grammar.rs`) and not its meaning: names are still strings, and aliases are expanded in
//! `alias.rs`.

use std::collections::BTreeMap;

/// Longest conjunction, and most placeholders of one rule.
pub const MAX_ATOMS: usize = 64;
/// Most arguments of a predicate.
pub const MAX_ARGUMENTS: usize = 4;
/// Most aliases.
pub const MAX_ALIASES: usize = 256;
/// Most types, and most rules.
pub const MAX_RULES: usize = 1024;

/// A placeholder: its name and the type that may stand for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placeholder {
    /// `r'`.
    pub name: String,
    /// `r`.
    pub kind: String,
}

/// A predicate over placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Atom {
    /// Predicate name; a leading `!` is stored as `not_`.
    pub name: String,
    /// Arguments in order.
    pub args: Vec<Placeholder>,
}

/// A rule: what must hold, and what holds afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Preconditions in their written order.
    pub pre: Vec<Atom>,
    /// Postconditions; those marked `$` first.
    pub post: Vec<Atom>,
}

/// `left = right & …`: another way to write the right side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The signature it replaces.
    pub left: Atom,
    /// What stands for it.
    pub right: Vec<Atom>,
}

/// Everything that the rule text says and play needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleBase {
    /// Type to its direct parents.
    pub types: BTreeMap<String, Vec<String>>,
    /// Declared predicates: name and number of arguments.
    pub predicates: BTreeMap<String, Vec<usize>>,
    /// Aliases in the order read.
    pub aliases: Vec<Alias>,
    /// Rules by name; the order in which commands are attributed to rules.
    pub rules: BTreeMap<String, Rule>,
    /// Rule to its command template.
    pub commands: BTreeMap<String, String>,
    /// Whether there is Inform 7 code, which can change any text that the story file prints.
    pub has_code: bool,
}
