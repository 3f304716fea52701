//! A pull of a folder takes every file of one commit, verifies each against the hub's metadata, goes on where an earlier
//! pull stopped, and is a model only when all is there. The hub is a stand-in that serves a tiny checkpoint.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha1::Sha1;
use sha2::{Digest, Sha256};
use veriharness::model::cache::Cache;
use veriharness::model::fetch::{Access, Silent, fetch};
use veriharness::model::manifest::{self, Manifest};
use veriharness::model::{Located, Model, ModelError, resolve_in};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const NAME: &str = "qwen2.5-coder-14b-awq";
const FIRST: &str = "model-00001-of-00002.safetensors";
const SECOND: &str = "model-00002-of-00002.safetensors";

type Files = BTreeMap<String, Vec<u8>>;

/// What the stand-in does, and what it was asked.
#[derive(Default)]
struct State {
    files: Files,
    /// Serves other bytes of this file than its metadata promises.
    corrupt: Option<String>,
    /// Hangs up once in the middle of this file.
    interrupt: Option<String>,
    /// Says that this file is of another commit.
    moved: Option<String>,
    /// Revision and file of every transfer.
    served: Vec<(String, String)>,
}

fn checkpoint() -> Files {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny/qwen2-untied-awq");
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(&path).unwrap())
        })
        .filter(|(name, _)| name != "reference.json")
        .collect()
}

fn hub(state: State) -> (String, Arc<Mutex<State>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let state = Arc::new(Mutex::new(state));
    let shared = state.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = shared.clone();
            std::thread::spawn(move || answer(stream, &state));
        }
    });
    (address, state)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut request, mut range) = (String::new(), None);
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
            if let Some((from, to)) = lower
                .trim()
                .strip_prefix("range: bytes=")
                .and_then(|value| value.split_once('-'))
            {
                range = Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()));
            }
        }
        let path = request.split(' ').nth(1)?;
        let (repository, rest) = path.split_once("/resolve/")?;
        assert_eq!(repository, "/Qwen/Qwen2.5-Coder-14B-Instruct-AWQ");
        let (revision, file) = rest.split_once('/')?;
        let mut state = state.lock().unwrap();
        let Some(body) = state.files.get(file).cloned() else {
            let none = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(none.as_bytes()).ok()?;
            continue;
        };
        let (from, to) = range.unwrap_or((0, None));
        let to = to.unwrap_or(body.len() - 1).min(body.len() - 1);
        let mut piece = body.get(from..=to).unwrap_or_default().to_vec();
        let transfer = to > 0;
        if transfer {
            state.served.push((revision.to_owned(), file.to_owned()));
            if state.corrupt.as_deref() == Some(file) {
                piece[10] ^= 1;
            }
        }
        let commit = match state.moved.as_deref() == Some(file) {
            true => COMMIT.replace('0', "f"),
            false => COMMIT.to_owned(),
        };
        let etag = match file.ends_with(".safetensors") || file == "tokenizer.json" {
            true => format!(
                "etag: \"x\"\r\nx-linked-etag: \"{}\"",
                hex(&Sha256::digest(&body))
            ),
            false => {
                let prefix = format!("blob {}\0", body.len());
                let name = Sha1::new_with_prefix(prefix).chain_update(&body).finalize();
                format!("etag: \"{}\"", hex(&name))
            }
        };
        let interrupted = transfer && state.interrupt.as_deref() == Some(file);
        if interrupted {
            state.interrupt = None;
        }
        drop(state);
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nx-repo-commit: {commit}\r\n{etag}\r\n\
             content-range: bytes {from}-{to}/{}\r\ncontent-length: {}\r\n\r\n",
            body.len(),
            piece.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        if interrupted {
            stream.write_all(&piece[..piece.len() / 2]).ok()?;
            stream.flush().ok()?;
            return None;
        }
        stream.write_all(&piece).ok()?;
    }
}

fn serving(change: impl FnOnce(&mut State)) -> (String, Arc<Mutex<State>>) {
    let mut state = State {
        files: checkpoint(),
        ..State::default()
    };
    change(&mut state);
    hub(state)
}

fn manifest() -> Manifest {
    manifest::find(NAME).unwrap()
}

fn pull(cache: &Cache, endpoint: &str) -> Result<Located, ModelError> {
    let access = Access {
        endpoint: Some(endpoint.into()),
        offline: false,
        proxy: false,
        patience: Duration::from_secs(5),
        stall: Duration::from_secs(10),
        python: "no-such-python".into(),
        pip_arguments: Vec::new(),
    };
    fetch(&manifest(), cache, &access, false, &mut Silent)
}

fn absent(cache: &Cache) -> bool {
    matches!(resolve_in(NAME, cache), Err(ModelError::Absent { .. }))
}

#[test]
fn a_folder_is_pulled_verified_and_locked() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path());
    let (endpoint, state) = serving(|_| ());
    let located = pull(&cache, &endpoint).unwrap();
    let lock = located.lock.clone().unwrap();
    let files = checkpoint();
    assert_eq!(
        lock.files.keys().collect::<Vec<_>>(),
        files.keys().collect::<Vec<_>>()
    );
    for (name, bytes) in &files {
        assert_eq!(&std::fs::read(located.path.join(name)).unwrap(), bytes, "{name}");
        assert_eq!(lock.files[name].sha256, hex(&Sha256::digest(bytes)), "{name}");
        assert_eq!(lock.files[name].bytes, bytes.len() as u64, "{name}");
    }
    assert_eq!(
        lock.bytes,
        files.values().map(|bytes| bytes.len() as u64).sum::<u64>()
    );
    assert_eq!(
        (lock.kind.as_str(), lock.revision.as_deref()),
        ("hub", Some(COMMIT))
    );
    assert_eq!(resolve_in(NAME, &cache).unwrap(), located);
    let model = Model::open(&located.path).unwrap();
    assert_eq!(model.sha256, lock.sha256);
    assert!(!cache.partial(NAME).exists());
    // Everything but the question for the commit was of that commit.
    let served = state.lock().unwrap().served.clone();
    assert!(
        served.iter().all(|(revision, _)| revision == COMMIT),
        "{served:?}"
    );
    assert_eq!(served.len(), files.len());
}

