//! The check must be able to fail: sources that break a rule, and sources that only look as if they did.
//!
//! Not the crate's own files: each source is a string that stands where `file` says.

use super::{MOST_LINES, arrows, check, source::tokens};

/// The lines and paths of the findings that a source must give.
type Lines = &'static [(usize, &'static str)];

/// Each source stands in `file` and must give exactly these findings, each named by line and path.
#[test]
fn forbidden_sources_are_found() {
    let cases: &[(&str, &str, Lines)] = &[
        (
            "src/rng.rs",
            "use crate::stats::holm;",
            &[(1, "crate::stats::holm")],
        ),
        (
            "src/stats/holm.rs",
            "use crate::model::X;\nuse crate::rng::value;",
            &[(1, "crate::model::X")],
        ),
        (
            "src/model/mod.rs",
            "fn f() -> crate::engine::X { loop {} }",
            &[(1, "crate::engine::X")],
        ),
        // Groups, nested and over lines; each leaf has its own line.
        (
            "src/backend/mod.rs",
            "use crate::{\n    model::{chat::{self, Role}, X as Y},\n    cli::{a::{b, c}, *},\n    rng,\n};",
            &[
                (3, "crate::cli::a::b"),
                (3, "crate::cli::a::c"),
                (3, "crate::cli::*"),
            ],
        ),
        (
            "src/engine/a/b.rs",
            "use super::super::super::gate::X;",
            &[(1, "crate::gate::X")],
        ),
        (
            "src/engine/a/b.rs",
            "use super::super::{x, super::gate::X};",
            &[(1, "crate::gate::X")],
        ),
        (
            "src/engine/a.rs",
            "mod t { mod u { use super::super::super::super::agent::f; } }",
            &[(1, "crate::agent::f")],
        ),
        (
            "src/engine/mod.rs",
            "mod t { use super::*; }\nuse super::trace::X;",
            &[(2, "crate::trace::X")],
        ),
        (
            "src/engine/a.rs",
            "use self::super::super::study;",
            &[(1, "crate::study")],
        ),
        // The root itself hides what is taken from it.
        ("src/engine/mod.rs", "use super::*;", &[(1, "crate::*")]),
        ("src/engine/mod.rs", "use crate as c;", &[(1, "crate::")]),
        ("src/engine/mod.rs", "use crate::{self as c};", &[(1, "crate::")]),
        (
            "src/engine/mod.rs",
            "use ::veriharness::report::X;",
            &[(1, "crate::report::X")],
        ),
        (
            "src/engine/mod.rs",
            "macro_rules! m { () => { $crate::cli::f() } }",
            &[(1, "crate::cli::f")],
        ),
        // Expressions, types, visibility, attributes.
        (
            "src/trace/a.rs",
            "fn f() { g::<crate::agent::A>(crate::study::h::<u8>()); }",
            &[(1, "crate::agent::A"), (1, "crate::study::h")],
        ),
        (
            "src/trace/a.rs",
            "#[serde(with = \"x\")]\npub(in crate::trace) struct S(crate::cli::T);",
            &[(2, "crate::cli::T")],
        ),
        // Narrowings.
        (
            "src/candidate/mod.rs",
            "use crate::engine::{Completion, Engine, StopReason};",
            &[(1, "crate::engine::Engine")],
        ),
        (
            "src/candidate/mod.rs",
            "use crate::engine;\nuse crate::engine::*;",
            &[(1, "crate::engine"), (2, "crate::engine::*")],
        ),
        (
            "src/gate/mod.rs",
            "use crate::engine::Completion;",
            &[(1, "crate::engine::Completion")],
        ),
        (
            "src/feedback/raw.rs",
            "use crate::gate::{Expected, Failure, GateResult};",
            &[(1, "crate::gate::GateResult")],
        ),
        (
            "src/feedback/raw.rs",
            "fn f(e: &crate::gate::humaneval::Failure) {}",
            &[(1, "crate::gate::humaneval::Failure")],
        ),
        (
            "src/prompt/paper.rs",
            "use crate::gate::{TaskView, Failure};",
            &[(1, "crate::gate::Failure")],
        ),
        (
            "src/report/mod.rs",
            "use crate::{rng, stats, trace::X};",
            &[(1, "crate::rng")],
        ),
        // Modules outside the table.
        (
            "src/engine/mod.rs",
            "use crate::shared::X;",
            &[(1, "crate::shared::X")],
        ),
        ("src/shared.rs", "", &[(1, "`shared`")]),
        (
            "src/main.rs",
            "use veriharness::nothing::X;",
            &[(1, "crate::nothing::X")],
        ),
        // The lexer's traps: what follows them is still read.
        (
            "src/rng.rs",
            "const A: &str = r#\"\"\" /*\"#; const B: char = '\"'; use crate::cli;",
            &[(1, "crate::cli")],
        ),
        (
            "src/rng.rs",
            "fn f<'a>(x: &'a u8) {}\nconst Q: [u8; 2] = [b'\\'', b'\"'];\nuse crate::cli;",
            &[(3, "crate::cli")],
        ),
        (
            "src/rng.rs",
            "/* /* */ use crate::a; */ use crate::cli; // use crate::b;",
            &[(1, "crate::cli")],
        ),
        (
            "src/rng.rs",
            "const S: &str = \"\\\"\n\"; use crate::r#cli;",
            &[(2, "crate::cli")],
        ),
    ];
    for (file, source, expected) in cases {
        let found = arrows(file, &tokens(source));
        assert_eq!(found.len(), expected.len(), "{source}: {found:#?}");
        for (found, (line, named)) in found.iter().zip(*expected) {
            assert!(
                found.starts_with(&format!("{file}:{line}: ")),
                "{source}: {found}, expected line {line}"
            );
            let quoted = if named.contains('`') {
                (*named).into()
            } else {
                format!("names `{named}`; allowed: ")
            };
            assert!(found.contains(&quoted), "{source}: {found}, expected {named}");
        }
    }
}

