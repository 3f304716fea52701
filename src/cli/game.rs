//! `game list | show | play | verify`: the tasks, by name or by path.
//!
//! Not a study: no model plays here.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::gate::textworld::golden::{Difference, verify};
use crate::gate::textworld::{Game, Play, Search, library, shortest_win};

/// Columns that texts are wrapped at.
const WIDTH: usize = 80;
/// States that a hint may look at: some seconds at most.
const HINT_STATES: usize = 100_000;
/// How a gzip file begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// States that `show` may look at to tell whether the game is short.
const SHOW_STATES: usize = 20_000;

/// Tasks: list, show, play and verify games.
#[derive(Debug, Args)]
pub struct GameArgs {
    #[command(subcommand)]
    command: GameCommand,
}

#[derive(Debug, Subcommand)]
enum GameCommand {
    /// The games of the library, one a line
    List,
    /// What a game is: objective, start, size, a shortest win
    Show {
        /// A name of the library, or a path to a TextWorld .json file
        game: String,
    },
    /// Play a game by hand
    Play {
        /// A name of the library, or a path to a TextWorld .json file
        game: String,
    },
    /// Compare a game with a recording of the real one; exit code 1 on any difference
    Verify {
        /// A name of the library, or a path to a TextWorld .json file
        game: String,
        /// The recording: JSON lines, plain or gzip
        #[arg(long, env = "VERIHARNESS_GOLDEN", value_name = "FILE")]
        golden: PathBuf,
    },
}

/// Runs the command and returns its exit code: 0 done, 1 a difference was found.
///
/// # Errors
/// A game or a recording that cannot be read, or output that cannot be written.
pub fn run(args: GameArgs) -> anyhow::Result<u8> {
    let mut out = std::io::stdout().lock();
    match args.command {
        GameCommand::List => list(&mut out),
        GameCommand::Show { game } => show(&library::open(&game)?, &mut out),
        GameCommand::Play { game } => play(&library::open(&game)?, std::io::stdin().lock(), &mut out),
        GameCommand::Verify { game, golden } => compare(&library::open(&game)?, &golden, &mut out),
    }
}

fn list(out: &mut impl Write) -> anyhow::Result<u8> {
    for name in library::names() {
        let game = library::open(name)?;
        let (rooms, things, _) = game.size();
        let steps = game
            .walkthrough()
            .map_or_else(|| "-".into(), |w| counted(w.len(), "command"));
        let (rooms, things) = (counted(rooms, "room"), counted(things, "thing"));
        writeln!(out, "{name}  {rooms}, {things}, solution of {steps}")?;
    }
    Ok(0)
}

