//! The game file as TextWorld 1.7.0 writes it: one JSON object, read with limits.
//!
//! Not the game: names are still strings here, and nothing is checked against the rules (`link.rs` does that).

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::{GameError, quoted};

/// Largest game file, bytes. The largest that TextWorld's own challenges make is under 0.2 MB.
pub const MAX_FILE_BYTES: u64 = 8 << 20;
/// Most entities in a game.
pub const MAX_ENTITIES: usize = 8192;
/// Most facts in the initial world.
pub const MAX_FACTS: usize = 32_768;
/// Most quests, and most events in a quest.
pub const MAX_QUESTS: usize = 1024;
/// Longest name, characters.
const MAX_NAME: usize = 256;

/// One argument of a proposition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Id: `P`, `r_0`, `o_3`.
    pub name: String,
    /// Type: `P`, `r`, `o`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A fact as the file writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposition {
    /// Predicate.
    pub name: String,
    /// Arguments in order.
    pub arguments: Vec<Argument>,
}

/// The condition of an event: facts that must hold together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Condition {
    /// The facts.
    pub preconditions: Vec<Proposition>,
}

/// A way to win or to fail a quest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// What must hold.
    pub condition: Condition,
}

/// A quest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct QuestFile {
    /// Points for completing it.
    #[serde(default = "one_point")]
    pub reward: i64,
    /// Not needed for winning.
    #[serde(default)]
    pub optional: bool,
    /// Pays each time that its event holds.
    #[serde(default)]
    pub repeatable: bool,
    /// Ways to complete it.
    pub win_events: Vec<Event>,
    /// Ways to lose the game by it.
    #[serde(default)]
    pub fail_events: Vec<Event>,
    /// Its text, shown when the game has no objective of its own.
    #[serde(default)]
    pub desc: Option<String>,
}

fn one_point() -> i64 {
    1
}

/// What the file says of an entity.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Info {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the player calls it; none for the player and the inventory.
    pub name: Option<String>,
    /// Text with Inform 7 substitutions in brackets.
    #[serde(default)]
    pub desc: Option<String>,
    /// Article in place of `the`.
    #[serde(default)]
    pub definite: Option<String>,
    /// Article in place of `a` or `an`.
    #[serde(default)]
    pub indefinite: Option<String>,
}

/// The knowledge base: the rule text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Knowledge {
    /// The text of all rule files, joined.
    pub logic: String,
}

/// The whole file; unknown keys are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct GameFile {
    /// Always 1 after [`GameFile::parse`].
    pub version: Value,
    /// Facts that hold at the start.
    pub world: Vec<Proposition>,
    /// Quests in order.
    pub quests: Vec<QuestFile>,
    /// `(id, info)` in the generator's order.
    pub infos: Vec<(String, Info)>,
    /// The rules.
    #[serde(rename = "KB")]
    pub knowledge: Knowledge,
    /// What the player is told.
    #[serde(default)]
    pub objective: Option<String>,
    /// Free: `walkthrough`, `uuid`, and what a challenge adds.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// Reads a file of at most [`MAX_FILE_BYTES`].
///
/// # Errors
/// [`GameError::Read`] or [`GameError::TooLarge`].
pub fn read(path: &Path) -> Result<Vec<u8>, GameError> {
    let file = path.display().to_string();
    let broken = |e: std::io::Error| GameError::Read {
        file: file.clone(),
        reason: e.to_string(),
    };
    let opened = std::fs::File::open(path).map_err(broken)?;
    // A named pipe or a device has no honest length, so the limit is on what is read.
    let mut bytes = Vec::new();
    opened
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(broken)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(GameError::TooLarge {
            file,
            limit: MAX_FILE_BYTES,
        });
    }
    Ok(bytes)
}

impl GameFile {
    /// Parses the bytes of the file called `file`.
    ///
    /// # Errors
    /// Anything but a JSON object of version 1, in UTF-8 and within the limits.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, GameError> {
        let name = || file.to_owned();
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(GameError::TooLarge {
                file: name(),
                limit: MAX_FILE_BYTES,
            });
        }
        let text = std::str::from_utf8(bytes).map_err(|e| GameError::NotUtf8 {
            file: name(),
            offset: e.valid_up_to(),
        })?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let game: Self = serde_path_to_error::deserialize(&mut reader).map_err(|e| GameError::Json {
            file: name(),
            place: e.path().to_string(),
            reason: e.inner().to_string(),
        })?;
        reader.end().map_err(|e| GameError::Json {
            file: name(),
            place: ".".into(),
            reason: e.to_string(),
        })?;
        if game.version != 1 {
            let found = quoted(&game.version.to_string());
            return Err(GameError::Version { file: name(), found });
        }
        game.check_limits(file)?;
        Ok(game)
    }

    fn check_limits(&self, file: &str) -> Result<(), GameError> {
        let most = |place: String, limit: usize, found: usize| {
            if found <= limit {
                return Ok(());
            }
            Err(GameError::Invalid {
                file: file.into(),
                place,
                expected: format!("at most {limit} entries"),
                found: found.to_string(),
            })
        };
        most("infos".into(), MAX_ENTITIES, self.infos.len())?;
        most("world".into(), MAX_FACTS, self.world.len())?;
        most("quests".into(), MAX_QUESTS, self.quests.len())?;
        for (i, quest) in self.quests.iter().enumerate() {
            most(
                format!("quests[{i}].win_events"),
                MAX_QUESTS,
                quest.win_events.len(),
            )?;
            most(
                format!("quests[{i}].fail_events"),
                MAX_QUESTS,
                quest.fail_events.len(),
            )?;
        }
        for (i, (id, info)) in self.infos.iter().enumerate() {
            check_name(file, || format!("infos[{i}][0]"), id)?;
            if let Some(name) = &info.name {
                check_name(file, || format!("infos[{i}][1].name"), name)?;
            }
        }
        Ok(())
    }
}

/// A name stands inside a command on one line, so it has no control characters.
fn check_name(file: &str, place: impl Fn() -> String, name: &str) -> Result<(), GameError> {
    if name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(GameError::Invalid {
        file: file.into(),
        place: place(),
        expected: format!("a name of at most {MAX_NAME} characters without control characters"),
        found: quoted(name),
    })
}
