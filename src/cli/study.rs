//! `study [STUDY]`: run a study or resume it, and end with its tables.
//!
//! Not the driver (`study::run`): flags become a plan, a run folder and an engine; then it is handed over.

use super::{machine, open};
use crate::feedback::Policy;
use crate::study::file::Study;
use crate::study::plan::{Plan, Selection};
use crate::study::progress::Display;
use crate::study::run::{Settings, Summary, run as drive};
use crate::trace::{Header, PROGRAM, PlannedRow, Trace};
use anyhow::Context;
use clap::Args;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Flags of `study`.
#[derive(Debug, Args)]
pub struct StudyArgs {
    /// A study that comes with the program (replication, quick, primary), or a file
    #[arg(default_value = "replication", env = "VERIHARNESS_STUDY")]
    study: String,
    /// Model by name (see `model list`), a .gguf file or a model's folder, or scripted:EXPORT.jsonl to play back a
    /// recorded run
    #[arg(long, env = "VERIHARNESS_MODEL")]
    model: Option<String>,
    /// Run only rows of these policies: RawDiag, LocObs, SameNL, TypedFields
    #[arg(long, env = "VERIHARNESS_POLICY", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// Run only rows of these games; A..B is a range
    #[arg(long, env = "VERIHARNESS_GAMES", value_delimiter = ',')]
    games: Vec<String>,
    /// Run only rows of these budgets
    #[arg(long, env = "VERIHARNESS_BUDGET", value_delimiter = ',')]
    budget: Vec<u32>,
    /// Run only rows of these inference seeds
    #[arg(long, env = "VERIHARNESS_SEED", value_delimiter = ',')]
    seed: Vec<u64>,
    /// Run only the first N of the selected rows
    #[arg(long, env = "VERIHARNESS_LIMIT", value_name = "N")]
    limit: Option<usize>,
    /// Rows in work at once
    #[arg(long, env = "VERIHARNESS_CONCURRENCY", default_value_t = 8, value_name = "N")]
    concurrency: usize,
    /// Change a value of the study (a.b=v, lane.0.budgets=[2,4]); the result is another run
    #[arg(long, env = "VERIHARNESS_SET", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Run rows again that ended in an error; their old attempts are kept
    #[arg(long, env = "VERIHARNESS_RETRY_ERRORS")]
    retry_errors: bool,
    /// Start over: the run's folder is set aside under a new name
    #[arg(long, env = "VERIHARNESS_FRESH")]
    fresh: bool,
    /// Say what would be run, and load no model
    #[arg(long, env = "VERIHARNESS_DRY_RUN")]
    dry_run: bool,
    /// Folder of runs
    #[arg(long, env = "VERIHARNESS_RUNS", default_value = "runs", value_name = "DIR")]
    runs: PathBuf,
    #[command(flatten)]
    backend: open::BackendArgs,
}

/// Runs the study.
///
/// # Errors
/// When it cannot start, or the trace fails on the way.
pub fn run(args: StudyArgs) -> anyhow::Result<u8> {
    let mut study = Study::open(&args.study, &args.set)?;
    if let Some(model) = &args.model {
        study.model.clone_from(model);
    }
    let plan = Plan::new(study)?;
    let selection = Selection {
        policies: args.policy.clone(),
        games: args.games.clone(),
        budgets: args.budget.clone(),
        seeds: args.seed.clone(),
        limit: args.limit,
    };
    let rows = plan.select(&selection)?;
    let dir = args
        .runs
        .join(run_name(&plan.study, &args.backend.label(), &args.set));
    if args.dry_run {
        return dry_run(&plan, &rows, &dir);
    }

    let mut opened = open::engine(&plan.study.model, &args.backend, args.concurrency)?;
    for row in &rows {
        opened.engine.prepare(&row.sampling)?;
    }
    // Only from here on is there a commit to wait for; before, a signal ends the process, and a pull resumes.
    let stop = stop_on_signal("stopping after the commit in progress; once more stops at once")?;
    let header = Header {
        study: plan.study.name.clone(),
        study_sha256: plan.study.sha256(),
        study_toml: plan.study.to_toml(),
        identity: opened.engine.identity().clone(),
        model_source: opened.source,
        schema_sha256: plan.study.schema().map(|schema| schema.sha256()),
        tasks: plan.tasks.clone(),
    };
    if args.fresh {
        set_aside(&dir)?;
    }
    let planned: Vec<PlannedRow> = plan.rows.iter().map(|row| row.planned.clone()).collect();
    let mut trace = Trace::open(&dir, &header, &planned, &selection.to_string())?;
    write_manifest(&dir, &header)?;
    if args.retry_errors {
        let count = trace.retry_errors(rows.iter().map(|row| row.planned.key.as_str()))?;
        super::complain(&format!("{count} rows with errors will be run again"));
    }
    let started = Instant::now();
    let mut progress = Display::stderr();
    let settings = Settings {
        concurrency: args.concurrency,
    };
    let summary = drive(
        &rows,
        opened.engine.as_mut(),
        &mut trace,
        &mut progress,
        settings,
        &stop,
    )?;
    trace.end_session(started.elapsed().as_millis() as u64)?;
    drop(trace);
    finish(&dir, summary)
}

