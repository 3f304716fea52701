//! No safetensors file, however broken or malicious, makes the program panic or allocate beyond the file's size.
//!
//! `VERIHARNESS_FUZZ_CASES` sets how many random files each property tries.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::path::Path;

use proptest::prelude::*;
use veriharness::model::ModelError;
use veriharness::model::safetensors::{Header, Safetensors};

/// A file with this header, and `data` bytes after it.
fn file(header: &str, data: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), &vec![7; data]].concat()
}

fn parse(bytes: &[u8]) -> Result<Header, ModelError> {
    Header::parse(bytes, bytes.len() as u64, Path::new("test.safetensors"))
}

fn tiny() -> Vec<u8> {
    let path = "models/tiny/qwen2-tied-awq/model.safetensors";
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

const TWO: &str = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2,3],"data_offsets":[4,16]},
    "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;

#[test]
fn a_good_header_is_read() {
    let header = parse(&file(TWO, 16)).unwrap();
    assert_eq!(header.tensors["a"].shape, [0usize; 0]);
    assert_eq!(header.tensors["b"].shape, [2, 3]);
    assert_eq!(header.tensors["b"].bytes, 12);
    assert_eq!(header.tensors["b"].start, 8 + TWO.len() as u64 + 4);
    assert!(parse(&file("{}  ", 0)).unwrap().tensors.is_empty());
}

#[test]
fn every_truncation_is_refused() {
    let bytes = tiny();
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let places = (0..20).map(|n| data + (bytes.len() - data) * n / 20);
    for length in (0..=data).chain(places).chain([bytes.len() - 1]) {
        let error = parse(&bytes[..length]).err();
        let error = error.unwrap_or_else(|| panic!("{length} bytes of {} were accepted", bytes.len()));
        assert!(matches!(error, ModelError::Malformed { .. }), "{length}: {error}");
    }
    parse(&bytes).unwrap();
    parse(&[bytes.as_slice(), &[0]].concat()).unwrap_err();
}

