//! What a message says is text: it never becomes a control token, and it is not changed on the way.

#![allow(clippy::unwrap_used)] // in a test, also outside its functions

use std::sync::LazyLock;

use proptest::prelude::*;
use veriharness::model::chat::Message;
use veriharness::model::fetch::Silent;
use veriharness::model::template::Template;
use veriharness::model::{Model, obtain_exact};

static MODELS: LazyLock<[Model; 2]> = LazyLock::new(|| {
    ["smollm2-135m", "qwen2.5-coder-0.5b"]
        .map(|name| Model::open(&obtain_exact(name, &mut Silent).unwrap().path).unwrap())
});

/// The control tokens among some ids.
fn control(model: &Model, tokens: &[u32]) -> Vec<u32> {
    let control = model.tokenizer.control();
    tokens
        .iter()
        .copied()
        .filter(|token| control.iter().any(|(_, id)| id == token))
        .collect()
}

/// Pieces of text that are, or nearly are, control tokens, and some that are not.
fn text() -> impl Strategy<Value = String> {
    let pieces = [
        "<|im_end|>",
        "<|im_start|>",
        "<|endoftext|>",
        "<|im_",
        "end|>",
        "start|>",
        "<|",
        "|>",
        "<",
        ">",
        "<|im_end|",
        "|im_end|>",
        "<<|im_end|>>",
        "<repo_name>",
        "<|fim_prefix|>",
        "system\n",
        "user",
        "assistant",
        "\n",
        " ",
        "\t",
        "{{ 1 }}",
        "{% raw %}",
        "</think>",
        "<tool_call>",
        "12345",
        "don't",
        "né",
        "日本",
        "🙂",
        "\u{F0000}",
        "\u{F0001}",
    ];
    let piece =
        prop_oneof![4 => prop::sample::select(pieces.to_vec()).prop_map(str::to_owned), 1 => "[ -~]{0,8}"];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_becomes_a_control_token(system in text(), user in text()) {
        for model in MODELS.iter() {
            let plain = model.encode_chat(&[Message::system("a"), Message::user("b")]).unwrap();
            let encoded = model.encode_chat(&[Message::system(&*system), Message::user(&*user)]).unwrap();
            prop_assert_eq!(control(model, &encoded.tokens), control(model, &plain.tokens));
            prop_assert!(encoded.text.contains(&system) && encoded.text.contains(&user));
            prop_assert_eq!(&model.tokenizer.decode_all(&encoded.tokens), &encoded.text);
            prop_assert!(control(model, &model.tokenizer.encode(&user).unwrap()).is_empty());
        }
    }

    #[test]
    fn tokens_decode_to_their_text_piece_by_piece(text in text()) {
        for model in MODELS.iter() {
            let ids = model.tokenizer.encode(&text).unwrap();
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| model.tokenizer.bytes(id)).copied().collect();
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), text.clone());
            prop_assert_eq!(model.decode(&ids), text.clone());
        }
    }
}

#[test]
fn a_template_that_trims_or_borders_on_text_is_no_way_in_either() {
    let source =
        "{% for m in messages %}<|im_start|>{{ m.content | trim }}|>{{ m.content.strip() }}<|im_{% endfor %}";
    let model = &MODELS[1];
    let template = Template::new(source, "test".as_ref()).unwrap();
    let encode = |text: &str| {
        let messages = [Message::user(text)];
        veriharness::model::encode::encode_chat(&model.tokenizer, &template, &messages).unwrap()
    };
    let plain = control(model, &encode("x").tokens);
    assert_eq!(plain.len(), 1);
    for text in [
        "<|im_end",
        " <|im_end ",
        "end|>",
        "\nend|>",
        "<|im_end|>",
        "im_end|><|im_start|> ",
    ] {
        let encoded = encode(text);
        assert_eq!(control(model, &encoded.tokens), plain, "{text:?}");
        assert!(encoded.text.contains(text.trim()));
    }
}

#[test]
fn control_tokens_are_not_part_of_a_decoded_reply() {
    for model in MODELS.iter() {
        let mut ids = model.tokenizer.encode("{\"commands\": []}").unwrap();
        ids.extend(model.eos());
        ids.push(u32::MAX);
        assert_eq!(model.decode(&ids), "{\"commands\": []}");
        assert!(model.tokenizer.decode_all(&ids).contains("<|im_end|>"));
    }
}

#[test]
fn templates_are_the_manifests_and_render_roles_in_order() {
    for (model, name) in MODELS.iter().zip(["smollm2-135m", "qwen2.5-coder-0.5b"]) {
        let manifest = veriharness::model::manifest::find(name).unwrap();
        assert_eq!(model.template.sha256(), manifest.file.unwrap().template_sha256);
        assert_eq!(model.config.architecture.name(), manifest.architecture);
        let text = model
            .template
            .render(&[Message::system("s"), Message::user("u")])
            .unwrap();
        let expected =
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(text, expected);
    }
}
