//! A game file and its rules made one game: names become ids, and everything that does not fit is refused.
//!
//! Not parsing (`file.rs`, `rules.rs`): what arrives here has the right shape, but any names.

use std::collections::HashMap;
use std::sync::Arc;

use super::alias::expand_all;
use super::clarify::clashes;
use super::compile::compile;
use super::declare::{Names, add_constants, add_entities, declare};
use super::error::GameError;
use super::file::{GameFile, Info};
use super::game::{Entity, Game, Known};
use super::logic::actions;
use super::message::unmodelled;
use super::places::Places;
use super::quest::Quest;
use super::rules::RuleBase;
use super::state::{Fact, Id, NONE, State};
use super::template;

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
                names.facts(
                    &format!("quests[{i}].{which}[{j}].condition.preconditions"),
                    &e.condition.preconditions,
                )
            };
            events.iter().enumerate().map(one).collect()
        };
        let (win, fail) = (
            events("win_events", &quest.win_events)?,
            events("fail_events", &quest.fail_events)?,
        );
        let (reward, optional, repeatable) = (quest.reward, quest.optional, quest.repeatable);
        quests.push(Quest {
            reward,
            optional,
            repeatable,
            win,
            fail,
        });
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
    let texts = source
        .infos
        .iter()
        .map(|(id, info)| info.name.clone().unwrap_or_else(|| id.clone()))
        .collect();
    let descs: Vec<&str> = source
        .quests
        .iter()
        .filter_map(|q| q.desc.as_deref())
        .filter(|d| !d.is_empty())
        .collect();
    let unmodelled = unmodelled(&entities, &rules, base.has_code);
    let mut game = Game {
        file: file.into(),
        sha256: String::new(),
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
            return names.fail(
                "world".into(),
                "one holder for each entity",
                &format!("two for {id}"),
            );
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
