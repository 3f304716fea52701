//! The texts of a state, byte for byte as TextWorld 1.7.0's story files print them: room, inventory, lists.
//!
//! Not the answer to a command (`message.rs`), and never made unless asked for.

use super::game::Game;
use super::places::Places;
use super::rules::MAX_ARGUMENTS;
use super::state::{Fact, Id, NONE, State};
use super::template::{Test, World, render};

/// A state to be described.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) game: &'a Game,
    pub(super) state: &'a State,
    pub(super) places: &'a Places,
}

impl World for View<'_> {
    fn test(&self, test: &Test, me: Id) -> bool {
        match *test {
            Test::Open(of) => self.is(self.game.known.open, of.unwrap_or(me)),
            Test::Closed(of) => !self.is(self.game.known.open, of.unwrap_or(me)),
            Test::Locked(of) => self.is(self.game.known.locked, of.unwrap_or(me)),
            Test::Holds(of) => !self.places.children(of).is_empty(),
            Test::Empty(of) => self.places.children(of).is_empty(),
        }
    }

    fn list(&self, holder: Id) -> String {
        self.list_of(&self.places.children(holder))
    }

    fn name(&self, entity: Id) -> String {
        self.game.names[usize::from(entity)].clone()
    }
}

impl View<'_> {
    fn is(&self, predicate: Option<Id>, entity: Id) -> bool {
        let Some(predicate) = predicate else { return false };
        let mut args = [NONE; MAX_ARGUMENTS];
        args[0] = entity;
        self.state.holds(&Fact { predicate, args })
    }

    /// Whether `entity` is open.
    pub(super) fn is_open(&self, entity: Id) -> bool {
        self.is(self.game.known.open, entity)
    }

    /// The room that the player is in.
    pub(super) fn room(&self) -> Option<Id> {
        let (at, player) = (self.game.known.holding[0]?, self.game.known.player?);
        self.state.of(at, Some(player)).next().map(|f| f.args[1])
    }

    /// `a key`, `an apple`; the file's own article where it has one.
    fn with_article(&self, entity: Id) -> String {
        let name = &self.game.names[usize::from(entity)];
        match &self.game.entities[usize::from(entity)].indefinite {
            Some(article) if !article.is_empty() => format!("{article} {name}"),
            _ => {
                let vowel = name.chars().next().is_some_and(|c| "aeiouAEIOU".contains(c));
                format!("{} {name}", if vowel { "an" } else { "a" })
            }
        }
    }

    /// `the key`; doors are named without an article.
    pub(super) fn the(&self, entity: Id) -> String {
        let name = &self.game.names[usize::from(entity)];
        if self.game.is_a(entity, self.game.known.door) {
            return name.clone();
        }
        match &self.game.entities[usize::from(entity)].definite {
            Some(article) if !article.is_empty() => format!("{article} {name}"),
            _ => format!("the {name}"),
        }
    }

    /// `a key, a spork and an apple`.
    pub(super) fn list_of(&self, entities: &[Id]) -> String {
        let names: Vec<String> = entities.iter().map(|e| self.with_article(*e)).collect();
        match names.split_last() {
            None => String::new(),
            Some((only, [])) => only.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
        }
    }

    /// The description of an entity.
    pub(super) fn desc(&self, entity: Id) -> String {
        render(&self.game.entities[usize::from(entity)].desc, self, entity)
    }

    /// The portable objects on the floor of `room`.
    pub(super) fn floor(&self, room: Id) -> Vec<Id> {
        let mut things = self.places.children(room);
        things.retain(|e| self.game.is_a(*e, self.game.known.object));
        things
    }

    /// `-= Scullery =-`, the room's text and what lies on the floor.
    pub(super) fn room_text(&self) -> String {
        let Some(room) = self.room() else {
            return String::new();
        };
        let mut text = format!("{}\n{}", self.title_of(Some(room)), self.desc(room));
        let floor = self.floor(room);
        if !floor.is_empty() {
            text.push_str(&format!("\n\nThere is {} on the floor.", self.list_of(&floor)));
        }
        text
    }

    /// `-= Scullery =-`.
    pub(super) fn title_of(&self, room: Option<Id>) -> String {
        let name = room.map(|room| title_case(&self.game.names[usize::from(room)]));
        format!("-= {} =-", name.unwrap_or_default())
    }

    /// `You are carrying: a cookie.`
    pub(super) fn inventory(&self) -> String {
        let carried = self
            .game
            .known
            .inventory
            .map(|i| self.places.children(i))
            .unwrap_or_default();
        if carried.is_empty() {
            return "You are carrying nothing.".into();
        }
        format!("You are carrying: {}.", self.list_of(&carried))
    }
}

/// The first letter of every run of letters in upper case, the others in lower case: `dish-pit` is `Dish-Pit`.
fn title_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut inside = false;
    for c in name.chars() {
        if inside {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        inside = c.is_alphabetic();
    }
    out
}

/// A number in words, as Inform prints a score: `one`, `twenty-one`, `one hundred and five`; digits from 1000 on.
pub(super) fn in_words(n: u64) -> String {
    const ONES: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 10] = [
        "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
    ];
    match n {
        0..=19 => ONES[n as usize].into(),
        20..=99 if n.is_multiple_of(10) => TENS[n as usize / 10].into(),
        20..=99 => format!("{}-{}", TENS[n as usize / 10], ONES[n as usize % 10]),
        100..=999 if n.is_multiple_of(100) => format!("{} hundred", ONES[n as usize / 100]),
        100..=999 => format!("{} hundred and {}", ONES[n as usize / 100], in_words(n % 100)),
        _ => n.to_string(),
    }
}
