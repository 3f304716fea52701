//! A game: parsed, checked and compiled once; every play copies its start.
//!
//! Not a play: nothing here changes after loading, so a game is shared between threads.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::error::GameError;
use super::file::{GameFile, read};
use super::link::link;
use super::logic::{CompiledRule, Listing};
use super::places::Places;
use super::play::Play;
use super::quest::{Quest, max_score};
use super::state::{Fact, Id, Kinds, State};
use super::template::Node;

/// What is printed of an entity.
#[derive(Clone, Debug)]
pub struct Entity {
    /// Id: `c_0`.
    pub id: String,
    /// Article in place of `the`.
    pub definite: Option<String>,
    /// Article in place of `a` or `an`.
    pub indefinite: Option<String>,
    /// Description.
    pub desc: Vec<Node>,
}

/// Ids of the names that the printed text knows. The logic knows none of them: it reads them from the rules.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The player, `P`.
    pub player: Option<Id>,
    /// What the player carries, `I`.
    pub inventory: Option<Id>,
    /// `at`, `in` and `on`, with two arguments.
    pub holding: [Option<Id>; 3],
    /// `open`, with one argument.
    pub open: Option<Id>,
    /// `locked`, with one argument.
    pub locked: Option<Id>,
    /// Type of everything that a command can name but rooms.
    pub thing: Option<Id>,
    /// Type of portable objects.
    pub object: Option<Id>,
    /// Container.
    pub container: Option<Id>,
    /// Supporter.
    pub supporter: Option<Id>,
    /// Door.
    pub door: Option<Id>,
}

/// A loaded game.
#[derive(Clone, Debug)]
pub struct Game {
    pub(super) file: String,
    pub(super) sha256: String,
    pub(super) objective: String,
    pub(super) metadata: Map<String, Value>,
    pub(super) kinds: Kinds,
    pub(super) predicates: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) entities: Vec<Entity>,
    pub(super) known: Known,
    pub(super) rules: Vec<CompiledRule>,
    pub(super) quests: Vec<Quest>,
    pub(super) start: State,
    pub(super) places: Places,
    pub(super) start_actions: Arc<Listing>,
    /// Each entity with the others that all words of its name also belong to.
    pub(super) clashes: HashMap<Id, Vec<Id>>,
    pub(super) unmodelled: Vec<String>,
}

impl Game {
    /// Loads a `.json` game file.
    ///
    /// # Errors
    /// A file that cannot be read, or anything that [`Game::parse`] refuses.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, GameError> {
        let path = path.as_ref();
        Self::parse(&read(path)?, &path.display().to_string())
    }

    /// Parses the bytes of a `.json` game file; `file` names it in errors.
    ///
    /// # Errors
    /// Bytes that are not a playable game of TextWorld's file version 1: [`GameError`] names the place.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, GameError> {
        let mut game = link(GameFile::parse(bytes, file)?, file)?;
        game.sha256 = format!("{:x}", Sha256::digest(bytes));
        Ok(game)
    }

    /// A fresh play.
    pub fn start(&self) -> Play<'_> {
        Play::new(self)
    }

    /// The name of the file it was loaded from.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// sha256 of the file's bytes, in hex.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// What the player is to reach.
    pub fn objective(&self) -> &str {
        &self.objective
    }

    /// The most points there are; `None` when a repeatable quest pays without end.
    pub fn max_score(&self) -> Option<i64> {
        max_score(&self.quests)
    }

    /// The generator's own solution, where the file has one.
    pub fn walkthrough(&self) -> Option<Vec<&str>> {
        self.metadata
            .get("walkthrough")?
            .as_array()?
            .iter()
            .map(Value::as_str)
            .collect()
    }

    /// What the generator left beside the game: `uuid`, seeds, settings.
    pub fn metadata(&self) -> &Map<String, Value> {
        &self.metadata
    }

    /// What of the story file's text is not modelled, one sentence each; empty when every text is exact. The logic
    /// (admissible commands, facts, score, end) does not depend on it.
    pub fn unmodelled(&self) -> &[String] {
        &self.unmodelled
    }

    /// Number of rooms, other entities and quests.
    pub fn size(&self) -> (usize, usize, usize) {
        let room = self.kinds.names.iter().position(|n| n == "r").map(|i| i as Id);
        let rooms = self.kinds.of_entity.iter().filter(|k| Some(**k) == room).count();
        let constants = self.kinds.constant.iter().filter(|c| **c).count();
        (rooms, self.entities.len() - rooms - constants, self.quests.len())
    }

    /// A fact as TextWorld writes it: `in(o_0, c_0)`.
    pub fn fact_text(&self, fact: &Fact) -> String {
        let args = fact
            .args
            .iter()
            .filter_map(|a| self.entities.get(usize::from(*a)));
        let ids: Vec<&str> = args.map(|e| e.id.as_str()).collect();
        format!(
            "{}({})",
            self.predicates[usize::from(fact.predicate)],
            ids.join(", ")
        )
    }

    /// Whether the text after a command can depend on the whole state before it.
    pub(super) fn looks_back(&self) -> bool {
        !self.clashes.is_empty() || self.quests.iter().any(|q| !q.fail.is_empty())
    }

    pub(super) fn is_a(&self, entity: Id, kind: Option<Id>) -> bool {
        kind.is_some_and(|kind| self.kinds.fits(entity, kind))
    }

    pub(super) fn is_holding(&self, fact: &Fact) -> bool {
        self.known.holding.contains(&Some(fact.predicate)) && Some(fact.args[0]) != self.known.player
    }
}
