//! A game file and its rules made one game: names become ids, and everything that does not fit is refused.
//!
//! Not parsing (`file.rs`, `rules.rs`): what arrives here has the right shape, but any names.

use std::collections::HashMap;
use std::sync::Arc;

use super::alias::expand_all;
use super::clarify::clashes;
use super::compile::compile;
use super::error::{GameError, quoted};
use super::file::{GameFile, Info, Proposition};
use super::game::{Entity, Game, Known};
use super::logic::{Fact, Id, Kinds, NONE, State, actions};
use super::message::unmodelled;
use super::places::Places;
use super::quest::Quest;
use super::rules::{MAX_ARGUMENTS, RuleBase};
use super::template;

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
        Err(GameError::Invalid { file: self.file.into(), place, expected, found: quoted(found) })
    }

    pub(super) fn kind(&self, place: impl Fn() -> String, name: &str) -> Result<Id, GameError> {
        self.kind_ids.get(name).copied().map_or_else(|| self.fail(place(), "a type of the rule text", name), Ok)
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
                return self.fail(at(), &format!("the type that `infos` gives {}", quoted(&arg.name)), &arg.kind);
            }
            *slot = entity;
        }
        Ok(Fact { predicate, args })
    }

    fn facts(&self, place: &str, facts: &[Proposition]) -> Result<Vec<Fact>, GameError> {
        facts.iter().enumerate().map(|(i, f)| self.fact(&|| format!("{place}[{i}]"), f)).collect()
    }
}

/// Links `source`, the parsed file called `file`.
///
/// # Errors
/// [`GameError::Rules`] or [`GameError::Invalid`] at the first thing that does not fit.
pub(super) fn link(mut source: GameFile, file: &str) -> Result<Game, GameError> {
    let mut base = RuleBase::parse(&source.knowledge.logic, file)?;
    expand_all(&mut base, file)?;
    let mut names = declare(&base, file)?;
    add_constants(&mut source.infos, &base);
    add_entities(&mut names, &source.infos)?;
    let rules = compile(&base, &names)?;
    let start = names.facts("world", &source.world)?;
    let mut quests = Vec::new();
    for (i, quest) in source.quests.iter().enumerate() {
        let events = |which: &str, events: &[super::file::Event]| -> Result<Vec<Vec<Fact>>, GameError> {
            let one = |(j, e): (usize, &super::file::Event)| {
                names.facts(&format!("quests[{i}].{which}[{j}].condition.preconditions"), &e.condition.preconditions)
            };
            events.iter().enumerate().map(one).collect()
        };
        let (win, fail) = (events("win_events", &quest.win_events)?, events("fail_events", &quest.fail_events)?);
        let (reward, optional, repeatable) = (quest.reward, quest.optional, quest.repeatable);
        quests.push(Quest { reward, optional, repeatable, win, fail });
    }
    let known = known(&names);
    let holding = |f: &Fact| known.holding.contains(&Some(f.predicate)) && Some(f.args[0]) != known.player;
    let places = place(&names, &source.infos, start.iter().filter(|f| holding(f)))?;
    let id = |text: &str| names.entity_ids.get(text).copied();
    let printed = source.infos.iter().map(|(id_text, info)| Entity {
        id: id_text.clone(),
        definite: info.definite.clone(),
        indefinite: info.indefinite.clone(),
        desc: template::parse(info.desc.as_deref().unwrap_or_default(), &id),
    });
    let entities: Vec<Entity> = printed.collect();
    let texts = source.infos.iter().map(|(id, info)| info.name.clone().unwrap_or_else(|| id.clone())).collect();
    let descs: Vec<&str> = source.quests.iter().filter_map(|q| q.desc.as_deref()).filter(|d| !d.is_empty()).collect();
    let unmodelled = unmodelled(&entities, &rules, base.has_code);
    let mut game = Game {
        file: file.into(),
        objective: source.objective.unwrap_or_else(|| descs.join("\nAND\n")),
        metadata: source.metadata,
        kinds: names.kinds,
        predicates: names.predicates,
        names: texts,
        entities,
        known,
        rules,
        quests,
        start: State::new(start),
        places,
        start_actions: Arc::default(),
        clashes: HashMap::new(),
        unmodelled,
    };
    game.clashes = clashes(&game);
    game.start_actions = Arc::new(actions(&game.rules, &game.kinds, &game.names, &game.start, file)?);
    Ok(game)
}

