//! A pull takes the first source that has the file, verifies what it got, leaves nothing bad behind, and says why
//! every source failed. The hub is a stand-in on this machine that speaks as much HTTP as the hub client needs.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use veriharness::model::cache::{Cache, sha256};
use veriharness::model::fetch::{Access, Silent, fetch};
use veriharness::model::manifest::{self, Manifest, Source};
use veriharness::model::{Located, ModelError, resolve_in};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn content() -> Vec<u8> {
    (0..300_000u32).map(|n| (n % 251) as u8).collect()
}

/// What the stand-in does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Serves other bytes than its metadata promises.
    Corrupt,
    /// Hangs up in the middle of the first transfer.
    Interrupt,
    /// Gives a path instead of a hash.
    Traversal,
    /// Accepts and reads, but never answers.
    Mute,
    /// Pauses in the middle of the first transfer, longer than a test's patience, then goes on.
    Stall,
}

/// How long [`Fault::Stall`] pauses.
const PAUSE: Duration = Duration::from_secs(4);

/// Serves one file; returns the address and the count of body requests.
fn hub(body: Vec<u8>, fault: Fault) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (body, count) = (body.clone(), count.clone());
            std::thread::spawn(move || answer(stream, &body, fault, &count));
        }
    });
    (address, served)
}

fn answer(mut stream: TcpStream, body: &[u8], fault: Fault, served: &AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut range = None;
        let mut request = String::new();
        if reader.read_line(&mut request).ok()? == 0 {
            return None;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            if line.trim().is_empty() {
                break;
            }
            let lower = line.to_lowercase();
            if let Some(value) = lower.trim().strip_prefix("range: bytes=") {
                let (from, to) = value.split_once('-')?;
                range = Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()));
            }
        }
        if fault == Fault::Mute {
            std::thread::sleep(Duration::from_secs(60));
            return None;
        }
        let (from, to) = range.unwrap_or((0, None));
        let to = to.unwrap_or(body.len() - 1).min(body.len() - 1);
        let etag = match fault {
            Fault::Traversal => "../../../outside".to_owned(),
            _ => hex(body),
        };
        let mut piece = body.get(from..=to).unwrap_or_default().to_vec();
        let transfer = to > 0;
        let turn = if transfer {
            served.fetch_add(1, Ordering::SeqCst)
        } else {
            0
        };
        if fault == Fault::Corrupt && transfer {
            piece[1000] ^= 1;
        }
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nx-repo-commit: {COMMIT}\r\netag: \"x\"\r\nx-linked-etag: \"{etag}\"\r\n\
             content-range: bytes {from}-{to}/{}\r\ncontent-length: {}\r\n\r\n",
            body.len(),
            piece.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        if fault == Fault::Interrupt && transfer && turn == 0 {
            stream.write_all(&piece[..100_000]).ok()?;
            stream.flush().ok()?;
            return None;
        }
        if fault == Fault::Stall && transfer && turn == 0 {
            stream
                .write_all(&piece.drain(..100_000).collect::<Vec<_>>())
                .ok()?;
            stream.flush().ok()?;
            std::thread::sleep(PAUSE);
        }
        stream.write_all(&piece).ok()?;
    }
}

fn access(endpoint: &str) -> Access {
    Access {
        endpoint: Some(endpoint.into()),
        offline: false,
        proxy: false,
        patience: Duration::from_secs(2),
        stall: Duration::from_secs(10),
        python: "python3".into(),
        pip_arguments: Vec::new(),
    }
}

fn hub_source() -> Source {
    Source::Hub {
        repository: "someone/something-GGUF".into(),
        revision: "main".into(),
        file: "weights.gguf".into(),
    }
}

fn wheel_source(parts: u32) -> Source {
    Source::Wheels {
        package: "veriharness-standin-part{n}".into(),
        version: "1.0".into(),
        entry: "standin_part{n}/data/part{nn}.bin".into(),
        parts,
    }
}

fn model(sources: Vec<Source>) -> Manifest {
    let mut manifest = manifest::find("smollm2-135m").unwrap();
    let known = manifest.file.as_mut().unwrap();
    known.sha256 = hex(&content());
    known.bytes = content().len() as u64;
    manifest.sources = sources;
    manifest
}

