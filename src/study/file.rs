//! The study file: TOML that says which rows to run and how.
//!
//! Not the rows themselves (`plan`). Overrides (`--set a.b=v`) are applied to the TOML before it is read, so a run's
//! identity is the text that results.

use super::StudyError;
use crate::candidate::Fences;
use crate::engine::{Sampling, Schema};
use crate::feedback::{Caps, Policy};
use crate::prompt::Profile;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Studies that come with the program, by name.
pub const BUILT_IN: [(&str, &str); 3] = [
    (
        "replication",
        include_str!("../../games/studies/replication.toml"),
    ),
    ("quick", include_str!("../../games/studies/quick.toml")),
    ("primary", include_str!("../../games/studies/primary.toml")),
];

/// A study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Names the run's folder.
    pub name: String,
    /// How prompts are laid out.
    pub profile: Profile,
    /// A manifest's name, or a path.
    pub model: String,
    /// What happens to code fences around a reply.
    #[serde(default)]
    pub fences: Fences,
    /// Most commands in a plan.
    #[serde(default = "four")]
    pub max_steps: usize,
    /// How much of a failure is shown; the profile's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<Caps>,
    /// Whether only replies of the profile's form can be drawn; no replication does this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub constrain: bool,
    /// How tokens are chosen, unless a lane says otherwise.
    #[serde(default)]
    pub sampling: Sampling,
    /// The parts.
    #[serde(rename = "lane")]
    pub lanes: Vec<Lane>,
}

/// One part of a study: every combination of its lists is a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// The lane's name.
    pub name: String,
    /// Games by name or path; `A..B` of two numbers is that range, both ends included.
    pub games: Vec<String>,
    /// The policies.
    #[serde(default = "all_policies")]
    pub policies: Vec<Policy>,
    /// Most calls of a row.
    #[serde(default = "budget_four")]
    pub budgets: Vec<u32>,
    /// Inference seeds.
    #[serde(default = "seed_zero")]
    pub seeds: Vec<u64>,
    /// How tokens are chosen in this lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
}

fn four() -> usize {
    4
}
fn all_policies() -> Vec<Policy> {
    Policy::ALL.to_vec()
}
fn budget_four() -> Vec<u32> {
    vec![4]
}
fn seed_zero() -> Vec<u64> {
    vec![0]
}

impl Study {
    /// Reads a study: a built-in name, or a file.
    ///
    /// # Errors
    /// [`StudyError::File`] naming the file, the key and what is wrong with it.
    pub fn open(spec: &str, overrides: &[String]) -> Result<Self, StudyError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == spec) {
            return Self::parse(&format!("{name}.toml"), text, overrides);
        }
        let names = BUILT_IN.map(|(name, _)| name).join(", ");
        let text = std::fs::read_to_string(Path::new(spec)).map_err(|error| StudyError::File {
            file: spec.to_owned(),
            place: "the file".into(),
            reason: format!("{error}; expected a study file or one of {names}"),
        })?;
        Self::parse(spec, &text, overrides)
    }

    /// Reads a study from text; `file` is what errors call it.
    ///
    /// # Errors
    /// As [`Study::open`].
    pub fn parse(file: &str, text: &str, overrides: &[String]) -> Result<Self, StudyError> {
        let error = |place: &str, reason: String| StudyError::File {
            file: file.to_owned(),
            place: place.to_owned(),
            reason,
        };
        let mut table: toml::Table = text
            .parse()
            .map_err(|e: toml::de::Error| error("TOML", e.to_string().trim_end().to_owned()))?;
        for item in overrides {
            set(&mut table, item).map_err(|reason| error(&format!("--set {item}"), reason))?;
        }
        let study: Study = serde_path_to_error::deserialize(table).map_err(|e| {
            let path = e.path().to_string();
            let place = if path == "." { "the study".into() } else { path };
            error(&place, e.into_inner().message().to_owned())
        })?;
        study.check().map_err(|(place, reason)| error(&place, reason))?;
        Ok(study)
    }

    /// What all replies of a constrained study are held to.
    pub fn schema(&self) -> Option<Schema> {
        self.constrain
            .then(|| Schema(self.profile.format().json_schema(self.max_steps)))
    }

    /// How tokens are chosen in a lane.
    pub fn sampling(&self, lane: &Lane) -> Sampling {
        let mut sampling = lane.sampling.clone().unwrap_or_else(|| self.sampling.clone());
        if let Some(schema) = self.schema() {
            sampling.schema = Some(schema);
        }
        sampling
    }

    fn check(&self) -> Result<(), (String, String)> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || !self.name.chars().all(plain) {
            let reason = format!(
                "expected letters, digits, `-`, `_` and `.`, found `{}`",
                self.name
            );
            return Err(("name".into(), reason));
        }
        if self.max_steps == 0 || self.max_steps > 1000 {
            return Err((
                "max_steps".into(),
                format!("expected 1 to 1000, found {}", self.max_steps),
            ));
        }
        self.sampling
            .check()
            .map_err(|reason| ("sampling".to_owned(), reason))?;
        if self.lanes.is_empty() {
            return Err(("lane".into(), "expected at least one [[lane]], found none".into()));
        }
        for (index, lane) in self.lanes.iter().enumerate() {
            let at = |key: &str| format!("lane[{index}].{key}");
            let lists = [
                ("games", lane.games.len()),
                ("policies", lane.policies.len()),
                ("budgets", lane.budgets.len()),
                ("seeds", lane.seeds.len()),
            ];
            if let Some((key, _)) = lists.into_iter().find(|(_, len)| *len == 0) {
                return Err((at(key), "expected at least one entry, found none".into()));
            }
            if lane.name.is_empty() || !lane.name.chars().all(plain) {
                let reason = format!(
                    "expected letters, digits, `-`, `_` and `.`, found `{}`",
                    lane.name
                );
                return Err((at("name"), reason));
            }
            if self.lanes[..index].iter().any(|other| other.name == lane.name) {
                return Err((at("name"), format!("`{}` names two lanes", lane.name)));
            }
            if let Some(budget) = lane.budgets.iter().find(|b| !(1..=1000).contains(*b)) {
                return Err((at("budgets"), format!("expected 1 to 1000 calls, found {budget}")));
            }
            if let Some(seed) = lane.seeds.iter().find(|seed| **seed > i64::MAX as u64) {
                return Err((
                    at("seeds"),
                    format!("expected at most {}, found {seed}", i64::MAX),
                ));
            }
            if let Some(sampling) = &lane.sampling {
                sampling.check().map_err(|reason| (at("sampling"), reason))?;
            }
        }
        Ok(())
    }

    /// The study as it is run, as TOML with every default written out.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// sha256 of [`Study::to_toml`], in hex.
    pub fn sha256(&self) -> String {
        format!("{:x}", Sha256::digest(self.to_toml()))
    }

    /// How much of a failure is shown.
    pub fn caps(&self) -> Caps {
        self.caps.clone().unwrap_or_else(|| self.profile.caps())
    }
}