fn finish(dir: &Path, summary: Summary) -> anyhow::Result<u8> {
    if summary.stopped {
        super::complain(&format!(
            "stopped: {} of {} rows are done and kept in {}; the same command goes on from here",
            summary.done,
            summary.rows,
            dir.display()
        ));
        return Ok(super::INTERRUPTED);
    }
    super::report::print_brief_and_write(dir)?;
    if summary.errors > 0 {
        super::complain(&format!(
            "{} rows ended in an error; --retry-errors runs them again",
            summary.errors
        ));
        return Ok(super::FAILED);
    }
    Ok(super::DONE)
}

/// `<study>-<model>-<hash>`: the hash covers what was asked for beside the study's file, so that an edited file
/// meets its old run and is refused, instead of silently starting another.
fn run_name(study: &Study, backend: &[String], overrides: &[String]) -> String {
    let mut hash = Sha256::new();
    for part in [&study.name, &study.model]
        .into_iter()
        .chain(backend)
        .chain(overrides)
    {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let hash = format!("{:x}", hash.finalize());
    let name = study.model.trim_end_matches('/');
    let name = name.rsplit(['/', ':']).next().unwrap_or_default();
    let name = [".gguf", ".jsonl"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let model: String = name.chars().map(plain).collect();
    format!("{}-{model}-{}", study.name, &hash[..8])
}

/// Bytes of trace per call: 9 KiB were measured under the compact profile, and the paper's prompts are some three
/// times as long.
const DISK_PER_CALL: u64 = 32 * 1024;

fn dry_run(plan: &Plan, rows: &[Arc<crate::agent::RowSpec>], dir: &Path) -> anyhow::Result<u8> {
    let calls: u64 = rows.iter().map(|row| u64::from(row.planned.budget)).sum();
    let tokens: u64 = rows
        .iter()
        .map(|row| u64::from(row.planned.budget) * row.sampling.max_tokens as u64)
        .sum();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "study       {} (sha256 {})",
        plan.study.name,
        plan.study.sha256()
    )?;
    writeln!(out, "model       {}", plan.study.model)?;
    writeln!(out, "run folder  {}", dir.display())?;
    writeln!(out, "rows        {} of {}", rows.len(), plan.rows.len())?;
    writeln!(out, "calls       at most {calls}")?;
    writeln!(out, "new tokens  at most {tokens}")?;
    writeln!(
        out,
        "disk        about {} MiB",
        (calls * DISK_PER_CALL).div_ceil(1 << 20)
    )?;
    for row in rows {
        writeln!(out, "  {}", row.planned.key)?;
    }
    Ok(super::DONE)
}

/// The first signal sets the flag, which stops the work at its next good place, and says `first`; the second ends
/// the process.
pub(super) fn stop_on_signal(first: &'static str) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            #[expect(clippy::exit, reason = "the user asked twice")]
            std::process::exit(i32::from(super::INTERRUPTED));
        }
        super::complain(first);
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(stop)
}

/// Renames an old run's folder, so that starting over loses nothing.
fn set_aside(dir: &Path) -> anyhow::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let _held = crate::trace::lock::RunLock::take(dir)?;
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or("run");
    let free = (1..10_000)
        .map(|n| dir.with_file_name(format!("{name}.old{n}")))
        .find(|path| !path.exists());
    let to = free.context("too many set-aside runs")?;
    std::fs::rename(dir, &to)
        .with_context(|| format!("cannot rename {} to {}", dir.display(), to.display()))?;
    super::complain(&format!("the earlier run is now {}", to.display()));
    Ok(())
}

/// `manifest.json`: what the run is and where it was made, for readers without SQLite.
fn write_manifest(dir: &Path, header: &Header) -> anyhow::Result<()> {
    let path = dir.join("manifest.json");
    if path.exists() {
        return Ok(());
    }
    let memory = machine::memory_mib().map(|(total, _)| total);
    let manifest = json!({
        "header": header,
        "program": PROGRAM,
        "machine": {
            "system": machine::kernel(),
            "cpu": machine::cpu_name(),
            "cores": std::thread::available_parallelism().map_or(0, |n| n.get()),
            "memory_mib": memory,
        },
    });
    let new = dir.join(format!(".manifest.json.{}", std::process::id()));
    let written = std::fs::write(&new, format!("{manifest:#}\n")).and_then(|()| std::fs::rename(&new, &path));
    written.with_context(|| format!("cannot write {}", path.display()))
}