#[test]
fn headers_that_lie_are_refused_in_words() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let two = |first: &str, second: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{first}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{second}}}}}"#
        )
    };
    let mut endless = file("{}", 0);
    endless[..8].copy_from_slice(&(1u64 << 63).to_le_bytes());
    let long = "x".repeat(2000);
    for (bytes, expected) in [
        (Vec::new(), "the header's length"),
        (endless, "a header of at most 2 bytes"),
        (file("", 0), "well-formed"),
        (file("[]", 0), "an object of tensors"),
        (file("{} x", 0), "trailing characters"),
        (file("{\"t\":\0}", 0), "expected value"),
        (file(&"[".repeat(100_000), 0), "an object of tensors"),
        (
            file(&format!("{{\"t\":{}", "[".repeat(100_000)), 0),
            "invalid type",
        ),
        (file(&one("F32", "[2]", "[0,8]"), 7), "the rest of the file"),
        (file(&one("F32", "[2]", "[0,8]"), 9), "the rest of the file"),
        (file(&one("F32", "[2]", "[0,4]"), 4), "8 bytes for shape [2]"),
        (file(&one("F32", "[2]", "[8,0]"), 8), "offsets 8 to 0"),
        (
            file(&one("U8", "[1]", "[18446744073709551615,0]"), 1),
            "1 bytes for shape",
        ),
        (
            file(
                &one("U8", "[1]", "[18446744073709551614,18446744073709551615]"),
                1,
            ),
            "offset 0",
        ),
        (file(&one("F32", "[0]", "[0,0]"), 0), "1 to"),
        (file(&one("F32", "[4294967296,4294967296]", "[0,0]"), 0), "1 to"),
        (file(&one("F32", "[18446744073709551615,2]", "[0,0]"), 0), "1 to"),
        (file(&one("F32", "[36893488147419103232]", "[0,0]"), 0), "invalid"),
        (
            file(&one("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4),
            "8 dimensions",
        ),
        (file(&one("F32", "[-1]", "[0,4]"), 4), "invalid value"),
        (file(&one("F32", "[1.0]", "[0,4]"), 4), "invalid type"),
        (file(&one("F32", "[1]", "[0,4,8]"), 4), "t.data_offsets"),
        (file(&one("F32", "[1]", "[0]"), 4), "t.data_offsets"),
        (file(&one("Q4", "[1]", "[0,4]"), 4), "\"Q4\""),
        (file(r#"{"t":{"dtype":"F32","shape":[1]}}"#, 4), "data_offsets"),
        (file(&two("[0,4]", "[0,4]"), 4), "offset 4"),
        (file(&two("[0,4]", "[2,6]"), 6), "offset 4"),
        (file(&two("[0,4]", "[5,9]"), 9), "offset 4"),
        (file(&two("[1,5]", "[5,9]"), 9), "offset 0"),
        (
            file(&two("[0,4]", "[4,8]").replace("\"b\"", "\"a\""), 8),
            "the name \"a\" twice",
        ),
        (file(&TWO.replacen("\"dtype\"", "\"shape\"", 1), 16), "shape"),
        (file(r#"{"__metadata__":{"a":1}}"#, 0), "__metadata__"),
        (file(r#"{"__metadata__":{},"__metadata__":{}}"#, 0), "twice"),
        (
            file(&TWO.replace("\"b\"", &format!("\"{long}\"")), 16),
            "a name of 2000 bytes",
        ),
    ] {
        let said = parse(&bytes).map(|_| ()).unwrap_err().to_string();
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
        assert!(
            said.contains(expected) && said.contains("test.safetensors"),
            "{expected:?} is not in {said:?} of {head}"
        );
        assert!(said.len() < 700, "{} bytes of error", said.len());
    }
}

#[test]
fn a_header_beyond_the_limit_is_not_read() {
    let large = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(large.path(), (20u64 << 20).to_le_bytes()).unwrap();
    large.as_file().set_len(64 << 20).unwrap();
    let said = Safetensors::open(large.path()).unwrap_err().to_string();
    assert!(said.contains("a header of at most 16777216 bytes"), "{said}");
    for path in ["/", "/dev/zero", "/no/such.safetensors"] {
        assert!(Safetensors::open(Path::new(path)).is_err());
    }
}

#[test]
fn a_file_cut_after_it_was_opened_is_an_error() {
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), file(TWO, 16)).unwrap();
    let opened = Safetensors::open(path.path()).unwrap();
    assert_eq!(opened.read("b").unwrap(), [7; 12]);
    path.as_file().set_len(100).unwrap();
    assert!(matches!(opened.read("b"), Err(ModelError::Io { .. })));
    assert!(opened.read("c").unwrap_err().to_string().contains("a tensor c"));
}

fn cases(default: u32) -> ProptestConfig {
    let asked = std::env::var("VERIHARNESS_FUZZ_CASES").ok();
    ProptestConfig {
        cases: asked.and_then(|text| text.parse().ok()).unwrap_or(default),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// What a good header promises, checked on whatever is accepted.
fn promise(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(header) = parse(bytes) {
        let mut covered = 0;
        for entry in header.tensors.values() {
            prop_assert!(entry.start + entry.bytes as u64 <= bytes.len() as u64);
            let numbers: usize = entry.shape.iter().product();
            prop_assert_eq!(numbers * entry.dtype.bytes(), entry.bytes);
            covered += entry.bytes as u64;
        }
        let size = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        prop_assert_eq!(8 + size + covered, bytes.len() as u64);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(3000))]

    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((0usize..4000, any::<u8>()), 1..6)) {
        let mut bytes = file(TWO, 16);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        promise(&bytes)?;
    }

    #[test]
    fn changed_digits_and_marks_never_panic(
        changes in prop::collection::vec((0usize..4000, prop::sample::select(b"0123456789,:[]{}\"-.eE".to_vec())), 1..4),
        data in 0usize..40,
    ) {
        let mut bytes = file(TWO, data);
        for (at, byte) in changes {
            bytes[8 + at % TWO.len()] = byte;
        }
        promise(&bytes)?;
    }

    #[test]
    fn garbage_never_panics(tail in prop::collection::vec(any::<u8>(), 0..400)) {
        promise(&tail)?;
        let text: String = tail.iter().map(|byte| char::from(byte % 96 + 32)).collect();
        promise(&file(&text, tail.len() % 7))?;
    }

    #[test]
    fn ranges_are_accepted_only_if_they_fill_the_file(
        ranges in prop::collection::vec((0u64..12, 0u64..12), 0..4),
        data in 0usize..20,
    ) {
        let rows: Vec<String> = ranges.iter().enumerate().map(|(n, (from, to))| {
            format!(r#""{n}":{{"dtype":"U8","shape":[{}],"data_offsets":[{from},{to}]}}"#, to.saturating_sub(*from))
        }).collect();
        promise(&file(&format!("{{{}}}", rows.join(",")), data))?;
    }
}