fn known(names: &Names<'_>) -> Known {
    let predicate = |name: &str, arity| names.predicate_ids.get(&(name.to_owned(), arity)).copied();
    let kind = |name: &str| names.kind_ids.get(name).copied();
    Known {
        player: names.entity_ids.get("P").copied(),
        inventory: names.entity_ids.get("I").copied(),
        holding: [predicate("at", 2), predicate("in", 2), predicate("on", 2)],
        open: predicate("open", 1),
        locked: predicate("locked", 1),
        thing: kind("t"),
        object: kind("o"),
        container: kind("c"),
        supporter: kind("s"),
        door: kind("d"),
    }
}

/// Types with their descendants, and predicates.
fn declare<'f>(base: &RuleBase, file: &'f str) -> Result<Names<'f>, GameError> {
    let mut names = Names {
        file,
        kinds: Kinds { names: base.types.keys().cloned().collect(), ..Kinds::default() },
        kind_ids: base.types.keys().enumerate().map(|(i, n)| (n.clone(), i as Id)).collect(),
        entity_ids: HashMap::new(),
        predicates: Vec::new(),
        predicate_ids: HashMap::new(),
    };
    let n = base.types.len();
    let mut parents = vec![Vec::new(); n];
    for (i, (name, declared)) in base.types.iter().enumerate() {
        for parent in declared {
            parents[i].push(usize::from(names.kind(|| format!("KB.logic, type {name}"), parent)?));
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
            names.predicate_ids.insert((name.clone(), arity), names.predicates.len() as Id);
            names.predicates.push(name.clone());
        }
    }
    Ok(names)
}

fn is_constant(kind: &str) -> bool {
    kind.starts_with(char::is_uppercase)
}

/// A constant type has one entity of its own name, listed in `infos` or not.
fn add_constants(infos: &mut Vec<(String, Info)>, base: &RuleBase) {
    for kind in base.types.keys().filter(|k| is_constant(k)) {
        if !infos.iter().any(|(id, _)| id == kind) {
            let info = Info { kind: kind.clone(), name: None, desc: None, definite: None, indefinite: None };
            infos.push((kind.clone(), info));
        }
    }
}

fn add_entities(names: &mut Names<'_>, infos: &[(String, Info)]) -> Result<(), GameError> {
    for (i, (id, info)) in infos.iter().enumerate() {
        let kind = names.kind(|| format!("infos[{i}][1].type"), &info.kind)?;
        if names.entity_ids.insert(id.clone(), i as Id).is_some() {
            return names.fail(format!("infos[{i}][0]"), "an id of its own", id);
        }
        if is_constant(&info.kind) && info.kind != *id {
            return names.fail(format!("infos[{i}][0]"), &format!("the constant {}", quoted(&info.kind)), id);
        }
        names.kinds.of_entity.push(kind);
        names.kinds.constant.push(is_constant(&info.kind));
    }
    Ok(())
}

/// The object tree at the start: by type name, then in `infos` order. One holder each, and no circles.
fn place<'a>(
    names: &Names<'_>,
    infos: &[(String, Info)],
    holding: impl Iterator<Item = &'a Fact>,
) -> Result<Places, GameError> {
    let mut holder = vec![NONE; infos.len()];
    for fact in holding {
        let slot = &mut holder[usize::from(fact.args[0])];
        if *slot != NONE && *slot != fact.args[1] {
            let id = &infos[usize::from(fact.args[0])].0;
            return names.fail("world".into(), "one holder for each entity", &format!("two for {id}"));
        }
        *slot = fact.args[1];
    }
    // 0: not seen; otherwise the walk that saw it. A walk that meets itself goes in a circle.
    let mut seen = vec![0; infos.len()];
    for first in 0..infos.len() {
        let mut at = first;
        while seen[at] == 0 {
            seen[at] = first + 1;
            if holder[at] == NONE {
                break;
            }
            at = usize::from(holder[at]);
            if seen[at] == first + 1 {
                let found = format!("{} inside itself", infos[at].0);
                return names.fail("world".into(), "containment without a circle", &found);
            }
        }
    }
    let mut order: Vec<usize> = (0..infos.len()).filter(|i| holder[*i] != NONE).collect();
    order.sort_by(|a, b| infos[*a].1.kind.cmp(&infos[*b].1.kind));
    let mut places = Places::new(infos.len());
    for (rank, entity) in order.into_iter().enumerate() {
        places.append(entity as Id, holder[entity], rank);
    }
    Ok(places)
}