/// Applies `a.b=v` to a table; an array is entered by number (`lane.0.budgets=[2]`). `v` is TOML; what does not
/// parse as TOML is a string.
fn set(table: &mut toml::Table, item: &str) -> Result<(), String> {
    let (path, value) = item.split_once('=').ok_or("expected KEY=VALUE")?;
    let value = value.trim();
    let parsed = format!("v = {value}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut t| t.remove("v"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let (parents, last) = match path.trim().rsplit_once('.') {
        Some((parents, last)) => (parents.split('.').collect(), last),
        None => (Vec::new(), path.trim()),
    };
    if last.is_empty() {
        return Err("expected a key before `=`".into());
    }
    let mut at = table;
    let mut keys = parents.into_iter();
    while let Some(key) = keys.next() {
        let mut next = at
            .entry(key)
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        if let toml::Value::Array(items) = next {
            let (index, len) = (keys.next().unwrap_or(""), items.len());
            let found = index.parse::<usize>().ok().and_then(|index| items.get_mut(index));
            next = found.ok_or(format!(
                "`{key}` has {len} entries, counted from 0, and none is `{index}`"
            ))?;
        }
        at = match next {
            toml::Value::Table(inner) => inner,
            other => return Err(format!("`{key}` is {}, not a table", other.type_str())),
        };
    }
    at.insert(last.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "name = \"t\"\nprofile = \"compact\"\nmodel = \"m\"\n[[lane]]\nname = \"primary\"\ngames = [\"1..2\"]\n";

    fn error(text: &str, overrides: &[&str]) -> String {
        let overrides: Vec<String> = overrides.iter().map(|s| (*s).to_owned()).collect();
        Study::parse("t.toml", text, &overrides).unwrap_err().to_string()
    }

    #[test]
    fn the_built_in_studies_are_sound() {
        for (name, _) in BUILT_IN {
            let study = Study::open(name, &[]).unwrap();
            assert_eq!(study.name, *name);
            assert_eq!(Study::parse("again", &study.to_toml(), &[]).unwrap(), study);
        }
    }

    #[test]
    fn defaults_are_the_papers() {
        let study = Study::parse("t.toml", TEXT, &[]).unwrap();
        assert_eq!(
            (study.max_steps, study.sampling.max_tokens, study.fences),
            (4, 512, Fences::Strict)
        );
        assert_eq!(study.lanes[0].policies, Policy::ALL);
        assert_eq!(study.caps().alternatives, Some(12));
    }

    #[test]
    fn overrides_change_the_study_and_its_hash() {
        let plain = Study::parse("t.toml", TEXT, &[]).unwrap();
        let set = ["sampling.max_tokens=64", "fences=strip", "lane.0.budgets=[2, 4]"].map(str::to_owned);
        let changed = Study::parse("t.toml", TEXT, &set).unwrap();
        assert_eq!(changed.lanes[0].budgets, [2, 4]);
        assert_eq!((changed.sampling.max_tokens, changed.fences), (64, Fences::Strip));
        assert_ne!(plain.sha256(), changed.sha256());
    }

    #[test]
    fn errors_name_file_place_expected_and_found() {
        assert!(error("name = ", &[]).starts_with("t.toml: TOML: "));
        assert!(
            error(TEXT, &["sampling.warmth=1"]).contains("t.toml: sampling.warmth: unknown field `warmth`")
        );
        assert!(
            error(TEXT, &["sampling.top_p=7"])
                .contains("sampling: top_p: expected a number from 0 to 1, found 7")
        );
        assert!(error(TEXT, &["max_steps=0"]).contains("max_steps: expected 1 to 1000, found 0"));
        assert!(error(TEXT, &["lane=[]"]).contains("lane: expected at least one [[lane]], found none"));
        assert!(error(TEXT, &["name=a/b"]).contains("found `a/b`"));
        assert!(error(TEXT, &["name"]).contains("--set name: expected KEY=VALUE"));
        assert!(error(TEXT, &["lane.5.seeds=[1]"]).contains("`lane` has 1 entries"));
        assert!(error(TEXT, &["name.x=1"]).contains("`name` is string, not a table"));
        assert!(
            Study::open("/nonexistent.toml", &[])
                .unwrap_err()
                .to_string()
                .contains("quick, primary")
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}", item in "\\PC{0,20}") {
            let _ = Study::parse("t.toml", &text, std::slice::from_ref(&item));
            let _ = Study::parse("t.toml", TEXT, &[item]);
        }
    }
}
