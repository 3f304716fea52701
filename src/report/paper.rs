//! The published results of the paper, for the tables that set them beside a run's own.
//!
//! Not a target and not a test: the paper's models are larger ones. The numbers are data
//! (`games/studies/paper_results.json`), and none of them is computed here.

use serde::Deserialize;
use std::sync::LazyLock;

/// All published results.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Published {
    /// By model.
    pub models: Vec<Model>,
}

/// One of the paper's models.
#[derive(Clone, Debug, Deserialize)]
pub struct Model {
    /// Its full name.
    pub name: String,
    /// Its name in tables.
    pub short: String,
    /// Its results.
    pub lanes: Vec<Lane>,
}

/// Results of one lane at one budget.
#[derive(Clone, Debug, Deserialize)]
pub struct Lane {
    /// The lane.
    pub lane: String,
    /// Most calls of a row.
    pub budget: u32,
    /// By policy.
    pub policies: Vec<PolicyResult>,
    /// The planned contrasts; empty where the paper gives none.
    #[serde(default)]
    pub contrasts: Vec<ContrastResult>,
}

/// One policy's results; `None` where the paper gives no number.
#[derive(Clone, Debug, Deserialize)]
pub struct PolicyResult {
    /// The policy.
    pub policy: String,
    /// Successful rows.
    pub wins: u64,
    /// Rows.
    pub rows: u64,
    /// Rows won by their first call.
    pub first_call_wins: Option<u64>,
    /// Rows whose last plan held an invalid action.
    pub invalid_action_rows: Option<u64>,
    /// Calls.
    pub calls: Option<u64>,
    /// Mean words of a retry's prompt.
    pub retry_words: Option<f64>,
    /// Words of all prompts.
    pub prompt_words: Option<u64>,
}

/// One contrast's results.
#[derive(Clone, Debug, Deserialize)]
pub struct ContrastResult {
    /// The policy that is compared with.
    pub baseline: String,
    /// The policy that is compared.
    pub treatment: String,
    /// Games that only the treatment solved.
    pub treatment_only: Option<u64>,
    /// Games that only the baseline solved.
    pub baseline_only: Option<u64>,
    /// Difference in points.
    pub points: f64,
    /// Lower end of its 95 % interval, in points.
    pub low: f64,
    /// Upper end, in points.
    pub high: f64,
    /// p-value after Holm's correction.
    pub holm_p: f64,
    /// Difference in calls per game.
    pub calls_per_game: Option<f64>,
}

/// Parsed once; the file is part of the program and a test reads it.
static PUBLISHED: LazyLock<Published> = LazyLock::new(|| {
    let text = include_str!("../../games/studies/paper_results.json");
    serde_json::from_str(text).unwrap_or_default()
});

/// The paper's models with their results for a lane and budget; empty when it has none.
pub fn beside(lane: &str, budget: u32) -> Vec<(&'static Model, &'static Lane)> {
    let models = PUBLISHED.models.iter();
    models
        .flat_map(|model| model.lanes.iter().map(move |found| (model, found)))
        .filter(|(_, found)| found.lane == lane && found.budget == budget)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_numbers_agree_with_each_other() {
        assert_eq!(PUBLISHED.models.len(), 2);
        for (model, lane) in beside("primary", 4) {
            assert_eq!(lane.contrasts.len(), 4);
            for contrast in &lane.contrasts {
                let wins = |name: &str| lane.policies.iter().find(|p| p.policy == name).unwrap().wins as f64;
                let gain = wins(&contrast.treatment) - wins(&contrast.baseline);
                assert_eq!(100.0 * gain / 50.0, contrast.points, "{}", model.name);
                let discordant =
                    contrast.treatment_only.unwrap() as f64 - contrast.baseline_only.unwrap() as f64;
                assert_eq!(gain, discordant);
                assert!(contrast.low <= contrast.points && contrast.points <= contrast.high);
            }
        }
        for budget in [2, 4, 6, 8] {
            assert_eq!(beside("budgets", budget).len(), 2);
        }
        assert_eq!((beside("sampled", 4).len(), beside("humaneval", 4).len()), (1, 2));
        assert!(beside("primary", 3).is_empty());
    }
}
