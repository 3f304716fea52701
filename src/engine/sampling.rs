//! How tokens are chosen and when a completion ends: the settings of a study.
//!
//! Not the choosing itself (`sampler`), and not what a seed or a row adds to it.

use super::Schema;
use serde::{Deserialize, Serialize};

/// Most new tokens that a study may ask for.
pub const MAX_TOKENS: usize = 1 << 20;

/// Most stop strings.
const MAX_STOPS: usize = 16;

/// Most bytes of a stop string.
const MAX_STOP: usize = 256;

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f64,
    /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f64,
    /// Keep the k likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep tokens at least this likely, relative to the likeliest; 0 keeps all.
    pub min_p: f64,
    /// Most tokens of a completion.
    pub max_tokens: usize,
    /// Divides the logits above 0 of tokens that the prompt or the completion has, and multiplies those below; 1 is
    /// off.
    #[serde(skip_serializing_if = "is_one")]
    pub repetition_penalty: f64,
    /// The completion ends before the first of these strings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Only replies that are documents of this JSON schema can be drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
}

// Settings that came later are written only when they are used: the hashes of older studies stay what they are.
fn is_one(x: &f64) -> bool {
    *x == 1.0
}

impl Default for Sampling {
    /// The paper's primary decoding: greedy, 512 tokens (section 3).
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_tokens: 512,
            repetition_penalty: 1.0,
            stop: Vec::new(),
            schema: None,
        }
    }
}

impl Sampling {
    /// Whether the largest logit, as the model gives it, decides every draw.
    pub fn only_largest(&self) -> bool {
        self.is_greedy() && self.repetition_penalty == 1.0
    }

    /// Whether every draw is the likeliest token.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Says which value is out of range, and which range it has.
    ///
    /// # Errors
    /// The name, the value and the range, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let unit = |name: &str, value: f64| match value {
            v if (0.0..=1.0).contains(&v) => Ok(()),
            v => Err(format!("{name}: expected a number from 0 to 1, found {v}")),
        };
        unit("top_p", self.top_p)?;
        unit("min_p", self.min_p)?;
        if !(0.0..=100.0).contains(&self.temperature) {
            return Err(format!(
                "temperature: expected a number from 0 to 100, found {}",
                self.temperature
            ));
        }
        if !(1..=MAX_TOKENS).contains(&self.max_tokens) {
            return Err(format!(
                "max_tokens: expected 1 to {MAX_TOKENS}, found {}",
                self.max_tokens
            ));
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty <= 10.0) {
            return Err(format!(
                "repetition_penalty: expected a number above 0, at most 10, found {}",
                self.repetition_penalty
            ));
        }
        if self.stop.len() > MAX_STOPS {
            return Err(format!(
                "stop: expected at most {MAX_STOPS} strings, found {}",
                self.stop.len()
            ));
        }
        match self
            .stop
            .iter()
            .find(|stop| !(1..=MAX_STOP).contains(&stop.len()))
        {
            Some(stop) => Err(format!(
                "stop: expected strings of 1 to {MAX_STOP} bytes, found one of {}",
                stop.len()
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_off_are_not_written() {
        let plain = serde_json::to_string(&Sampling::default()).unwrap();
        assert_eq!(
            plain,
            r#"{"temperature":0.0,"top_p":1.0,"top_k":0,"min_p":0.0,"max_tokens":512}"#
        );
        assert_eq!(
            serde_json::from_str::<Sampling>(&plain).unwrap(),
            Sampling::default()
        );
        let used = Sampling {
            repetition_penalty: 1.1,
            stop: vec!["\n\n".into()],
            ..Sampling::default()
        };
        let text = serde_json::to_string(&used).unwrap();
        assert!(
            text.ends_with(r#""repetition_penalty":1.1,"stop":["\n\n"]}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Sampling>(&text).unwrap(), used);
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let said = |change: fn(&mut Sampling)| {
            let mut sampling = Sampling::default();
            change(&mut sampling);
            sampling.check().err()
        };
        assert_eq!(said(|s| s.repetition_penalty = 10.0), None);
        for bad in [0.0, -1.0, 10.1, f64::NAN, f64::INFINITY] {
            let sampling = Sampling {
                repetition_penalty: bad,
                ..Sampling::default()
            };
            let said = sampling.check().unwrap_err();
            assert!(
                said.starts_with("repetition_penalty: expected a number above 0"),
                "{said}"
            );
        }
        assert_eq!(said(|s| s.stop = vec!["x".repeat(256); 16]), None);
        assert_eq!(
            said(|s| s.stop = vec!["x".into(); 17]).as_deref(),
            Some("stop: expected at most 16 strings, found 17")
        );
        assert_eq!(
            said(|s| s.stop = vec!["x".into(), String::new()]).as_deref(),
            Some("stop: expected strings of 1 to 256 bytes, found one of 0")
        );
        assert!(said(|s| s.stop = vec!["x".repeat(257)]).is_some());
    }
}
