//! One play of a game: the public face of the environment.
//!
//! Not a gate: it takes commands one by one and judges nothing but admissibility (`plan.rs` judges plans).

use std::cell::OnceCell;
use std::sync::Arc;

use super::error::GameError;
use super::game::Game;
use super::logic::{Action, Listing, MAX_WORK, actions, effects};
use super::message;
use super::places::Places;
use super::quest::Progress;
use super::state::{Id, State};
use super::text::View;

/// What the text of the last command needs to know of the state before it.
#[derive(Clone, Debug)]
pub(super) struct Before {
    pub(super) room: Option<Id>,
    pub(super) score: i64,
    /// Kept only in games whose text needs it.
    pub(super) state: Option<(State, Places)>,
}

/// What a command did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Points gained or lost by it.
    pub gained: i64,
    /// The game is now won.
    pub won: bool,
    /// The game is now lost.
    pub lost: bool,
}

/// A game in play. [`Game::start`] is the reset: it copies the start's state.
#[derive(Clone, Debug)]
pub struct Play<'g> {
    game: &'g Game,
    state: State,
    places: Places,
    progress: Progress,
    moves: u64,
    /// Made when first asked for: a search looks at many states whose list nobody reads.
    actions: OnceCell<Arc<Listing>>,
    last: Option<(Action, Before)>,
    fault: OnceCell<GameError>,
}

impl<'g> Play<'g> {
    pub(super) fn new(game: &'g Game) -> Self {
        Self {
            game,
            state: game.start.clone(),
            places: game.places.clone(),
            progress: Progress::start(&game.quests),
            moves: 0,
            actions: Arc::clone(&game.start_actions).into(),
            last: None,
            fault: OnceCell::new(),
        }
    }

    /// The game that is played.
    pub fn game(&self) -> &'g Game {
        self.game
    }

    /// The commands that are admissible now, in code-point order. As in TextWorld, the list goes on after the end.
    pub fn admissible(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.list().iter().map(|a| a.command.as_str())
    }

    /// Gives `command`, which must equal an admissible one; otherwise, and after the end, `None` and no change.
    pub fn step(&mut self, command: &str) -> Option<Outcome> {
        if self.done() {
            return None;
        }
        let at = self
            .list()
            .binary_search_by(|a| a.command.as_str().cmp(command))
            .ok()?;
        self.take(at)
    }

    /// Gives the command at `index` of the list.
    pub(super) fn take(&mut self, index: usize) -> Option<Outcome> {
        let action = self.list().get(index)?.clone();
        let rule = &self.game.rules[usize::from(action.rule)];
        let (added, removed) = effects(rule, &action.binding);
        let state = self
            .game
            .looks_back()
            .then(|| (self.state.clone(), self.places.clone()));
        let before = Before {
            room: self.view().room(),
            score: self.progress.score,
            state,
        };
        let gained_from = self.progress.score;
        self.last = Some((action, before));
        self.moves += 1;
        if !(added.is_empty() && removed.is_empty()) {
            self.state.apply(&added, &removed);
            self.places
                .follow(&added, &removed, |fact| self.game.is_holding(fact));
            self.actions = OnceCell::new();
        }
        // Judged even when nothing changed: an event may hold from the start, and a repeatable quest pays again.
        self.progress.update(&self.game.quests, &self.state);
        let gained = self.progress.score.saturating_sub(gained_from);
        Some(Outcome {
            gained,
            won: self.progress.won,
            lost: self.progress.lost,
        })
    }

    fn list(&self) -> &[Action] {
        &self.listing().actions
    }

    /// The list of commands and what it took to make it.
    pub(super) fn listing(&self) -> &Listing {
        self.actions.get_or_init(|| {
            let game = self.game;
            let list = actions(&game.rules, &game.kinds, &game.names, &self.state, &game.file);
            Arc::new(list.unwrap_or_else(|fault| {
                // Set at most once: the list is made once for a state, and an empty list leads nowhere.
                let _ = self.fault.set(fault);
                Listing {
                    actions: Vec::new(),
                    work: MAX_WORK,
                }
            }))
        })
    }

    /// Why the list of commands could not be made; the list is empty then.
    pub fn fault(&self) -> Option<&GameError> {
        self.list();
        self.fault.get()
    }

    /// Points so far.
    pub fn score(&self) -> i64 {
        self.progress.score
    }

    /// The game is won.
    pub fn won(&self) -> bool {
        self.progress.won
    }

    /// The game is lost.
    pub fn lost(&self) -> bool {
        self.progress.lost
    }

    /// The game is over.
    pub fn done(&self) -> bool {
        self.progress.won || self.progress.lost
    }

    /// Commands taken.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// The facts that hold, each as TextWorld writes it, sorted.
    pub fn facts(&self) -> Vec<String> {
        let mut facts: Vec<String> = self
            .state
            .facts()
            .iter()
            .map(|f| self.game.fact_text(f))
            .collect();
        facts.sort_unstable();
        facts
    }

    /// The room, as `look` tells it, without outer white space. After a loss it is the room as it was before the
    /// last command, which is what TextWorld reports: the story file ends before it tells anew.
    pub fn description(&self) -> String {
        self.reported().room_text().trim().to_owned()
    }

    /// `You are carrying: a cookie.` After a loss, as before the last command.
    pub fn inventory(&self) -> String {
        self.reported().inventory()
    }

    /// What the story file printed for the last command (or at the start), with the status line that its
    /// interpreter leaves at the end.
    pub fn feedback(&self) -> String {
        match &self.last {
            None => message::opening(&self.view()),
            Some((action, before)) => {
                message::feedback(&self.view(), action, before, &self.progress, self.moves)
            }
        }
    }

    /// [`Self::feedback`] for a reader: without the status line and outer white space.
    pub fn message(&self) -> String {
        let text = self.feedback();
        text.rfind("\n>")
            .map_or(text.as_str(), |end| &text[..end])
            .trim()
            .to_owned()
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whether `command` would change any fact.
    pub(super) fn changes(&self, index: usize) -> bool {
        self.list().get(index).is_some_and(|action| {
            let (added, removed) = effects(&self.game.rules[usize::from(action.rule)], &action.binding);
            !(added.is_empty() && removed.is_empty())
        })
    }

    /// Drops what only the text of the last command needs.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }

    fn reported(&self) -> View<'_> {
        match &self.last {
            Some((
                _,
                Before {
                    state: Some((state, places)),
                    ..
                },
            )) if self.progress.lost => View {
                game: self.game,
                state,
                places,
            },
            _ => self.view(),
        }
    }

    fn view(&self) -> View<'_> {
        View {
            game: self.game,
            state: &self.state,
            places: &self.places,
        }
    }
}
