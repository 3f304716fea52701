//! The tests of the kernels can fail: each kernel, broken on purpose, breaks them; and, whole, they pass under the address
//! and undefined-behaviour sanitizers.
//!
//! Not a search for mutants: each is a mistake that somebody could make, and says which. A broken kernel is compiled on its
//! own and handed to this same test program, whose other tests must then fail or be ended.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::super::emulator::LIBRARY;

/// A file, what stands there once, and what it becomes.
const MUTANTS: [(&str, &str, &str); 22] = [
    // A barrier or a wait is missing.
    ("block.cuh", "  __syncthreads();\n", ""),
    ("argmax.cu", "  __syncthreads();\n", ""),
    (
        "linear.cu",
        "    __syncthreads();\n  }\n  for (int i = threadIdx.x",
        "  }\n  for (int i = threadIdx.x",
    ),
    ("linear.cu", "    copy_wait<0>();\n", ""),
    (
        "linear.cu",
        "    __syncthreads();\n    if (unit < last)",
        "    if (unit < last)",
    ),
    // A barrier that not all reach.
    (
        "silu.cu",
        "  most = reduce<512, Max>(most, slots);",
        "  if (threadIdx.x < 480) most = reduce<512, Max>(most, slots);",
    ),
    // A mask or a bound is missing.
    (
        "linear.cu",
        "token < r.rows && output < r.outputs",
        "token < r.rows",
    ),
    (
        "linear.cu",
        "min(token + 8 * n + g, r.rows - 1)",
        "(token + 8 * n + g) % 64",
    ),
    (
        "attention.cu",
        "> last[half] ? -INFINITY : x * scale",
        "> end ? -INFINITY : x * scale",
    ),
    ("attention.cu", "if (place >= end) return 0;", ""),
    (
        "attention.cu",
        "    if (pair.used) {\n      const size_t at = static_cast<size_t>(tile.row + pair.row) * shape.heads + kv * group + pair.head;\n      float* to",
        "    {\n      const size_t at = static_cast<size_t>(tile.row + pair.row) * shape.heads + kv * group + pair.head;\n      float* to",
    ),
    // Bits would depend on the kernel that was chosen, not on the row.
    (
        "linear.cu",
        "static_cast<long long>(pieces) * s / SPLITS",
        "static_cast<long long>(pieces) * s / (gridDim.x > 1 ? 4 : SPLITS)",
    ),
    (
        "attention.cu",
        "total = fmaf(from[DIM + 1], fold.next, total * fold.before);",
        "total += from[DIM + 1];",
    ),
    (
        "attention.cu",
        "        total[half] = fmaf(found.total[half], fold.next, total[half] * fold.before);",
        "        total[half] += found.total[half];",
    ),
    // Arithmetic.
    (
        "linear.cu",
        "0x000f000fu, 0x64006400u",
        "0x00070007u, 0x64006400u",
    ),
    (
        "linear.cu",
        "if ((2 * unit + h + 1) % HALVES == 0)",
        "if (h == 1)",
    ),
    ("linear.cu", "fmaf(total, factor, bias)", "total + bias"),
    ("norm.cu", "mean + eps", "mean - eps * 1e4f"),
    (
        "norm.cu",
        "const float sum = picks && change ? x[i] + change[row * hidden + i] : x[i];",
        "const float sum = x[i];",
    ),
    (
        "rope.cu",
        "b * angle[i] + a * angle[i + half]",
        "b * angle[i] - a * angle[i + half]",
    ),
    ("silu.cu", "most > 8192.0f && most", "most > 1e30f && most"),
    ("embed.cu", "i < hidden", "i < hidden - 1"),
];

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

/// A copy of the kernels in `folder`.
fn copy(folder: &Path) {
    for part in ["", "emulator"] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
        for entry in std::fs::read_dir(kernels().join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|e| ["cu", "cuh", "h", "cpp"].iter().any(|known| e == *known))
            {
                std::fs::copy(&path, folder.join(part).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
}

/// Compiles the kernels in `folder`.
fn compile(folder: &Path, flags: &[&str]) -> PathBuf {
    let library = folder.join("kernels.so");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| OsString::from("c++"));
    let made = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-w"])
        .args(flags)
        .arg("-o")
        .arg(&library)
        .args(["emulator", "kernels"].map(|name| folder.join(format!("emulator/{name}.cpp"))))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}

/// This program's tests of kernels, with the kernels of a library.
fn tests(library: &Path, variables: &[(&str, OsString)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["backend::cuda::tests", "--skip", "mutants", "--test-threads", "1"])
        .env(LIBRARY, library)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn broken_kernels_are_found() {
    let whole = tempfile::tempdir().unwrap();
    copy(whole.path());
    let passed = tests(&compile(whole.path(), &[]), &[]);
    assert!(passed.status.success(), "{}", said(&passed));
    let check = |(file, from, to): &(&str, &str, &str)| {
        let folder = tempfile::tempdir().unwrap();
        copy(folder.path());
        let path = folder.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(from).count(), 1, "{file}: {from}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
        let found = tests(&compile(folder.path(), &[]), &[]);
        assert!(
            !found.status.success(),
            "{file}: nothing fails with {to:?} for {from:?}"
        );
    };
    rayon::iter::ParallelIterator::for_each(rayon::iter::IntoParallelRefIterator::par_iter(&MUTANTS), check);
}

#[test]
fn kernels_are_clean_under_sanitizers() {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| OsString::from("c++"));
    let runtime = Command::new(compiler)
        .arg("-print-file-name=libasan.so")
        .output()
        .unwrap();
    let runtime = PathBuf::from(said(&runtime).trim());
    if !runtime.is_absolute() {
        println!("this compiler has no sanitizers: not checked");
        return;
    }
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"];
    let variables = [
        ("LD_PRELOAD", runtime.into_os_string()),
        // Rust's own memory is not under test, and a fiber's stack is not the thread's.
        (
            "ASAN_OPTIONS",
            "detect_leaks=0:detect_stack_use_after_return=0".into(),
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    copy(folder.path());
    let clean = tests(&compile(folder.path(), &flags), &variables);
    assert!(clean.status.success(), "{}", said(&clean));
    // That they look: a kernel that reads past its input.
    let path = folder.path().join("norm.cu");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("* weight[i]", "* weight[i + 1]")).unwrap();
    let found = tests(&compile(folder.path(), &flags), &variables);
    assert!(
        said(&found).contains("AddressSanitizer: heap-buffer-overflow"),
        "{}",
        said(&found)
    );
}
