//! The index of a folder in several files: it names files of the folder only, and says the truth about them.
//!
//! Not the files' own headers (`hostile_safetensors.rs`).

use std::os::unix::fs::symlink;

use super::*;

const SECOND: &str = "model-00002-of-00002.safetensors";
const NORM: &str = "model.norm.weight";

#[test]
fn names_that_lead_out_of_the_folder_are_refused() {
    for name in [
        "../model.safetensors",
        "/etc/passwd",
        "/etc/x.safetensors",
        "a/b.safetensors",
        "./model-00001-of-00002.safetensors",
        "model-00001-of-00002.safetensors/",
        "..",
        ".",
        "",
        "config.json",
        "a\0.safetensors",
    ] {
        let folder = copy(SHARDED);
        // What the name leads to is good: only the name is not.
        change(folder.path(), INDEX, |index| {
            index["weight_map"][NORM] = json!(name)
        });
        let said = refusal(folder.path());
        assert!(
            said.contains(INDEX) && said.contains("weight_map"),
            "{name}: {said}"
        );
    }
}

#[test]
fn links_that_lead_out_of_the_folder_are_refused() {
    for file in [
        SECOND,
        INDEX,
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        let (folder, other) = (copy(SHARDED), copy(SHARDED));
        let path = folder.path().join(file);
        std::fs::remove_file(&path).unwrap();
        symlink(other.path().join(file), &path).unwrap();
        refuses(folder.path(), &[file, "a file in", "a link to"]);
        // Within the folder a link is as good as a file.
        std::fs::remove_file(&path).unwrap();
        std::fs::copy(other.path().join(file), folder.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &path).unwrap();
        Model::open(folder.path()).unwrap();
    }
    // A folder that is itself a link is where it leads.
    let (folder, home) = (copy(SHARDED), tempfile::tempdir().unwrap());
    symlink(folder.path(), home.path().join("model")).unwrap();
    Model::open(&home.path().join("model")).unwrap();
}

#[test]
fn indexes_that_lie_are_refused_in_words() {
    let good = copy(SHARDED);
    assert!(Model::open(good.path()).is_ok());
    std::fs::remove_file(good.path().join(SECOND)).unwrap();
    refuses(good.path(), &[INDEX, "weight_map", SECOND, "no such file"]);
    for (value, expected) in [
        (json!({}), "weight_map"),
        (json!({"weight_map": {}}), "1 to 512 files"),
        (json!({"weight_map": []}), "weight_map"),
        (json!({"weight_map": {"a": 1}}), "weight_map"),
        (json!({"weight_map": {"a": SECOND}}), "a tensor of this name"),
    ] {
        let folder = copy(SHARDED);
        std::fs::write(folder.path().join(INDEX), value.to_string()).unwrap();
        refuses(folder.path(), &[INDEX, expected]);
    }
    let folder = copy(SHARDED);
    change(folder.path(), INDEX, |index| {
        index["weight_map"][NORM] = json!(SECOND)
    });
    refuses(folder.path(), &[INDEX, NORM, SECOND, "none"]);
    let folder = copy(SHARDED);
    change(folder.path(), INDEX, |index| {
        index["weight_map"].as_object_mut().unwrap().remove(NORM);
    });
    refuses(folder.path(), &[INDEX, NORM, "none of that name"]);
    let folder = copy(SHARDED);
    change(folder.path(), INDEX, |index| {
        for n in 0..600 {
            index["weight_map"][format!("t{n}")] = json!(format!("{n}.safetensors"));
        }
    });
    refuses(folder.path(), &[INDEX, "1 to 512 files", "602"]);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    for part in 0..20 {
        let folder = copy(SHARDED);
        let path = folder.path().join(SECOND);
        let length = path.metadata().unwrap().len();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(length * part / 20).unwrap();
        refuses(folder.path(), &[SECOND, "malformed"]);
    }
}
