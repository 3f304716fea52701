//! TextWorld's `.json` games, natively: the logic from the file's own rules, the text of TextWorld 1.7.0's story
//! files byte for byte.
//!
//! Not the generator, and no Python or story file: a game file is enough.

mod alias;
mod clarify;
mod compile;
mod declare;
mod error;
mod file;
mod game;
pub mod golden;
mod grammar;
mod lexer;
pub mod library;
mod link;
mod logic;
mod message;
mod places;
mod plan;
mod play;
mod quest;
mod rules;
mod search;
mod state;
mod template;
mod text;

pub use error::GameError;
pub use file::MAX_FILE_BYTES;
pub use game::Game;
pub use plan::{GATE, PlanVerdict, PostHoc, judge, no_plan, view};
pub use play::{Outcome, Play};
pub use search::{Search, shortest_win};
