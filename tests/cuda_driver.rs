//! The program with a driver beside it: an emulated one, on which `--backend cuda` decodes what the CPU decodes; one that
//! fails at a call; one that lacks everything. `doctor` says what is wrong, and nothing panics.

#![cfg(feature = "emulator")]
#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::path::Path;
use std::process::{Command, Output};

/// The program, with the libraries of a folder.
fn program(driver: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_veriharness"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("LD_LIBRARY_PATH", driver)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn emulated() -> &'static Path {
    Path::new(env!("EMULATED_DRIVER"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A reply of a tiny checkpoint.
fn generate(backend: &str, variables: &[(&str, &str)]) -> Output {
    let arguments = [
        "generate",
        "--backend",
        backend,
        "--kv-mib",
        "4",
        "--model",
        "models/tiny/qwen2-untied-awq",
        "--max-tokens",
        "12",
        "Where is the key?",
    ];
    program(emulated(), variables, &arguments)
}

/// The line of `doctor` about the GPU.
fn doctor(driver: &Path, variables: &[(&str, &str)]) -> String {
    let found = program(driver, variables, &["doctor"]);
    assert!(found.status.success(), "{}", text(&found.stderr));
    let said = text(&found.stdout);
    said.lines()
        .find(|line| line.trim_start().starts_with("cuda"))
        .unwrap()
        .to_owned()
}

#[test]
fn a_gpu_decodes_what_the_cpu_decodes() {
    let (cpu, gpu, auto) = (generate("cpu", &[]), generate("cuda", &[]), generate("auto", &[]));
    assert!(gpu.status.success(), "{}", text(&gpu.stderr));
    assert_eq!(text(&gpu.stdout), text(&cpu.stdout));
    assert_eq!(gpu.stdout, auto.stdout);
    assert!(!gpu.stdout.is_empty());
    let said = text(&gpu.stderr);
    assert!(said.contains("GPU memory: weights"), "{said}");
}

#[test]
fn doctor_names_the_gpu_or_what_is_wrong() {
    let said = doctor(emulated(), &[]);
    assert!(
        said.contains("on: Emulated GPU") && said.contains("kernels sm_89"),
        "{said}"
    );
    assert!(said.contains("driver for CUDA 12.8"), "{said}");
    let said = doctor(Path::new("/nowhere"), &[]);
    assert!(said.contains("off: no NVIDIA driver"), "{said}");
    let said = doctor(emulated(), &[("EMULATED_CUDA_FAIL", "cuInit")]);
    assert!(
        said.contains("found no usable GPU") && said.contains("made to fail"),
        "{said}"
    );
}

#[test]
fn a_gpu_s_promise_is_checked() {
    let found = program(emulated(), &[], &["doctor", "--gpu"]);
    let said = text(&found.stdout);
    assert!(found.status.success(), "{}", text(&found.stderr));
    assert!(
        said.contains("7 rows of 1 to 300 tokens have the same bits"),
        "{said}"
    );
    let refused = program(
        emulated(),
        &[("EMULATED_CUDA_FAIL", "cuGraphLaunch,9")],
        &["doctor", "--gpu", "tiny-awq"],
    );
    assert!(
        text(&refused.stderr).contains("made to fail"),
        "{}",
        text(&refused.stderr)
    );
    let unknown = program(emulated(), &[], &["doctor", "--gpu", "gpt-2"]);
    assert!(
        text(&unknown.stderr).contains("expected one of"),
        "{}",
        text(&unknown.stderr)
    );
}

#[test]
fn a_driver_without_its_functions_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("old.c");
    std::fs::write(&source, "int cuInit(unsigned flags) { return 0; }").unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(folder.path().join("libcuda.so.1"))
        .arg(&source)
        .status();
    assert!(made.unwrap().success());
    let said = doctor(folder.path(), &[]);
    assert!(
        said.contains("broken or too old") && said.contains("525"),
        "{said}"
    );
}

#[test]
fn every_call_that_fails_is_said_and_auto_goes_on_without() {
    for call in [
        "cuInit",
        "cuDevicePrimaryCtxRetain",
        "cuStreamCreate",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuMemHostAlloc",
        "cuMemAlloc_v2",
        "cuMemAlloc_v2,9",
        "cuMemsetD8Async",
        "cuMemcpyHtoDAsync_v2,30",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyDtoHAsync_v2,3",
        "cuLaunchKernel,7",
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphLaunch",
        "cuStreamSynchronize,40",
    ] {
        let failed = generate("cuda", &[("EMULATED_CUDA_FAIL", call)]);
        let said = text(&failed.stderr);
        assert_eq!(failed.status.code(), Some(2), "{call}: {said}");
        assert!(
            said.contains("error") && said.contains("made to fail"),
            "{call}: {said}"
        );
        assert!(!said.contains("panicked"), "{call}: {said}");
    }
    let auto = generate("auto", &[("EMULATED_CUDA_FAIL", "cuModuleLoadData")]);
    assert!(auto.status.success());
    assert!(
        text(&auto.stderr).contains("the CPU computes"),
        "{}",
        text(&auto.stderr)
    );
    assert_eq!(auto.stdout, generate("cpu", &[]).stdout);
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_numbers() {
    let refused = generate("cuda", &[("EMULATED_CUDA_FREE", "200000000")]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("more are needed"), "{said}");
    assert!(said.contains("0.20 GB free"), "{said}");
}

#[test]
fn a_bench_on_noise_measures_a_gpu_and_is_refused_without_one() {
    let arguments = |name| {
        [
            "bench",
            "--synthetic",
            name,
            "--kv-mib",
            "8",
            "--repeat",
            "2",
            "--pp",
            "3",
            "--tg",
            "1",
            "--batch",
            "1,2",
            "--format",
            "csv",
        ]
    };
    let measured = program(emulated(), &[], &arguments("tiny-awq"));
    let (said, table) = (text(&measured.stderr), text(&measured.stdout));
    assert!(measured.status.success(), "{said}");
    assert!(
        said.contains("GB/s read") && said.contains("a pass reads 0.00"),
        "{said}"
    );
    let rows: Vec<&str> = table.lines().filter(|line| line.contains("synthetic")).collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert!(rows.iter().all(|row| row.contains("cuda sm_89")), "{table}");
    let refused = program(Path::new("/nowhere"), &[], &arguments("tiny-awq"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("no NVIDIA driver"),
        "{}",
        text(&refused.stderr)
    );
    let unknown = program(emulated(), &[], &arguments("gpt-2"));
    assert!(
        text(&unknown.stderr).contains("expected one of qwen2.5-coder-14b-awq"),
        "{}",
        text(&unknown.stderr)
    );
}