fn show(game: &Game, out: &mut impl Write) -> anyhow::Result<u8> {
    let play = game.start();
    let (rooms, things, quests) = game.size();
    writeln!(out, "game       {}", game.file())?;
    let most = game
        .max_score()
        .map_or_else(|| "no limit".into(), |m| m.to_string());
    let (rooms, things) = (counted(rooms, "room"), counted(things, "thing"));
    let quests = counted(quests, "quest");
    writeln!(out, "size       {rooms}, {things}, {quests}; most points: {most}")?;
    let walkthrough = game
        .walkthrough()
        .map_or_else(|| "none in the file".into(), |w| w.join(", "));
    write!(out, "{}", wrapped(&format!("solution   {walkthrough}"), 11))?;
    let shortest = match shortest_win(&play, SHOW_STATES) {
        Search::Found(commands) => format!("{}: {}", counted(commands.len(), "command"), commands.join(", ")),
        Search::Impossible => "the game cannot be won".into(),
        Search::TooMany => format!("not found within {SHOW_STATES} states"),
    };
    write!(out, "{}", wrapped(&format!("shortest   {shortest}"), 11))?;
    tell_unmodelled(game, out)?;
    writeln!(
        out,
        "\n{}\n{}",
        wrapped(game.objective(), 0),
        wrapped(&play.description(), 0)
    )?;
    writeln!(out, "{}\nadmissible commands", wrapped(&play.inventory(), 0))?;
    print_commands(&play, out)?;
    Ok(0)
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn tell_unmodelled(game: &Game, out: &mut impl Write) -> anyhow::Result<()> {
    if !game.unmodelled().is_empty() {
        let note = format!(
            "text       Not all of it is exact. {}",
            game.unmodelled().join(" ")
        );
        write!(out, "{}", wrapped(&note, 11))?;
    }
    Ok(())
}

fn print_commands(play: &Play<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    for command in play.admissible() {
        writeln!(out, "  {command}")?;
    }
    Ok(())
}

fn play(game: &Game, input: impl BufRead, out: &mut impl Write) -> anyhow::Result<u8> {
    const HELP: &str = "`?` lists the admissible commands, `hint` the shortest win; `restart`, `quit`.";
    let mut play = game.start();
    tell_unmodelled(game, out)?;
    writeln!(out, "{}\n\n{HELP}\n", wrapped(game.objective(), 0).trim_end())?;
    write!(out, "{}\n> ", wrapped(&play.description(), 0))?;
    out.flush()?;
    for line in input.lines() {
        let line = line.context("standard input")?;
        match line.trim() {
            "" => {}
            "quit" | "exit" => return Ok(0),
            "?" | "help" => {
                print_commands(&play, out)?;
                writeln!(out, "{HELP}")?;
            }
            "restart" => {
                play = game.start();
                write!(out, "{}", wrapped(&play.description(), 0))?;
            }
            "hint" => write!(out, "{}", wrapped(&hint(&play), 0))?,
            command => match play.step(command) {
                Some(_) => write!(out, "{}", wrapped(told(&play.message()), 0))?,
                None if play.done() => writeln!(out, "The game is over: `restart` or `quit`.")?,
                None => writeln!(out, "Not admissible here; `?` lists what is.")?,
            },
        }
        if let Some(fault) = play.fault() {
            writeln!(out, "{fault}")?;
        }
        write!(out, "\n> ")?;
        out.flush()?;
    }
    writeln!(out)?;
    Ok(0)
}

/// The message without the story file's last question, which only its own interpreter can answer.
fn told(message: &str) -> &str {
    message
        .split("\n\nWould you like to RESTART")
        .next()
        .unwrap_or(message)
        .trim_end()
}

fn hint(play: &Play<'_>) -> String {
    if play.done() {
        return "The game is over.".into();
    }
    match shortest_win(play, HINT_STATES) {
        Search::Found(commands) => format!("{} (a shortest win: {})", commands[0], commands.join(", ")),
        Search::Impossible => "The game cannot be won from here.".into(),
        Search::TooMany => format!("No win within {HINT_STATES} states."),
    }
}

fn compare(game: &Game, golden: &Path, out: &mut impl Write) -> anyhow::Result<u8> {
    let name = golden.display().to_string();
    let file = std::fs::File::open(golden).with_context(|| name.clone())?;
    let mut file = std::io::BufReader::new(file);
    let packed = file.fill_buf().with_context(|| name.clone())?.starts_with(&GZIP);
    let reader: Box<dyn BufRead> = match packed {
        true => Box::new(std::io::BufReader::new(flate2::bufread::MultiGzDecoder::new(
            file,
        ))),
        false => Box::new(file),
    };
    let result = verify(game, reader, &name)?;
    writeln!(
        out,
        "{} steps compared, {} differ",
        result.compared, result.differ
    )?;
    for Difference {
        episode,
        step,
        field,
        expected,
        found,
    } in &result.differences
    {
        let episode = episode.map_or_else(|| "-".into(), |e| e.to_string());
        writeln!(
            out,
            "episode {episode}, step {step}, {field}\n  expected {expected}\n  found    {found}"
        )?;
    }
    Ok(u8::from(result.differ > 0 || !result.differences.is_empty()))
}

/// `text` with its lines broken at [`WIDTH`] columns, continued lines indented by `indent`; it ends in a newline.
fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            let width = word.trim_end().chars().count();
            if column > indent && column + width > WIDTH {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                column = indent;
            }
            out.push_str(word);
            column += word.chars().count();
        }
        out.push('\n');
    }
    out
}
