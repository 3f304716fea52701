use std::path::Path;
use std::time::Instant;
use veriharness::backend::{Backend, SequenceId, Step, candle::CandleBackend};
use veriharness::model::{Model, chat::Message};

#[test]
fn probe() {
    let path = std::env::var("PROBE").unwrap();
    let t = Instant::now();
    let model = Model::open(Path::new(&path)).unwrap();
    println!("open {:?} {:?} eos {:?}", t.elapsed(), model.config, model.eos());
    let t = Instant::now();
    let mut backend = CandleBackend::load(&model).unwrap();
    println!("load {:?}", t.elapsed());
    let Ok(reference) = std::env::var("REF") else {
        return;
    };
    let reference: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(reference).unwrap()).unwrap();
    let mut worst = 0f64;
    for (n, prompt) in reference["prompts"].as_array().unwrap().iter().enumerate() {
        let messages: Vec<Message> = serde_json::from_value(prompt["messages"].clone()).unwrap();
        let ids: Vec<u32> = serde_json::from_value(prompt["ids"].clone()).unwrap();
        let t = Instant::now();
        let encoded = model.encode_chat(&messages).unwrap();
        let enc = t.elapsed();
        assert_eq!(encoded.text, prompt["text"].as_str().unwrap());
        assert_eq!(encoded.tokens, ids);
        let top: Vec<(u32, f64)> = serde_json::from_value(prompt["top20"].clone()).unwrap();
        let seq = SequenceId(n as u64);
        let t = Instant::now();
        let mut logits = backend
            .forward(&[Step {
                sequence: seq,
                tokens: &ids,
                start: 0,
                blocks: &[],
            }])
            .unwrap()
            .remove(0);
        let pre = t.elapsed();
        let d = top
            .iter()
            .map(|&(i, l)| (f64::from(logits[i as usize]) - l).abs())
            .fold(0.0, f64::max);
        worst = worst.max(d);
        let greedy: Vec<u32> = serde_json::from_value(prompt["greedy"].clone()).unwrap();
        let gaps: Vec<f64> = serde_json::from_value(prompt["greedy_gap"].clone()).unwrap();
        let t = Instant::now();
        let mut start = ids.len();
        let mut bad = vec![];
        let k = 16;
        for i in 0..k {
            let best = (0..logits.len())
                .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
                .unwrap() as u32;
            if best != greedy[i] {
                bad.push((i, gaps[i]));
            }
            logits = backend
                .forward(&[Step {
                    sequence: seq,
                    tokens: &greedy[i..i + 1],
                    start,
                    blocks: &[],
                }])
                .unwrap()
                .remove(0);
            start += 1;
        }
        println!(
            "{} n={} enc {:?} prefill {:.1} tok/s decode {:.1} tok/s worst {:.4} disagree {:?}",
            prompt["name"],
            ids.len(),
            enc,
            ids.len() as f64 / pre.as_secs_f64(),
            k as f64 / t.elapsed().as_secs_f64(),
            d,
            bad
        );
        backend.release(seq);
    }
    println!("worst {worst}");
}