fn pull(manifest: &Manifest, cache: &Cache, access: &Access) -> Result<Located, ModelError> {
    fetch(manifest, cache, access, false, &mut Silent)
}

/// Every file under a folder but locks, which stay.
fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let found = paths.flat_map(|path| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path.display().to_string()]
        }
    });
    found.filter(|path| !path.ends_with(".lock")).collect()
}

/// How many bytes of a hub transfer are kept for the next pull.
fn kept(cache: &Cache, manifest: &Manifest) -> u64 {
    files(&cache.partial(&manifest.name))
        .iter()
        .filter(|path| path.ends_with(".part"))
        .filter_map(|path| std::fs::metadata(path).ok())
        .map(|meta| meta.len())
        .sum()
}

/// Packs `content()` in wheels, in pieces, for pip to find in a folder.
fn wheels(folder: &Path, parts: usize) {
    let content = content();
    for (index, piece) in content.chunks(content.len().div_ceil(parts)).enumerate() {
        let n = index + 1;
        let name = format!("veriharness_standin_part{n}");
        let file = std::fs::File::create(folder.join(format!("{name}-1.0-py3-none-any.whl"))).unwrap();
        let mut archive = zip::ZipWriter::new(file);
        let options = zip::write::SimpleFileOptions::default();
        let info = format!("{name}-1.0.dist-info");
        let metadata = format!("Metadata-Version: 2.1\nName: veriharness-standin-part{n}\nVersion: 1.0\n");
        for (path, bytes) in [
            (format!("standin_part{n}/data/part{n:02}.bin"), piece),
            (format!("{info}/METADATA"), metadata.as_bytes()),
            (
                format!("{info}/WHEEL"),
                b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n".as_slice(),
            ),
            (format!("{info}/RECORD"), b"".as_slice()),
        ] {
            archive.start_file(path, options).unwrap();
            archive.write_all(bytes).unwrap();
        }
        archive.finish().unwrap();
    }
}

/// Like [`access`], with pip kept to a folder and the hub out of reach.
fn only_wheels(folder: &Path) -> Access {
    let mut access = access("http://127.0.0.1:9");
    access.pip_arguments = vec!["--no-index".into(), "--find-links".into(), folder.into()];
    access
}

#[test]
fn a_hub_file_is_verified_installed_and_locked() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path());
    let (endpoint, _) = hub(content(), Fault::None);
    let located = pull(&model(vec![hub_source()]), &cache, &access(&endpoint)).unwrap();
    assert_eq!(std::fs::read(&located.path).unwrap(), content());
    let lock = located.lock.clone().unwrap();
    assert_eq!(lock.revision.as_deref(), Some(COMMIT));
    assert_eq!(lock.sha256, hex(&content()));
    assert_eq!(lock.kind, "hub");
    assert_eq!(resolve_in("smollm2-135m", &cache).unwrap(), located);
    assert_eq!(cache.sha256(&located.path).unwrap(), lock.sha256);
    let left = files(home.path());
    assert_eq!(left.len(), 2, "expected weights and lock.json: {left:?}");
}

#[test]
fn a_corrupt_hub_file_is_refused_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (endpoint, _) = hub(content(), Fault::Corrupt);
    let error = pull(
        &model(vec![hub_source()]),
        &Cache::at(home.path()),
        &access(&endpoint),
    )
    .unwrap_err();
    assert!(error.to_string().contains("expected sha256"), "{error}");
    assert_eq!(files(home.path()), Vec::<String>::new());
}

#[test]
fn an_interrupted_hub_transfer_is_resumed() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path());
    let (endpoint, served) = hub(content(), Fault::Interrupt);
    let manifest = model(vec![hub_source()]);
    pull(&manifest, &cache, &access(&endpoint)).unwrap_err();
    let kept = kept(&cache, &manifest);
    assert!(kept > 0 && kept < content().len() as u64, "kept {kept} bytes");
    let located = pull(&manifest, &cache, &access(&endpoint)).unwrap();
    assert_eq!(std::fs::read(&located.path).unwrap(), content());
    assert_eq!(served.load(Ordering::SeqCst), 2);
}