#[test]
fn allowed_sources_pass() {
    for (file, source) in [
        (
            "src/stats/holm.rs",
            "use super::Interval;\nuse super::super::rng;\nuse crate::stats::paired;",
        ),
        (
            "src/feedback/raw.rs",
            "fn f() { let _ = crate::gate::Expected::Unknown; }",
        ),
        (
            "src/candidate/mod.rs",
            "use crate::{engine::Completion as C, model::X};\n#[cfg(test)] mod tests { use super::*; }",
        ),
        (
            "src/agent/mod.rs",
            "use crate::{engine::Engine, gate::{self, humaneval::Hidden}, trace::*};",
        ),
        (
            "src/gate/a.rs",
            "/// ```\n/// use crate::engine::Engine;\n/// ```\nfn f() { g(\"crate::cli::x\", 'c'); /* super::super::cli::x */ }",
        ),
        (
            "src/gate/a.rs",
            "//! crate::cli::x\nfn f(self) -> Self { self.x; let crates = b\"crate::cli::x\"; crates }",
        ),
        (
            "src/main.rs",
            "use veriharness::cli::run;\nfn main() -> veriharness::engine::X { run() }",
        ),
        ("src/lib.rs", "pub use crate::cli::run;"),
    ] {
        let found = arrows(file, &tokens(source));
        assert!(found.is_empty(), "{source}: {found:#?}");
    }
}

#[test]
fn bad_form_is_found() {
    let docs = "//! What it is.\n//!\n//! What it is not.\n";
    let long = format!("{docs}{}", "const X: u8 = 0;\n".repeat(MOST_LINES));
    for (file, source, finding) in [
        (
            "src/engine/mod.rs",
            format!("{docs}fn f() {{ unsafe {{ g() }} }}"),
            "src/engine/mod.rs:4: found `unsafe`",
        ),
        (
            "src/backend/mod.rs",
            format!("{docs}unsafe fn f() {{}}"),
            "src/backend/mod.rs:4: found `unsafe`",
        ),
        (
            "src/backend/cpux.rs",
            format!("{docs}unsafe fn f() {{}}"),
            "src/backend/cpux.rs:4: found `unsafe`",
        ),
        (
            "src/gate/mod.rs",
            format!("{docs}pub mod helpers;"),
            "src/gate/mod.rs:4: found module `helpers`",
        ),
        (
            "src/gate/mod.rs",
            format!("{docs}mod types {{}}"),
            "src/gate/mod.rs:4: found module `types`",
        ),
        (
            "src/gate/mod.rs",
            "//! One line.\n//!\nfn f() {}".into(),
            "src/gate/mod.rs:1: found 1 lines of `//!`",
        ),
        (
            "src/gate/mod.rs",
            "use std::fmt;".into(),
            "src/gate/mod.rs:1: found 0 lines of `//!`",
        ),
        (
            "src/gate/mod.rs",
            long,
            "src/gate/mod.rs:403: found 403 lines; allowed: 400",
        ),
    ] {
        let found = check(file, &source);
        assert!(
            found.len() == 1 && found[0].starts_with(finding),
            "{found:#?}, expected {finding}"
        );
        assert!(found[0].contains("; allowed: "), "{found:#?}");
    }
    for (file, source) in [
        ("src/model/weights.rs", format!("{docs}unsafe fn f() {{}}")),
        (
            "src/backend/cuda/gemm.rs",
            format!("{docs}fn f() {{ unsafe {{}} }}"),
        ),
        (
            "src/engine/mod.rs",
            format!("{docs}#![allow(unsafe_code)] // unsafe\n/* mod types; */"),
        ),
        ("src/engine/mod.rs", "//! A place held.".into()),
    ] {
        assert_eq!(check(file, &source), Vec::<String>::new(), "{source}");
    }
}
