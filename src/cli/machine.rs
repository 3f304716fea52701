//! What this machine is, as files under /proc and /sys tell it.
//!
//! Not a benchmark, and no system call of its own: what cannot be read is `unknown`.

use std::path::Path;

/// Flags of the first CPU; empty when unknown.
pub fn cpu_flags() -> Vec<String> {
    let flags = cpuinfo("flags")
        .or_else(|| cpuinfo("Features"))
        .unwrap_or_default();
    flags.split_whitespace().map(str::to_owned).collect()
}

/// Name of the first CPU.
pub fn cpu_name() -> String {
    cpuinfo("model name").unwrap_or_else(|| "unknown".into())
}

fn cpuinfo(key: &str) -> Option<String> {
    field("/proc/cpuinfo", key)
}

/// Memory in MiB: (total, available).
pub fn memory_mib() -> Option<(u64, u64)> {
    let kib = |key| {
        field("/proc/meminfo", key)?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    };
    Some((kib("MemTotal")? / 1024, kib("MemAvailable")? / 1024))
}

/// Name and version of the kernel.
pub fn kernel() -> String {
    let read = |name| read_trimmed(format!("/proc/sys/kernel/{name}"));
    match (read("ostype"), read("osrelease")) {
        (Some(os), Some(release)) => format!("{os} {release}"),
        _ => std::env::consts::OS.into(),
    }
}

/// The value after `key :` in a file of such lines.
fn field(file: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// A file's text without outer white space.
pub fn read_trimmed(file: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(file)
        .ok()
        .map(|text| text.trim().to_owned())
}