#[test]
fn an_interrupted_folder_goes_on_where_it_stopped() {
    for at in [FIRST, SECOND, "tokenizer.json"] {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path());
        let (endpoint, state) = serving(|state| state.interrupt = Some(at.into()));
        pull(&cache, &endpoint).unwrap_err();
        assert!(absent(&cache), "{at}");
        let before: BTreeSet<_> = state
            .lock()
            .unwrap()
            .served
            .drain(..)
            .map(|(_, file)| file)
            .collect();
        assert!(before.contains(at));
        let located = pull(&cache, &endpoint).unwrap();
        let after: BTreeSet<_> = state
            .lock()
            .unwrap()
            .served
            .drain(..)
            .map(|(_, file)| file)
            .collect();
        let twice: Vec<_> = before.intersection(&after).collect();
        assert_eq!(twice, [at], "what was whole is not fetched again");
        assert_eq!(before.union(&after).count(), checkpoint().len());
        Model::open(&located.path).unwrap();
    }
}

#[test]
fn a_file_that_is_not_what_the_metadata_says_is_refused() {
    // One with a SHA-256 in the metadata and one with git's name.
    for file in [SECOND, "config.json"] {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path());
        let (endpoint, state) = serving(|state| state.corrupt = Some(file.into()));
        let said = pull(&cache, &endpoint).unwrap_err().to_string();
        assert!(said.contains(file) && said.contains("expected sha256"), "{said}");
        assert!(absent(&cache));
        state.lock().unwrap().corrupt = None;
        pull(&cache, &endpoint).unwrap();
    }
}

#[test]
fn files_of_another_commit_or_missing_ones_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path());
    let (endpoint, state) = serving(|state| state.moved = Some(FIRST.into()));
    let said = pull(&cache, &endpoint).unwrap_err().to_string();
    assert!(said.contains(FIRST) && said.contains("expected commit"), "{said}");
    state.lock().unwrap().moved = None;
    let body = state.lock().unwrap().files.remove(FIRST).unwrap();
    pull(&cache, &endpoint).unwrap_err();
    assert!(absent(&cache));
    state.lock().unwrap().files.insert(FIRST.into(), body);
    pull(&cache, &endpoint).unwrap();
}

#[test]
fn an_index_that_names_files_elsewhere_never_becomes_a_path() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path().join("inner"));
    let (endpoint, state) = serving(|state| {
        let index = r#"{"weight_map": {"a": "../../../../outside.safetensors"}}"#;
        state
            .files
            .insert("model.safetensors.index.json".into(), index.into());
    });
    let said = pull(&cache, &endpoint).unwrap_err().to_string();
    assert!(said.contains("plain names"), "{said}");
    let served = state.lock().unwrap().served.clone();
    assert!(served.iter().all(|(_, file)| !file.contains("..")), "{served:?}");
    assert!(absent(&cache));
}

#[test]
fn a_folder_without_its_lock_or_a_file_is_no_model_yet() {
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::at(home.path());
    let (endpoint, _) = serving(|_| ());
    let located = pull(&cache, &endpoint).unwrap();
    for file in ["lock.json", SECOND] {
        std::fs::remove_file(located.path.join(file)).unwrap();
        assert!(absent(&cache), "{file}");
        assert_eq!(pull(&cache, &endpoint).unwrap(), located);
    }
}

#[test]
fn the_command_line_pulls_lists_shows_and_verifies_a_folder() {
    let home = tempfile::tempdir().unwrap();
    let (endpoint, _) = serving(|_| ());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veriharness"));
        for (name, _) in std::env::vars() {
            if ["VERIHARNESS_", "HF_"].iter().any(|ours| name.starts_with(ours))
                || name.to_lowercase().ends_with("_proxy")
            {
                command.env_remove(name);
            }
        }
        command.args(arguments).env("VERIHARNESS_HOME", home.path());
        let output = command.env("HF_ENDPOINT", &endpoint).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text)
    };
    let line = |text: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(NAME))
            .unwrap()
            .to_owned()
    };
    assert!(line(&run(&["model", "list"]).1).contains("not known yet"));
    let (code, path) = run(&["model", "pull", NAME]);
    assert_eq!(code, Some(0));
    let path = path.trim_end().to_owned();
    let listed = line(&run(&["model", "list"]).1);
    assert!(
        listed.contains("MB") && listed.trim_end().ends_with("hub"),
        "{listed}"
    );
    for model in [NAME, &path] {
        let (code, text) = run(&["model", "verify", model]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(&format!("{path}: good, sha256 ")), "{text}");
    }
    let (code, text) = run(&["model", "show", NAME]);
    assert_eq!(code, Some(0));
    for part in ["Apache-2.0", "14 AWQ/128", "2 of width 256", COMMIT] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let mut bytes = std::fs::read(Path::new(&path).join(SECOND)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(Path::new(&path).join(SECOND), bytes).unwrap();
    let (code, text) = run(&["model", "verify", NAME]);
    assert_eq!(code, Some(1));
    assert!(text.contains(&format!("{SECOND}: expected sha256")), "{text}");
}
