//! The compiled kernels that travel in the binary, and which of them a GPU takes.
//!
//! Not compiled here: `kernels/build.py` makes them. `VERIHARNESS_KERNELS` names a folder to take them from instead.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use crate::backend::BackendError;

/// Names a folder like `kernels/prebuilt`.
const FOLDER: &str = "VERIHARNESS_KERNELS";

macro_rules! built {
    ($($name:literal),*) => {
        [$(($name, include_bytes!(concat!("../../../kernels/prebuilt/", $name, ".gz")).as_slice())),*]
    };
}

/// By file name, gzipped.
static BUILT: [(&str, &[u8]); 6] = built!(
    "sm_75.cubin",
    "sm_80.cubin",
    "sm_89.cubin",
    "sm_90.cubin",
    "compute_75.ptx",
    "compute_80.ptx"
);

/// A module as the driver takes it.
#[derive(Debug)]
pub(super) struct Image {
    /// The chip that it was compiled for, `sm_89`, or `compute_80` for what the driver compiles itself.
    pub(super) name: String,
    /// A cubin, or PTX with a zero byte at its end.
    pub(super) bytes: Vec<u8>,
}

/// A chip, and whether the image is code for it or PTX: `sm_89.cubin` is `(89, true)`.
fn target(name: &str) -> Option<(u32, bool)> {
    let (kind, rest) = name.split_once('_')?;
    let (chip, suffix) = rest.split_once('.')?;
    let chip = chip.parse().ok()?;
    match (kind, suffix) {
        ("sm", "cubin") => Some((chip, true)),
        ("compute", "ptx") => Some((chip, false)),
        _ => None,
    }
}

/// Which of these images a chip, 89 for 8.9, runs best: code for it, else the newest code of its own generation, which
/// it runs unchanged, else the newest PTX that is not newer than it.
fn choose<'a>(names: impl Iterator<Item = &'a str>, chip: u32) -> Option<&'a str> {
    let fits = |name: &&str| match target(name) {
        Some((made_for, true)) => made_for / 10 == chip / 10 && made_for <= chip,
        Some((made_for, false)) => made_for <= chip,
        None => false,
    };
    names
        .filter(fits)
        .max_by_key(|name| target(name).map(|(chip, code)| (code, chip)))
}

/// The image for a chip.
///
/// # Errors
/// There is none, or a file of the folder is unreadable.
pub(super) fn image(chip: u32) -> Result<Image, BackendError> {
    match std::env::var_os(FOLDER) {
        Some(folder) => from_folder(&PathBuf::from(folder), chip),
        None => {
            let built = |name| BUILT.iter().find(|(known, _)| *known == name);
            let found = choose(BUILT.iter().map(|(name, _)| *name), chip).and_then(built);
            let (name, bytes) = found.ok_or_else(|| refused("the binary", chip, "no kernels for it"))?;
            unpack(name, bytes).map_err(|error| refused("the binary", chip, &error.to_string()))
        }
    }
}

fn from_folder(folder: &Path, chip: u32) -> Result<Image, BackendError> {
    let place = folder.display().to_string();
    let said = |error: std::io::Error| refused(&place, chip, &error.to_string());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(said)? {
        let name = entry.map_err(said)?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".gz").map(str::to_owned));
    }
    let name = choose(names.iter().map(String::as_str), chip);
    let name = name.ok_or_else(|| refused(&place, chip, "no kernels for it"))?;
    let bytes = std::fs::read(folder.join(format!("{name}.gz"))).map_err(said)?;
    unpack(name, &bytes).map_err(said)
}

fn unpack(name: &str, packed: &[u8]) -> std::io::Result<Image> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes)?;
    if name.ends_with(".ptx") && bytes.last() != Some(&0) {
        bytes.push(0);
    }
    let name = name.split('.').next().unwrap_or(name).to_owned();
    Ok(Image { name, bytes })
}

