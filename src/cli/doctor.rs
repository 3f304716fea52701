//! `doctor`: what this machine has for a study, and what is missing.
//!
//! Not a fix and not a benchmark. A missing thing is a line that says what it would be needed for.

use super::{machine, selfcheck};
use crate::backend::cpu::Isa;
use crate::backend::cuda::probe::probe;
use clap::Args;
use std::io::Write;
use std::process::{Command, Stdio};

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check instead that a GPU computes the same bits for a row alone, in pieces and in a batch, on noise in the shape of
    /// this model
    #[arg(long, env = "VERIHARNESS_GPU", value_name = "NAME", num_args = 0..=1, default_missing_value = "tiny-awq")]
    gpu: Option<String>,
}

/// Prints the report.
///
/// # Errors
/// When stdout cannot be written, or a GPU does not keep its promise.
pub fn run(args: DoctorArgs) -> anyhow::Result<u8> {
    let mut out = std::io::stdout().lock();
    if let Some(name) = &args.gpu {
        writeln!(out, "{}", selfcheck::run(name)?)?;
        return Ok(super::DONE);
    }
    writeln!(out, "veriharness {}", crate::trace::PROGRAM)?;
    let sections: [(&str, Vec<(String, String)>); 4] = [
        ("machine", machine_lines()),
        ("backends", backend_lines()),
        ("models", model_lines()),
        ("sandbox layers (for tasks that run code)", sandbox_lines()),
    ];
    for (title, lines) in sections {
        writeln!(out, "\n{title}")?;
        for (name, value) in lines {
            writeln!(out, "  {name:<22} {value}")?;
        }
    }
    Ok(super::DONE)
}

fn machine_lines() -> Vec<(String, String)> {
    let cores = std::thread::available_parallelism().map_or("unknown".into(), |n| n.to_string());
    let memory = machine::memory_mib().map_or("unknown".into(), |(total, free)| {
        format!(
            "{:.1} GiB, {:.1} available",
            total as f64 / 1024.0,
            free as f64 / 1024.0
        )
    });
    let flags = machine::cpu_flags();
    let telling = [
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512_vnni",
        "avx_vnni",
        "amx_int8",
        "asimd",
    ];
    let have: Vec<_> = telling
        .into_iter()
        .filter(|name| flags.iter().any(|flag| flag == name))
        .collect();
    vec![
        ("system".into(), machine::kernel()),
        ("cpu".into(), machine::cpu_name()),
        ("cores".into(), cores),
        (
            "features".into(),
            if have.is_empty() {
                "none known".into()
            } else {
                have.join(" ")
            },
        ),
        ("memory".into(), memory),
    ]
}

fn backend_lines() -> Vec<(String, String)> {
    let isas: Vec<_> = Isa::available().into_iter().rev().map(Isa::name).collect();
    let cpu = format!("on: {} (the same bits on each)", isas.join(", "));
    let candle = match cfg!(any(target_feature = "avx2", target_feature = "neon")) {
        true => "on, built for this kind of CPU's vector instructions",
        false => "on, the reference; built without vector instructions: slow",
    };
    let cuda = match probe() {
        Ok(found) => format!(
            "on: {}, {:.1} GB, {:.1} free; compute capability {}.{}, kernels {}; driver for CUDA {}.{}",
            found.name,
            found.memory as f64 / 1e9,
            found.free as f64 / 1e9,
            found.chip / 10,
            found.chip % 10,
            found.image,
            found.driver / 1000,
            found.driver % 1000 / 10,
        ),
        Err(absent) => format!("off: {absent}; models run on the CPU"),
    };
    vec![
        ("cpu".into(), cpu),
        ("candle".into(), candle.into()),
        ("cuda".into(), cuda),
    ]
}

fn model_lines() -> Vec<(String, String)> {
    let mut lines = vec![("folder".to_owned(), super::open::models_folder())];
    match super::open::models_present() {
        Ok(models) => lines.extend(models),
        Err(error) => lines.push(("manifests".into(), error.to_string())),
    }
    lines.push(("python3 with pip".into(), pip()));
    lines
}

fn pip() -> String {
    let run = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .stdin(Stdio::null())
        .output();
    match run {
        Ok(out) if out.status.success() => {
            let said = String::from_utf8_lossy(&out.stdout);
            said.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
        }
        Ok(_) => "python3 is here, its pip is not: models can come from the hub or from --model PATH".into(),
        Err(_) => "not found: models can come from the hub or from --model PATH".into(),
    }
}

fn sandbox_lines() -> Vec<(String, String)> {
    let lsm = machine::read_trimmed("/sys/kernel/security/lsm").unwrap_or_default();
    let landlock = match lsm.split(',').any(|name| name == "landlock") {
        true => "on",
        false => "not listed by this kernel",
    };
    let seccomp = machine::read_trimmed("/proc/sys/kernel/seccomp/actions_avail")
        .map_or("not available".to_owned(), |actions| format!("on: {actions}"));
    let namespaces = match machine::read_trimmed("/proc/sys/user/max_user_namespaces").as_deref() {
        None | Some("0") => "not available".to_owned(),
        Some(most) => format!("on, at most {most}"),
    };
    vec![
        ("landlock".into(), landlock.into()),
        ("seccomp".into(), seccomp),
        ("user namespaces".into(), namespaces),
    ]
}
