//! A tokenizer that is of another kind, of another model or contradicts itself is refused; what is read never panics.
//!
//! Not the ids of good ones (`folders.rs`).

use super::*;
use veriharness::model::tokenizer::Tokenizer;

fn file(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("models/tiny")
        .join(name);
    serde_json::from_slice(&std::fs::read(path.join("tokenizer.json")).unwrap()).unwrap()
}

fn build(value: &Value) -> Result<Tokenizer, ModelError> {
    let ends = vec![("the test".to_owned(), 482)];
    Tokenizer::from_json(
        Path::new("tokenizer.json"),
        value.to_string().as_bytes(),
        512,
        ends,
    )
}

#[test]
fn tokenizers_that_make_no_sense_are_refused_in_words() {
    let special = |content: &str, id: u64| json!({"id": id, "content": content, "special": true});
    let stripping = json!([{"id": 480, "content": "<s>", "special": true, "lstrip": true}]);
    let nested = (0..120).fold(
        json!({"type": "NFC"}),
        |inner, _| json!({"type": "Sequence", "normalizers": [inner]}),
    );
    for (pointer, value, expected) in [
        ("/model", Value::Null, "model"),
        (
            "/model/type",
            json!("Unigram"),
            "unknown variant `Unigram`, expected `BPE`",
        ),
        ("/model/type", json!("WordPiece"), "expected `BPE`"),
        ("/model/byte_fallback", json!(true), "byte_fallback"),
        ("/model/dropout", json!(0.1), "dropout"),
        ("/model/continuing_subword_prefix", json!("##"), "affixes"),
        ("/model/end_of_word_suffix", json!("</w>"), "affixes"),
        ("/model/vocab", json!([["a", 0.0]]), "model.vocab"),
        ("/model/vocab/a", json!(-1), "model.vocab"),
        ("/model/vocab/a", json!(1u64 << 33), "model.vocab"),
        ("/model/vocab/a", json!(512), "an id under 512"),
        ("/model/vocab/a", json!(4_294_967_295u64), "an id under 512"),
        ("/model/vocab/a", json!(0), "a text of its own"),
        ("/model/merges/0", json!("ab"), "two halves"),
        ("/model/merges/0", json!("a é"), "merge 0"),
        ("/model/merges/0", json!(["a", "<|im_end|>"]), "merge 0"),
        ("/model/merges/0", json!(["a"]), "model.merges"),
        ("/model/merges/0", json!(7), "model.merges"),
        (
            "/pre_tokenizer",
            Value::Null,
            "one ByteLevel pre-tokenizer, found 0",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "Metaspace"}),
            "unknown variant `Metaspace`",
        ),
        (
            "/pre_tokenizer/pretokenizers/1/add_prefix_space",
            json!(true),
            "add_prefix_space",
        ),
        (
            "/pre_tokenizer/pretokenizers/1",
            json!({"type": "Digits", "individual_digits": true}),
            "found 0",
        ),
        (
            "/pre_tokenizer/pretokenizers/0",
            json!({"type": "ByteLevel"}),
            "found 2",
        ),
        (
            "/pre_tokenizer/pretokenizers/0/behavior",
            json!("Removed"),
            "expected `Isolated`",
        ),
        (
            "/pre_tokenizer/pretokenizers/0/pattern",
            json!({"Regex": "("}),
            "tokenizer: ",
        ),
        (
            "/pre_tokenizer/pretokenizers/0/pattern",
            json!({"Regex": "(".repeat(4000)}),
            "tokenizer: ",
        ),
        (
            "/pre_tokenizer/pretokenizers/0/pattern",
            json!({"Regex": "a".repeat(5000)}),
            "at most 4096 bytes",
        ),
        (
            "/pre_tokenizer/pretokenizers/0/pattern",
            json!({"Regex": "((a{1000}){1000}){1000}"}),
            "tokenizer: ",
        ),
        (
            "/normalizer",
            json!({"type": "Lowercase"}),
            "unknown variant `Lowercase`",
        ),
        ("/normalizer", nested, "recursion limit"),
        ("/added_tokens", json!([special("x", 512)]), "an id under 512"),
        ("/added_tokens", json!([special("", 480)]), "a text of its own"),
        ("/added_tokens", json!([special("<s>", 5)]), "a text of its own"),
        ("/added_tokens", json!([special("a", 490)]), "a text of its own"),
        (
            "/added_tokens",
            json!([special("<s>", 480), special("<s>", 481)]),
            "a text of its own",
        ),
        ("/added_tokens", stripping, "changes no text around it"),
        (
            "/added_tokens",
            json!([special("<s>", 480)]),
            "the test: expected an id under 481, found 482",
        ),
        ("/added_tokens", json!([{"id": 480}]), "content"),
    ] {
        let mut value_of = file(AWQ);
        *value_of.pointer_mut(pointer).unwrap() = value.clone();
        let said = build(&value_of).map(|_| ()).unwrap_err().to_string();
        assert!(
            said.contains(expected) && said.contains("tokenizer.json"),
            "{pointer} {value}: {expected:?} is not in {said:?}"
        );
        assert!(said.len() < 700, "{} bytes of error", said.len());
    }
}