#[test]
fn a_hub_that_never_answers_gives_way_to_the_next_source() {
    let (home, index) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    wheels(index.path(), 1);
    let (endpoint, served) = hub(content(), Fault::Mute);
    let mut access = only_wheels(index.path());
    (access.endpoint, access.patience) = (Some(endpoint), Duration::from_millis(300));
    let cache = Cache::at(home.path());
    let started = Instant::now();
    let error = pull(&model(vec![hub_source()]), &cache, &access).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5));
    let expected = "metadata of weights.gguf: nothing came for 300ms";
    assert!(error.to_string().contains(expected), "{error}");
    let located = pull(&model(vec![hub_source(), wheel_source(1)]), &cache, &access).unwrap();
    assert_eq!(std::fs::read(&located.path).unwrap(), content());
    assert_eq!(located.lock.unwrap().kind, "wheels");
    assert_eq!(served.load(Ordering::SeqCst), 0);
}

#[test]
fn a_hub_transfer_that_stalls_is_given_up_and_resumed() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path());
    let (endpoint, served) = hub(content(), Fault::Stall);
    let mut access = access(&endpoint);
    access.stall = Duration::from_millis(300);
    let manifest = model(vec![hub_source()]);
    // An earlier pull left something, so this one appends: what it writes late would be too much.
    let blobs = cache
        .partial(&manifest.name)
        .join("hub/models--someone--something-GGUF/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(
        blobs.join(hex(&content())).with_extension("part"),
        &content()[..50_000],
    )
    .unwrap();
    let started = Instant::now();
    let error = pull(&manifest, &cache, &access).unwrap_err();
    let expected = "download of weights.gguf: nothing came for 300ms";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(kept(&cache, &manifest), 150_000);
    access.stall = Duration::from_secs(10);
    let located = pull(&manifest, &cache, &access).unwrap();
    assert!(started.elapsed() < PAUSE, "the second pull waited for the first");
    assert_eq!(std::fs::read(&located.path).unwrap(), content());
    assert_eq!(served.load(Ordering::SeqCst), 2);
    // The transfer given up still has the file open; when it goes on, it must not write to it.
    std::thread::sleep((PAUSE + Duration::from_millis(500)).saturating_sub(started.elapsed()));
    assert_eq!(std::fs::read(&located.path).unwrap(), content());
}

#[test]
fn a_pull_whose_process_was_killed_is_resumed_by_the_next() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path());
    let (endpoint, served) = hub(content(), Fault::Stall);
    let manifest = manifest::find("smollm2-135m").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_veriharness"));
    for (name, _) in std::env::vars() {
        if ["VERIHARNESS_", "HF_"].iter().any(|ours| name.starts_with(ours))
            || name.to_lowercase().ends_with("_proxy")
        {
            command.env_remove(name);
        }
    }
    command
        .args(["model", "pull", &manifest.name])
        .env("VERIHARNESS_HOME", home.path())
        .env("VERIHARNESS_PYTHON", "no-such-python")
        .env("HF_ENDPOINT", endpoint)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    while kept(&cache, &manifest) == 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "nothing came");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    let kept = kept(&cache, &manifest);
    assert!(kept > 0 && kept <= 100_000, "kept {kept} bytes");
    assert!(matches!(
        resolve_in(&manifest.name, &cache),
        Err(ModelError::Absent { .. })
    ));
    let output = command.output().unwrap();
    assert!(output.status.success());
    let located = resolve_in(&manifest.name, &cache).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.trim_end(), located.path.display().to_string());
    assert_eq!(sha256(&located.path, |_| ()).unwrap(), hex(&content()));
    assert_eq!(located.lock.unwrap().sha256, hex(&content()));
    assert_eq!(served.load(Ordering::SeqCst), 2);
    assert_eq!(files(home.path()).len(), 2, "expected weights and lock.json");
}

#[test]
fn metadata_that_is_no_hash_never_becomes_a_path() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path().join("inner"));
    let (endpoint, served) = hub(content(), Fault::Traversal);
    let error = pull(&model(vec![hub_source()]), &cache, &access(&endpoint)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("expected a SHA-256 in the hub's metadata"),
        "{error}"
    );
    assert_eq!(served.load(Ordering::SeqCst), 0);
    assert_eq!(files(home.path()), Vec::<String>::new());
}

