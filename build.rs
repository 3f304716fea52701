//! Notes the git commit in the binary, for the manifests of runs; a tarball without git builds as `unknown`. Under the
//! feature `emulator`, compiles the CUDA kernels for the CPU.

use std::process::Command;

fn main() {
    #[cfg(feature = "emulator")]
    emulator();
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/index");
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .output()
            .ok()
            .filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|out| !out.is_empty());
    println!(
        "cargo:rustc-env=VERIHARNESS_GIT={commit}{}",
        if dirty { "-modified" } else { "" }
    );
}

/// The kernels behind a driver's interface, as a library that tests load.
#[cfg(feature = "emulator")]
fn emulator() {
    println!("cargo:rerun-if-changed=kernels");
    let folder = format!("{}/driver", std::env::var("OUT_DIR").expect("cargo sets it"));
    std::fs::create_dir_all(&folder).expect("the folder of the build is writable");
    let linked = cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .pic(true)
        // Products and sums are rounded one by one, as the kernels' own build says.
        .flag("-ffp-contract=off")
        .flag_if_supported("-Wno-unknown-pragmas")
        .get_compiler()
        .to_command()
        .args(["-shared", "-o", &format!("{folder}/libcuda.so.1")])
        .args(["emulator", "kernels", "driver"].map(|name| format!("kernels/emulator/{name}.cpp")))
        .status();
    assert!(
        linked.is_ok_and(|status| status.success()),
        "the emulated driver does not compile"
    );
    println!("cargo:rustc-env=EMULATED_DRIVER={folder}");
}