#[test]
fn the_other_family_s_tokenizer_is_refused() {
    let folder = copy(AWQ);
    // A larger vocabulary than the embedding table has rows.
    change(folder.path(), "tokenizer.json", |value| {
        let vocab = value["model"]["vocab"].as_object_mut().unwrap();
        for id in 483..700 {
            vocab.insert(format!("zz{id}"), json!(id));
        }
    });
    refuses(
        folder.path(),
        &[
            "tokenizer.json",
            "an id under 512",
            "the rows of the embedding table",
        ],
    );
    // A smaller one, which lacks the ids that the configuration names.
    let folder = copy(LLAMA);
    let qwen = copy(AWQ);
    std::fs::copy(
        qwen.path().join("tokenizer.json"),
        folder.path().join("tokenizer.json"),
    )
    .unwrap();
    refuses(
        folder.path(),
        &["tokenizer.json", "eos_token_id", "an id under 483, found 484"],
    );
}

#[test]
fn added_words_are_matched_and_ids_may_have_holes() {
    let mut value = file(AWQ);
    let added = value["added_tokens"].as_array_mut().unwrap();
    added.push(json!({"id": 500, "content": "<tool_call>", "special": false, "normalized": false}));
    value["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}]});
    let tokenizer = build(&value).unwrap();
    assert_eq!(tokenizer.vocab(), 501);
    let ids = tokenizer.encode("a<tool_call>b").unwrap();
    assert_eq!(ids[1], 500, "{ids:?}");
    assert_eq!(tokenizer.decode(&ids), "a<tool_call>b");
    assert_eq!(
        tokenizer.encode("e\u{301}").unwrap(),
        tokenizer.encode("é").unwrap()
    );
    // Merges as texts are the merges as pairs.
    for merge in value["model"]["merges"].as_array_mut().unwrap() {
        *merge = json!(format!(
            "{} {}",
            merge[0].as_str().unwrap(),
            merge[1].as_str().unwrap()
        ));
    }
    let text = "You are in the kitchen. Answer with commands.";
    assert_eq!(
        build(&value).unwrap().encode(text).unwrap(),
        tokenizer.encode(text).unwrap()
    );
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn odd_parts_never_panic(
        pointer in prop::sample::select(vec![
            "/added_tokens", "/added_tokens/0", "/added_tokens/0/id", "/added_tokens/0/content", "/normalizer",
            "/pre_tokenizer", "/pre_tokenizer/type", "/pre_tokenizer/pretokenizers",
            "/pre_tokenizer/pretokenizers/0/pattern", "/pre_tokenizer/pretokenizers/0/pattern/Regex",
            "/pre_tokenizer/pretokenizers/0/behavior", "/pre_tokenizer/pretokenizers/1/use_regex", "/model",
            "/model/vocab", "/model/vocab/a", "/model/merges", "/model/merges/3", "/model/merges/3/1",
            "/model/ignore_merges",
        ]),
        value in odd(),
    ) {
        let mut file = file(AWQ);
        *file.pointer_mut(pointer).unwrap() = value;
        if let Ok(tokenizer) = build(&file) {
            let ids = tokenizer.encode("don't <|im_end|> 123 é").unwrap();
            let _ = tokenizer.decode_all(&ids);
        }
    }

    #[test]
    fn patterns_never_panic_or_hang(pattern in "[a-c.*+?()\\[\\]{}|^$\\\\0-9]{0,40}", text in "[a-c ]{0,60}") {
        let mut file = file(AWQ);
        *file.pointer_mut("/pre_tokenizer/pretokenizers/0/pattern/Regex").unwrap() = json!(pattern);
        if let Ok(tokenizer) = build(&file) {
            let _ = tokenizer.encode(&text);
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Tokenizer::from_json(Path::new("t"), &bytes, 512, Vec::new());
    }
}