#[test]
fn an_exact_pull_refuses_another_file_before_downloading_it() {
    let home = tempfile::tempdir().unwrap();
    let (endpoint, served) = hub(vec![7; 5000], Fault::None);
    let manifest = model(vec![hub_source()]);
    let cache = Cache::at(home.path());
    let error = fetch(&manifest, &cache, &access(&endpoint), true, &mut Silent).unwrap_err();
    assert!(error.to_string().contains("but the hub has"), "{error}");
    assert_eq!(served.load(Ordering::SeqCst), 0);
}

#[test]
fn wheels_follow_when_the_hub_refuses() {
    let (home, index) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    wheels(index.path(), 3);
    let manifest = model(vec![hub_source(), wheel_source(3)]);
    let cache = Cache::at(home.path());
    let located = pull(&manifest, &cache, &only_wheels(index.path())).unwrap();
    assert_eq!(std::fs::read(&located.path).unwrap(), content());
    let lock = located.lock.unwrap();
    assert_eq!((lock.kind.as_str(), lock.revision), ("wheels", None));
    assert_eq!(files(&cache.partial(&manifest.name)), Vec::<String>::new());
}

#[test]
fn wheels_that_were_fetched_are_kept_for_the_next_pull() {
    let (home, index) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    wheels(index.path(), 2);
    let second = index
        .path()
        .join("veriharness_standin_part2-1.0-py3-none-any.whl");
    let aside = index.path().join("aside");
    std::fs::rename(&second, &aside).unwrap();
    let manifest = model(vec![wheel_source(2)]);
    let cache = Cache::at(home.path());
    let error = pull(&manifest, &cache, &only_wheels(index.path()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("veriharness-standin-part2==1.0"), "{error}");
    assert_eq!(files(&cache.partial(&manifest.name)).len(), 1);
    std::fs::rename(&aside, &second).unwrap();
    std::fs::remove_file(
        index
            .path()
            .join("veriharness_standin_part1-1.0-py3-none-any.whl"),
    )
    .unwrap();
    let located = pull(&manifest, &cache, &only_wheels(index.path())).unwrap();
    assert_eq!(
        sha256(&located.path, |_| ()).unwrap(),
        manifest.file.unwrap().sha256
    );
}

#[test]
fn a_full_or_broken_disk_costs_no_wheel() {
    let (home, index) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    wheels(index.path(), 2);
    let manifest = model(vec![wheel_source(2)]);
    let cache = Cache::at(home.path());
    let access = only_wheels(index.path());
    let fails = |expected: &str| {
        let error = pull(&manifest, &cache, &access).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let left = files(&cache.partial(&manifest.name));
        assert!(
            left.len() == 2 && left.iter().all(|path| path.ends_with(".whl")),
            "{left:?}"
        );
    };
    // A place for models that is none fails the last step.
    let models = home.path().join("models");
    std::fs::write(&models, "").unwrap();
    fails("cannot create");
    std::fs::remove_file(&models).unwrap();
    // What is there need not be fetched again.
    std::fs::remove_dir_all(index.path()).unwrap();
    #[cfg(target_os = "linux")]
    {
        let joined = cache.partial(&manifest.name).join("wheels/joined.part");
        std::os::unix::fs::symlink("/dev/full", joined).unwrap();
        fails("cannot write");
    }
    let located = pull(&manifest, &cache, &access).unwrap();
    assert_eq!(std::fs::read(&located.path).unwrap(), content());
}

#[test]
fn wheels_that_are_damaged_are_dropped() {
    let (home, index) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    wheels(index.path(), 1);
    let name = "veriharness_standin_part1-1.0-py3-none-any.whl";
    let good = std::fs::read(index.path().join(name)).unwrap();
    let mut changed = good.clone();
    changed[200] ^= 0x55;
    let manifest = model(vec![wheel_source(1)]);
    let cache = Cache::at(home.path());
    let folder = cache.partial(&manifest.name).join("wheels");
    for bad in [&good[..good.len() / 2], &changed, b"no archive", b""] {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("001.whl"), bad).unwrap();
        let error = pull(&manifest, &cache, &only_wheels(index.path())).unwrap_err();
        assert!(error.to_string().contains("001.whl: "), "{error}");
        assert_eq!(files(home.path()), Vec::<String>::new());
    }
    pull(&manifest, &cache, &only_wheels(index.path())).unwrap();
}

