//! One file per subcommand.

pub mod model;
