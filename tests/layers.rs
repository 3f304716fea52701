//! Claim: the modules form the layers of the design, and keep its other rules of form.
//!
//! A module imports only from lower layers, and from some of those only named items; the table below is the list.
//! What it cannot see: names that a macro spells, and what a lower module re-exports.

#![allow(clippy::unwrap_used)] // A test may panic.

#[path = "layers/cases.rs"]
mod cases;
#[path = "layers/source.rs"]
mod source;

use source::{Token, paths, tokens};
use std::path::Path;

/// One module of the crate's root.
struct Layer {
    name: &'static str,
    level: usize,
    /// Of the whole crate it imports only these modules; `None`: any of a lower level.
    only: Option<&'static [&'static str]>,
    /// Of these modules it imports only these items.
    items: &'static [(&'static str, &'static [&'static str])],
}

const fn layer(name: &'static str, level: usize) -> Layer {
    Layer {
        name,
        level,
        only: None,
        items: &[],
    }
}

/// In the order of `lib.rs`.
const LAYERS: [Layer; 15] = [
    layer("rng", 0),
    Layer {
        only: Some(&["rng"]),
        ..layer("stats", 0)
    },
    layer("model", 1),
    layer("backend", 2),
    layer("quantize", 3),
    layer("engine", 3),
    Layer {
        items: &[("engine", &["Completion", "StopReason"])],
        ..layer("candidate", 4)
    },
    Layer {
        items: &[("engine", &[])],
        ..layer("gate", 5)
    },
    Layer {
        items: &[("gate", &["Failure", "Expected"])],
        ..layer("feedback", 6)
    },
    Layer {
        items: &[("gate", &["TaskView"])],
        ..layer("prompt", 7)
    },
    layer("trace", 8),
    layer("agent", 9),
    layer("study", 10),
    Layer {
        only: Some(&["trace", "stats"]),
        ..layer("report", 11)
    },
    layer("cli", 12),
];

/// The binary, above them all.
const MAIN: Layer = layer("main", 13);

/// Where `unsafe` may stand.
const UNSAFE: [&str; 4] = ["model", "backend::cpu", "backend::cuda", "gate::sandbox"];

/// Names that say nothing about what is inside.
const VAGUE: [&str; 5] = ["utils", "common", "helpers", "core", "types"];

const MOST_LINES: usize = 400;

/// Files that may be longer, each with its reason.
const LONGER: [(&str, &str); 0] = [];

/// The module of a file: `src/gate/textworld/mod.rs` is `gate, textworld`, `src/lib.rs` the empty path.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    let mut module: Vec<String> = path.split('/').map(String::from).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    module
}

/// Why `from` may not name `segments` (from the crate's root), or `None` when it may.
fn refusal(from: &Layer, segments: &[String]) -> Option<String> {
    let first = segments.first().map_or("*", String::as_str);
    if first == from.name {
        return None;
    }
    let Some(to) = LAYERS.iter().find(|layer| layer.name == first) else {
        return Some(format!(
            "a module by its name, one of {}",
            LAYERS.map(|l| l.name).join(", ")
        ));
    };
    if let Some(only) = from.only {
        return (!only.contains(&to.name)).then(|| format!("of the crate only {}", only.join(", ")));
    }
    if to.level >= from.level {
        let lower: Vec<&str> = LAYERS
            .iter()
            .filter(|l| l.level < from.level)
            .map(|l| l.name)
            .collect();
        return Some(format!("only lower layers: {}", lower.join(", ")));
    }
    let (_, items) = from.items.iter().find(|(module, _)| *module == to.name)?;
    let item = segments.get(1).map_or("", String::as_str);
    (!items.contains(&item)).then(|| match items {
        [] => format!("of {} nothing", to.name),
        items => format!("of {} only {}", to.name, items.join(", ")),
    })
}

/// The forbidden arrows of one file.
fn arrows(file: &str, tokens: &[Token]) -> Vec<String> {
    let module = module_of(file);
    let from = match module.first().map(String::as_str) {
        None => return Vec::new(),
        Some("main") => &MAIN,
        Some(name) => match LAYERS.iter().find(|layer| layer.name == name) {
            Some(layer) => layer,
            None => {
                return vec![format!(
                    "{file}:1: found module `{name}`, which is not in the table of layers"
                )];
            }
        },
    };
    let found = paths(tokens, &module).into_iter().filter_map(|path| {
        let allowed = refusal(from, &path.segments)?;
        let (line, named) = (path.line, path.segments.join("::"));
        Some(format!(
            "{file}:{line}: `{}` names `crate::{named}`; allowed: {allowed}",
            from.name
        ))
    });
    found.collect()
}

/// What else is wrong with the form of one file.
fn form(file: &str, text: &str, tokens: &[Token]) -> Vec<String> {
    let module = module_of(file).join("::");
    let mut found = Vec::new();
    let inside = |place: &&str| module == **place || module.starts_with(&format!("{place}::"));
    if !UNSAFE.iter().any(inside) {
        for token in tokens.iter().filter(|token| token.text == "unsafe") {
            let (line, places) = (token.line, UNSAFE.join(", "));
            found.push(format!(
                "{file}:{line}: found `unsafe` in `{module}`; allowed: only in {places}"
            ));
        }
    }
    let declared = tokens
        .windows(2)
        .filter(|pair| pair[0].text == "mod")
        .map(|pair| (&pair[1].text, pair[1].line));
    for (name, line) in declared.filter(|(name, _)| VAGUE.contains(&name.as_str())) {
        found.push(format!(
            "{file}:{line}: found module `{name}`; allowed: a name that says what it owns"
        ));
    }
    // A file without any code is a place held for a module to come; `main.rs` is no module.
    let docs = text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .filter(|line| line.trim() != "//!")
        .count();
    if docs < 2 && !tokens.is_empty() && module != "main" {
        found.push(format!(
            "{file}:1: found {docs} lines of `//!` at the top; allowed: 2 or more"
        ));
    }
    let lines = text.lines().count();
    if lines > MOST_LINES && !LONGER.iter().any(|(longer, _)| *longer == file) {
        found.push(format!(
            "{file}:{lines}: found {lines} lines; allowed: {MOST_LINES}"
        ));
    }
    found
}

/// All findings about one file.
fn check(file: &str, text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let mut found = arrows(file, &tokens);
    found.extend(form(file, text, &tokens));
    found
}

/// Every `.rs` file below `dir`, as `src/…` with its text.
fn read(dir: &Path, name: &str, files: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            read(&entry.path(), &name, files);
        } else if name.ends_with(".rs") {
            files.push((name, std::fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

#[test]
fn the_crate_keeps_its_layers() {
    let mut files = Vec::new();
    read(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        "src",
        &mut files,
    );
    assert!(
        files.len() > LAYERS.len(),
        "found only {} source files",
        files.len()
    );
    let found: Vec<String> = files.iter().flat_map(|(file, text)| check(file, text)).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn lib_names_the_layers_in_order() {
    let tokens = tokens(include_str!("../src/lib.rs"));
    let modules = tokens
        .windows(2)
        .filter(|pair| pair[0].text == "mod")
        .map(|pair| pair[1].text.as_str());
    assert_eq!(modules.collect::<Vec<_>>(), LAYERS.map(|layer| layer.name));
    assert!(LAYERS.windows(2).all(|pair| pair[0].level <= pair[1].level));
}
