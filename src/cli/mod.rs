//! The command line: one file per subcommand, and here what they share: exit codes, logs, warnings.
//!
//! Not the work itself: a subcommand turns flags into values and hands them on.

pub mod bench;
pub mod completions;
pub mod doctor;
pub mod game;
pub mod generate;
pub mod machine;
pub mod model;
pub mod open;
pub mod report;
mod selfcheck;
pub mod show;
pub mod study;
pub mod trace;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use std::collections::BTreeSet;
use std::io::Write;

/// Everything asked for was done.
pub const DONE: u8 = 0;
/// Finished, with failed rows or a failed verification.
pub const FAILED: u8 = 1;
/// A usage error, or something unexpected.
pub const UNEXPECTED: u8 = 2;
/// Stopped by Ctrl-C; what was committed is kept.
pub const INTERRUPTED: u8 = 130;

/// Variables that are read elsewhere than in a flag.
const OTHER_VARIABLES: [&str; 2] = ["VERIHARNESS_HOME", "VERIHARNESS_PYTHON"];

#[derive(Debug, Parser)]
#[command(
    name = "veriharness",
    version,
    about = "Run and study an LLM in a repair loop: model, validator and feedback in one process",
    after_help = "Exit codes: 0 done; 1 finished with failed rows or a failed verification; 2 usage or unexpected; \
                  130 on Ctrl-C.\nEvery flag can be set by a variable, shown beside it; VERIHARNESS_HOME moves the \
                  folder of models.",
    max_term_width = 100
)]
struct Cli {
    /// Say more on stderr (-v: progress of the engine; -vv: everything). RUST_LOG overrides it
    #[arg(short, long, global = true, action = ArgAction::Count, env = "VERIHARNESS_VERBOSE")]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a study, or resume it: the same command goes on where it stopped
    Study(study::StudyArgs),
    /// Tables of a run: success, contrasts, costs
    Report(report::ReportArgs),
    /// The rows of a run, or the transcript of one
    Show(show::ShowArgs),
    /// Check or export what a run has stored
    Trace(trace::TraceArgs),
    /// Models: list, pull, show, verify, logits
    Model(model::ModelArgs),
    /// Games: list, show, play, verify
    Game(game::GameArgs),
    /// One reply of a model, printed as it grows
    Generate(generate::GenerateArgs),
    /// How fast models are computed here; --policies: on a run's prompts
    Bench(bench::BenchArgs),
    /// What this machine has and what is missing
    Doctor(doctor::DoctorArgs),
    /// Shell completions, to stdout
    Completions(completions::CompletionsArgs),
}

/// Parses the process's arguments, runs, and returns its exit code. A closed pipe is success.
pub fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { UNEXPECTED } else { DONE };
            // Help to a closed pipe is not an error.
            let _ = error.print();
            return code;
        }
    };
    start_logs(cli.verbose);
    for name in unknown_variables(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())) {
        complain(&format!(
            "warning: {name} is set, but no flag or setting of that name exists"
        ));
    }
    let result = match cli.command {
        Command::Study(args) => study::run(args),
        Command::Report(args) => report::run(args),
        Command::Show(args) => show::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Model(args) => model::run(args),
        Command::Game(args) => game::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => completions::run(args, Cli::command()),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => DONE,
        Err(error) => {
            complain(&format!("error: {error:#}"));
            UNEXPECTED
        }
    }
}

/// One line to stderr; a closed one is not worth dying for.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

fn start_logs(verbose: u8) {
    let default = match verbose {
        0 => "error",
        1 => "veriharness=info,warn",
        _ => "veriharness=debug,info",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    // A second subscriber can exist only in tests that call `main` twice.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}

/// `VERIHARNESS_*` variables that nothing reads: most likely misspelt.
fn unknown_variables(set: impl Iterator<Item = String>) -> Vec<String> {
    fn collect(command: &clap::Command, known: &mut BTreeSet<String>) {
        known.extend(
            command
                .get_arguments()
                .filter_map(|arg| Some(arg.get_env()?.to_str()?.to_owned())),
        );
        command.get_subcommands().for_each(|sub| collect(sub, known));
    }
    let mut known: BTreeSet<String> = OTHER_VARIABLES.map(str::to_owned).into();
    collect(&Cli::command(), &mut known);
    let mut unknown: Vec<_> = set
        .filter(|name| name.starts_with("VERIHARNESS_") && !known.contains(name))
        .collect();
    unknown.sort();
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_variable() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments().filter(|arg| arg.get_long().is_some()) {
                let plain = matches!(arg.get_id().as_str(), "help" | "version" | "verbose");
                assert!(
                    plain || arg.get_env().is_some(),
                    "{} --{}",
                    command.get_name(),
                    arg.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn a_misspelt_variable_is_noticed_and_a_real_one_is_not() {
        let set = [
            "VERIHARNESS_MODLE",
            "VERIHARNESS_MODEL",
            "VERIHARNESS_HOME",
            "HOME",
        ]
        .map(str::to_owned);
        assert_eq!(unknown_variables(set.into_iter()), ["VERIHARNESS_MODLE"]);
    }
}
