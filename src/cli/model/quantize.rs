//! `model quantize`: a model to a folder with 4-bit AWQ weights, and what that loses.
//!
//! Not the work (`crate::quantize`). It is calibrated and measured on the first prompts of the paper's games, different
//! ones for the two.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::Bar;
use crate::agent::RowLoop;
use crate::backend::cpu::{CpuBackend, Options};
use crate::cli::complain;
use crate::model::{self, Model};
use crate::quantize::compare::{Losses, compare};
use crate::quantize::{Calibration, write};
use crate::study::file::Study;
use crate::study::plan::Plan;

/// Prompts that scales are searched on, and prompts that losses are measured on.
const CALIBRATED: usize = 24;
const MEASURED: usize = 8;

/// Arguments of `model quantize`.
#[derive(Debug, Args)]
pub struct QuantizeArgs {
    /// Name of a model, or path of a .gguf file or a model's folder
    model: String,
    /// The folder to write; it must not be there, or be empty
    #[arg(long, env = "VERIHARNESS_OUT", value_name = "DIR")]
    out: PathBuf,
    /// How weights are rounded
    #[arg(long, env = "VERIHARNESS_METHOD", value_enum, default_value_t = Method::Awq)]
    method: Method,
    /// Inputs that share a scale: 32, 64 or 128
    #[arg(long, env = "VERIHARNESS_GROUP", value_name = "N", default_value_t = 128)]
    group: usize,
    /// As JSON
    #[arg(long, env = "VERIHARNESS_JSON")]
    json: bool,
}

/// How weights are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Method {
    /// To the nearest step
    Rtn,
    /// The same after scaling the inputs so that little is lost on the study's prompts
    Awq,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Rtn => "rtn",
            Self::Awq => "awq",
        }
    }
}

/// Quantises, measures and prints.
///
/// # Errors
/// The model cannot be opened, a shape does not fit, or the folder is not empty.
pub fn quantize(args: &QuantizeArgs) -> anyhow::Result<u8> {
    ensure!(
        [32, 64, 128].contains(&args.group),
        "--group: expected 32, 64 or 128, found {}",
        args.group
    );
    let taken = std::fs::read_dir(&args.out).is_ok_and(|mut entries| entries.next().is_some());
    if taken || args.out.is_file() {
        bail!(
            "--out {}: expected a folder that is empty or not there",
            args.out.display()
        );
    }
    let started = Instant::now();
    let located = model::obtain(&args.model, &mut Bar::default())?;
    let model = Model::open(&located.path)?;
    let mut source = CpuBackend::load(&model, Options::default())?;
    let (calibrated, measured) = prompts(&model)?;
    let calibration = match args.method {
        Method::Rtn => None,
        Method::Awq => Some(Calibration::on(&model, args.group, &mut source, &calibrated)?),
    };
    let mut losses = Vec::new();
    if args.method == Method::Awq {
        let plain = Part::beside(&args.out, "rtn")?;
        write(&model, &plain.0, args.group, None, &mut |_| ())?;
        losses.push((Method::Rtn, lost(&mut source, &plain.0, &measured)?));
    }
    let part = Part::beside(&args.out, "part")?;
    let layers = model.config.layers;
    let mut last = None;
    let gains = write(&model, &part.0, args.group, calibration.as_ref(), &mut |layer| {
        if last != Some(layer) && layer.is_multiple_of(4) {
            complain(&format!("layer {} of {layers}", layer + 1));
        }
        last = Some(layer);
    })?;
    losses.push((args.method, lost(&mut source, &part.0, &measured)?));
    part.keep(&args.out)?;

    let share = gains.iter().map(|gain| gain.share).sum::<f64>() / gains.len().max(1) as f64;
    let share = (!gains.is_empty()).then_some(share);
    let mut out = std::io::stdout().lock();
    if args.json {
        let methods = losses
            .iter()
            .map(|(method, losses)| json!({ "method": method.name(), "losses": losses }));
        let document = json!({
            "out": args.out, "group": args.group, "methods": methods.collect::<Vec<_>>(), "error_share": share,
            "seconds": started.elapsed().as_secs_f64(),
        });
        writeln!(out, "{document:#}")?;
        return Ok(0);
    }
    writeln!(
        out,
        "| method | KL, nats | logits, mean | largest | same likeliest |"
    )?;
    writeln!(
        out,
        "| ------ | -------: | -----------: | ------: | -------------: |"
    )?;
    for (method, losses) in &losses {
        let agree = 100.0 * losses.agree as f64 / losses.positions.max(1) as f64;
        let (
            name,
            Losses {
                kl, mean, largest, ..
            },
        ) = (method.name(), losses);
        writeln!(
            out,
            "| {name:<6} | {kl:>8.4} | {mean:>12.4} | {largest:>7.2} | {agree:>12.1} % |"
        )?;
    }
    let positions = losses.first().map_or(0, |(_, losses)| losses.positions);
    writeln!(
        out,
        "\nAgainst the source, over {positions} positions of {MEASURED} prompts that were not calibrated on."
    )?;
    if let Some(share) = share {
        writeln!(
            out,
            "The scales leave {:.0} % of rounding's square error in the layers' outputs.",
            100.0 * share
        )?;
    }
    writeln!(
        out,
        "{}  ({:.0} s)",
        args.out.display(),
        started.elapsed().as_secs_f64()
    )?;
    Ok(0)
}

/// Prompts in tokens.
type Prompts = Vec<Vec<u32>>;

/// The first prompts of the paper's games: some to calibrate on, others to measure on.
fn prompts(model: &Model) -> anyhow::Result<(Prompts, Prompts)> {
    let study = Study::open("replication", &["lane.0.policies=[\"RawDiag\"]".to_owned()])?;
    let mut all = Vec::new();
    for spec in Plan::new(study)?.rows.into_iter().take(CALIBRATED + MEASURED) {
        let first = RowLoop::new(spec, Vec::new())
            .first()
            .context("a row without a first prompt")?;
        let mut tokens = model.encode_chat(first.messages())?.tokens;
        tokens.truncate(model.config.context);
        all.push(tokens);
    }
    let measured = all.split_off(CALIBRATED.min(all.len()));
    Ok((all, measured))
}

/// What the model in a folder loses against the source.
fn lost(source: &mut CpuBackend, folder: &Path, prompts: &[Vec<u32>]) -> anyhow::Result<Losses> {
    let model = Model::open(folder)?;
    let mut backend = CpuBackend::load(&model, Options::default())?;
    Ok(compare(source, &mut backend, prompts)?)
}

/// A folder that is gone again unless it is kept.
struct Part(PathBuf);

impl Part {
    /// A new folder beside `out`.
    fn beside(out: &Path, suffix: &str) -> anyhow::Result<Self> {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.{suffix}", std::process::id()));
        let path = out.with_file_name(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self(path))
    }

    /// Gives it its name.
    fn keep(self, out: &Path) -> anyhow::Result<()> {
        // An empty folder of that name may be there.
        let _ = std::fs::remove_dir(out);
        std::fs::rename(&self.0, out).with_context(|| format!("cannot name the folder {}", out.display()))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Once kept there is nothing of this name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
