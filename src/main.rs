//! The binary: run the command line and hand its exit code to the system.
//!
//! Not the command line itself: that is `cli`, so that tests and other programs can use the library alone.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(veriharness::cli::main())
}
