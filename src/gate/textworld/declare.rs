//! The names of a game file and their ids: types, predicates, entities.
//!
//! Not the game yet: this is where a name that nothing declares is refused.

use std::collections::HashMap;

use super::error::{GameError, quoted};
use super::file::{Info, Proposition};
use super::rules::{MAX_ARGUMENTS, RuleBase};
use super::state::{Fact, Id, Kinds, NONE};

/// Names and their ids while a game is put together.
pub(super) struct Names<'f> {
    pub(super) file: &'f str,
    pub(super) kinds: Kinds,
    pub(super) kind_ids: HashMap<String, Id>,
    pub(super) entity_ids: HashMap<String, Id>,
    pub(super) predicates: Vec<String>,
    pub(super) predicate_ids: HashMap<(String, usize), Id>,
}

impl Names<'_> {
    pub(super) fn fail<T>(&self, place: String, expected: &str, found: &str) -> Result<T, GameError> {
        let expected = expected.to_owned();
        Err(GameError::Invalid {
            file: self.file.into(),
            place,
            expected,
            found: quoted(found),
        })
    }

    pub(super) fn kind(&self, place: impl Fn() -> String, name: &str) -> Result<Id, GameError> {
        self.kind_ids
            .get(name)
            .copied()
            .map_or_else(|| self.fail(place(), "a type of the rule text", name), Ok)
    }

    fn fact(&self, place: &dyn Fn() -> String, fact: &Proposition) -> Result<Fact, GameError> {
        let key = (fact.name.clone(), fact.arguments.len());
        let Some(&predicate) = self.predicate_ids.get(&key) else {
            let found = format!("{}/{}", fact.name, fact.arguments.len());
            return self.fail(place(), "a predicate of the rule text", &found);
        };
        let mut args = [NONE; MAX_ARGUMENTS];
        for (i, (slot, arg)) in args.iter_mut().zip(&fact.arguments).enumerate() {
            let at = || format!("{}.arguments[{i}]", place());
            let Some(&entity) = self.entity_ids.get(&arg.name) else {
                return self.fail(at(), "an entity of `infos`", &arg.name);
            };
            if self.kind(at, &arg.kind)? != self.kinds.of_entity[usize::from(entity)] {
                return self.fail(
                    at(),
                    &format!("the type that `infos` gives {}", quoted(&arg.name)),
                    &arg.kind,
                );
            }
            *slot = entity;
        }
        Ok(Fact { predicate, args })
    }

    pub(super) fn facts(&self, place: &str, facts: &[Proposition]) -> Result<Vec<Fact>, GameError> {
        facts
            .iter()
            .enumerate()
            .map(|(i, f)| self.fact(&|| format!("{place}[{i}]"), f))
            .collect()
    }
}

/// Types with their descendants, and predicates.
pub(super) fn declare<'f>(base: &RuleBase, file: &'f str) -> Result<Names<'f>, GameError> {
    let mut names = Names {
        file,
        kinds: Kinds {
            names: base.types.keys().cloned().collect(),
            ..Kinds::default()
        },
        kind_ids: base
            .types
            .keys()
            .enumerate()
            .map(|(i, n)| (n.clone(), i as Id))
            .collect(),
        entity_ids: HashMap::new(),
        predicates: Vec::new(),
        predicate_ids: HashMap::new(),
    };
    let n = base.types.len();
    let mut parents = vec![Vec::new(); n];
    for (i, (name, declared)) in base.types.iter().enumerate() {
        for parent in declared {
            parents[i].push(usize::from(
                names.kind(|| format!("KB.logic, type {name}"), parent)?,
            ));
        }
    }
    names.kinds.descends = vec![false; n * n];
    for kind in 0..n {
        // Every ancestor once, so a cycle of parents ends.
        let mut open = vec![kind];
        while let Some(ancestor) = open.pop() {
            let seen = &mut names.kinds.descends[ancestor * n + kind];
            if !std::mem::replace(seen, true) {
                open.extend(&parents[ancestor]);
            }
        }
    }
    for (name, arities) in &base.predicates {
        for &arity in arities {
            if names.predicates.len() >= usize::from(NONE) {
                return names.fail("KB.logic".into(), "at most 65534 predicates", name);
            }
            names
                .predicate_ids
                .insert((name.clone(), arity), names.predicates.len() as Id);
            names.predicates.push(name.clone());
        }
    }
    Ok(names)
}

fn is_constant(kind: &str) -> bool {
    kind.starts_with(char::is_uppercase)
}

/// A constant type has one entity of its own name, listed in `infos` or not.
pub(super) fn add_constants(infos: &mut Vec<(String, Info)>, base: &RuleBase) {
    for kind in base.types.keys().filter(|k| is_constant(k)) {
        if !infos.iter().any(|(id, _)| id == kind) {
            let info = Info {
                kind: kind.clone(),
                name: None,
                desc: None,
                definite: None,
                indefinite: None,
            };
            infos.push((kind.clone(), info));
        }
    }
}

pub(super) fn add_entities(names: &mut Names<'_>, infos: &[(String, Info)]) -> Result<(), GameError> {
    for (i, (id, info)) in infos.iter().enumerate() {
        let kind = names.kind(|| format!("infos[{i}][1].type"), &info.kind)?;
        if names.entity_ids.insert(id.clone(), i as Id).is_some() {
            return names.fail(format!("infos[{i}][0]"), "an id of its own", id);
        }
        if is_constant(&info.kind) && info.kind != *id {
            return names.fail(
                format!("infos[{i}][0]"),
                &format!("the constant {}", quoted(&info.kind)),
                id,
            );
        }
        names.kinds.of_entity.push(kind);
        names.kinds.constant.push(is_constant(&info.kind));
    }
    Ok(())
}