fn refused(place: &str, chip: u32, reason: &str) -> BackendError {
    BackendError::Load {
        file: format!(
            "kernels of {place} for compute capability {}.{}",
            chip / 10,
            chip % 10
        ),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::device::Kernel;
    use sha2::{Digest, Sha256};
    use std::collections::BTreeMap;

    #[derive(serde::Deserialize)]
    struct Manifest {
        sources: BTreeMap<String, String>,
        outputs: BTreeMap<String, String>,
    }

    fn manifest() -> Manifest {
        serde_json::from_str(include_str!("../../../kernels/prebuilt/manifest.json")).unwrap()
    }

    fn digest(bytes: &[u8]) -> String {
        Sha256::digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    #[test]
    fn a_chip_gets_its_code_or_its_generation_s_or_ptx() {
        let chosen = |chip| image(chip).map(|image| image.name);
        for (chip, name) in [
            (75, "sm_75"),
            (80, "sm_80"),
            (86, "sm_80"),
            (87, "sm_80"),
            (89, "sm_89"),
            (90, "sm_90"),
            (100, "compute_80"),
            (120, "compute_80"),
        ] {
            assert_eq!(chosen(chip).unwrap(), name);
        }
        let said = chosen(70).unwrap_err().to_string();
        assert!(said.contains("compute capability 7.0"), "{said}");
    }

    #[test]
    fn a_folder_serves_instead() {
        let folder = tempfile::tempdir().unwrap();
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/prebuilt/compute_75.ptx.gz");
        std::fs::copy(place, folder.path().join("compute_75.ptx.gz")).unwrap();
        let image = from_folder(folder.path(), 90).unwrap();
        assert_eq!(
            (image.name.as_str(), image.bytes.last()),
            ("compute_75", Some(&0))
        );
        std::fs::write(folder.path().join("sm_90.cubin.gz"), "no gzip").unwrap();
        assert!(from_folder(folder.path(), 90).is_err());
        assert!(
            from_folder(Path::new("/nowhere"), 90)
                .unwrap_err()
                .to_string()
                .contains("/nowhere")
        );
    }

    /// Where this fails, `python3 kernels/build.py` compiles them again.
    #[test]
    fn what_was_built_was_built_from_these_sources() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let is_source = |path: &PathBuf| path.extension().is_some_and(|e| e == "cu" || e == "cuh");
        let files = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let found: BTreeMap<String, String> = files
            .filter(is_source)
            .map(|path| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, digest(&std::fs::read(path).unwrap()))
            })
            .collect();
        assert_eq!(found, manifest().sources);
        let unpacked = BUILT.map(|(name, bytes)| {
            let mut image = unpack(name, bytes).unwrap();
            image
                .bytes
                .truncate(image.bytes.len() - usize::from(name.ends_with("ptx")));
            (name.to_owned(), digest(&image.bytes))
        });
        assert_eq!(BTreeMap::from(unpacked), manifest().outputs);
    }

    #[test]
    fn every_image_has_every_kernel_and_none_spills() {
        for (name, bytes) in BUILT {
            let image = unpack(name, bytes).unwrap();
            let has = |kernel: &str| {
                image
                    .bytes
                    .windows(kernel.len())
                    .any(|at| at == kernel.as_bytes())
            };
            for kernel in Kernel::all() {
                assert!(has(&kernel.name()), "{name}: {}", kernel.name());
            }
        }
        let report = include_str!("../../../kernels/prebuilt/resources.txt");
        let mut lines = report.lines().skip(1);
        for line in lines.by_ref() {
            for cell in line.split_whitespace().skip(1) {
                let numbers: Vec<usize> = cell.split('/').map(|number| number.parse().unwrap()).collect();
                assert_eq!(numbers[1], 0, "on the stack: {line}");
                assert!(numbers[0] <= 255 && numbers[2] <= 48 << 10, "{line}");
            }
        }
        assert_eq!(report.lines().count(), 1 + Kernel::all().len());
    }
}