#[test]
fn wheels_with_other_data_are_refused_and_leave_nothing() {
    let (home, index) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    wheels(index.path(), 1);
    for (change, expected) in [(0i64, "expected sha256"), (1, "found 300000"), (-1, "found more")] {
        let mut manifest = model(vec![wheel_source(1)]);
        let known = manifest.file.as_mut().unwrap();
        known.bytes = known.bytes.checked_add_signed(change).unwrap();
        known.sha256 = "0".repeat(64);
        let error = pull(&manifest, &Cache::at(home.path()), &only_wheels(index.path())).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(files(home.path()), Vec::<String>::new());
    }
}

#[test]
fn when_every_source_fails_the_error_names_them_all_and_the_way_out() {
    let home = tempfile::tempdir().unwrap();
    let mut access = access("http://127.0.0.1:9");
    access.python = "no-such-python".into();
    let started = Instant::now();
    let error = pull(
        &model(vec![hub_source(), wheel_source(2)]),
        &Cache::at(home.path()),
        &access,
    )
    .unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5));
    let text = error.to_string();
    for part in [
        "someone/something-GGUF@main/weights.gguf",
        "cannot connect to 127.0.0.1:9",
        "veriharness-standin-part{n}==1.0",
        "cannot run no-such-python (Python 3 with pip is needed)",
        "--model PATH",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn pulls_at_the_same_time_fetch_once() {
    let home = tempfile::tempdir().unwrap();
    let (endpoint, served) = hub(content(), Fault::None);
    let (manifest, cache, access) = (
        model(vec![hub_source()]),
        Cache::at(home.path()),
        access(&endpoint),
    );
    let claim = cache.claim(&manifest.name).unwrap();
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| pull(&manifest, &cache, &access)))
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        drop(claim);
        for pull in pulls {
            assert_eq!(
                std::fs::read(pull.join().unwrap().unwrap().path).unwrap(),
                content()
            );
        }
    });
    assert_eq!(served.load(Ordering::SeqCst), 1);
}

#[test]
fn offline_skips_the_hub_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let (endpoint, served) = hub(content(), Fault::None);
    let mut access = access(&endpoint);
    access.offline = true;
    let error = pull(&model(vec![hub_source()]), &Cache::at(home.path()), &access).unwrap_err();
    assert!(error.to_string().contains("HF_HUB_OFFLINE"), "{error}");
    assert_eq!(served.load(Ordering::SeqCst), 0);
}

#[test]
fn a_name_that_does_not_resolve_is_a_quick_reason() {
    let home = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let access = access("https://hub.invalid");
    let error = pull(&model(vec![hub_source()]), &Cache::at(home.path()), &access).unwrap_err();
    assert!(error.to_string().contains("hub.invalid"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn an_absent_model_says_how_to_get_it() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path());
    let absent = resolve_in("smollm2-135m", &cache).unwrap_err().to_string();
    assert!(absent.contains("veriharness model pull smollm2-135m"), "{absent}");
    let unknown = resolve_in("gpt-7", &cache).unwrap_err().to_string();
    assert!(
        unknown.contains("qwen2.5-coder-1.5b, qwen2.5-coder-0.5b, smollm2-135m"),
        "{unknown}"
    );
    assert!(matches!(
        resolve_in("no/such.gguf", &cache),
        Err(ModelError::Io { .. })
    ));
}

#[test]
fn a_manifest_names_the_field_that_is_wrong() {
    let good = include_str!("../models/smollm2-135m.toml");
    manifest::parse("good.toml", good).unwrap();
    for (from, to, field) in [
        ("bytes = 98362432", "bytes = \"many\"", "file.bytes"),
        ("b179c9523d0e", "B179", "file.sha256"),
        ("parts = 1", "parts = -1", "sources[1]"),
        ("licence =", "license =", "license"),
    ] {
        let error = manifest::parse("bad.toml", &good.replace(from, to))
            .unwrap_err()
            .to_string();
        assert!(error.contains(field) && error.contains("bad.toml"), "{error}");
    }
}
