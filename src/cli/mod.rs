//! One file per subcommand.

pub mod game;
