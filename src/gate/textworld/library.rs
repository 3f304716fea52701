//! The games that travel inside the binary, by name.
//!
//! Not a directory: a game of this list is found without a checkout; any other is opened by its path.

use std::path::Path;

use super::error::{GameError, quoted};
use super::game::Game;

macro_rules! games {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../../../games/textworld/", $name, ".json")))),*]
    };
}

#[rustfmt::skip]
const GAMES: &[(&str, &[u8])] = games!(
    "20261051" "20261052" "20261053" "20261054" "20261055" "20261056" "20261057" "20261058" "20261059" "20261060"
    "20261061" "20261062" "20261063" "20261064" "20261065" "20261066" "20261067" "20261068" "20261069" "20261070"
    "20261071" "20261072" "20261073" "20261074" "20261075" "20261076" "20261077" "20261078" "20261079" "20261080"
    "20261081" "20261082" "20261083" "20261084" "20261085" "20261086" "20261087" "20261088" "20261089" "20261090"
    "20261091" "20261092" "20261093" "20261094" "20261095" "20261096" "20261097" "20261098" "20261099" "20261100"
);

/// The names of the games, in ascending order.
pub fn names() -> impl ExactSizeIterator<Item = &'static str> + Clone {
    GAMES.iter().map(|(name, _)| *name)
}

/// Opens a game of the library by its name, or a `.json` file by its path.
///
/// # Errors
/// [`GameError::UnknownGame`] for a name that is neither; otherwise as [`Game::load`].
pub fn open(name_or_path: &str) -> Result<Game, GameError> {
    if let Some((name, bytes)) = GAMES.iter().find(|(name, _)| *name == name_or_path) {
        return Game::parse(bytes, name);
    }
    let path = Path::new(name_or_path);
    let is_path =
        path.extension().is_some_and(|e| e == "json") || path.components().count() > 1 || path.exists();
    if is_path {
        return Game::load(path);
    }
    let (first, last) = (
        GAMES.first().map_or("", |g| g.0),
        GAMES.last().map_or("", |g| g.0),
    );
    let hint = format!(
        "the library has {} games, {first} to {last}; a file is named by a path to its .json",
        GAMES.len()
    );
    Err(GameError::UnknownGame {
        name: quoted(name_or_path).trim_matches('`').into(),
        hint,
    })
}
