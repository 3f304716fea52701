//! Lanes to rows: which rows a study has, and which of them a session is to run.
//!
//! Not their order of execution beyond the study's own, and no engine: a plan can be shown without a model.

use super::StudyError;
use super::file::Study;
use crate::agent::RowSpec;
use crate::feedback::Policy;
use crate::gate::chain::Task;
use crate::gate::textworld::library;
use crate::trace::PlannedRow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which rows of a study a session runs. The study, and so the run, stays the same.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only these policies.
    pub policies: Vec<Policy>,
    /// Only these games, as the study names them or as ranges.
    pub games: Vec<String>,
    /// Only these budgets.
    pub budgets: Vec<u32>,
    /// Only these inference seeds.
    pub seeds: Vec<u64>,
    /// At most this many rows, the first ones.
    pub limit: Option<usize>,
}

impl std::fmt::Display for Selection {
    /// The flags that would make this selection; empty for all rows.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |name: &str, items: Vec<String>| match items.is_empty() {
            true => None,
            false => Some(format!("--{name} {}", items.join(","))),
        };
        let flags = [
            list(
                "policy",
                self.policies.iter().map(|p| p.name().to_owned()).collect(),
            ),
            list("games", self.games.clone()),
            list("budget", self.budgets.iter().map(u32::to_string).collect()),
            list("seed", self.seeds.iter().map(u64::to_string).collect()),
            self.limit.map(|n| format!("--limit {n}")),
        ];
        write!(f, "{}", flags.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// All rows of a study, ready to run.
pub struct Plan {
    /// The study.
    pub study: Study,
    /// The rows in the study's order.
    pub rows: Vec<Arc<RowSpec>>,
    /// sha256 of each game's file, by task id.
    pub tasks: BTreeMap<String, String>,
}

impl Plan {
    /// Loads the games of a study and lays out its rows.
    ///
    /// # Errors
    /// [`StudyError::Game`] for a game that is not there or not sound.
    pub fn new(study: Study) -> Result<Self, StudyError> {
        let mut games: BTreeMap<String, Task> = BTreeMap::new();
        let mut tasks = BTreeMap::new();
        let mut rows = Vec::new();
        for lane in &study.lanes {
            for name in expand(&lane.games) {
                if !games.contains_key(&name) {
                    let game = library::open(&name).map_err(|source| StudyError::Game {
                        name: name.clone(),
                        source,
                    })?;
                    tasks.insert(name.clone(), game.sha256().to_owned());
                    let task = Task::TextWorld {
                        id: name.clone(),
                        game: Arc::new(game),
                        max_steps: study.max_steps,
                    };
                    games.insert(name.clone(), task);
                }
                let task = &games[&name];
                for &policy in &lane.policies {
                    for &budget in &lane.budgets {
                        for &seed in &lane.seeds {
                            rows.push(Arc::new(RowSpec {
                                planned: PlannedRow::new(&lane.name, &name, policy.name(), budget, seed),
                                policy,
                                view: task.view(),
                                task: task.clone(),
                                profile: study.profile,
                                caps: study.caps(),
                                fences: study.fences,
                                sampling: study.sampling(lane),
                            }));
                        }
                    }
                }
            }
        }
        let mut keys: Vec<&str> = rows.iter().map(|row| row.planned.key.as_str()).collect();
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(StudyError::File {
                file: study.name.clone(),
                place: "lane".into(),
                reason: format!("row {} is listed twice", pair[0]),
            });
        }
        Ok(Self { study, rows, tasks })
    }

    /// The rows that a selection picks, in the study's order.
    ///
    /// # Errors
    /// [`StudyError::NothingSelected`] when it picks none.
    pub fn select(&self, selection: &Selection) -> Result<Vec<Arc<RowSpec>>, StudyError> {
        let games = expand(&selection.games);
        let any = |empty: bool, found: bool| empty || found;
        let nothing = |filter: String| StudyError::NothingSelected {
            study: self.study.name.clone(),
            filter: format!("`{filter}`"),
            has: self.summary(),
        };
        if let Some(game) = games.iter().find(|game| !self.tasks.contains_key(*game)) {
            return Err(nothing(format!("--games {game}")));
        }
        let picked = self.rows.iter().filter(|row| {
            let planned = &row.planned;
            any(
                selection.policies.is_empty(),
                selection.policies.contains(&row.policy),
            ) && any(games.is_empty(), games.contains(&planned.task))
                && any(
                    selection.budgets.is_empty(),
                    selection.budgets.contains(&planned.budget),
                )
                && any(
                    selection.seeds.is_empty(),
                    selection.seeds.contains(&planned.seed),
                )
        });
        let picked: Vec<_> = picked
            .take(selection.limit.unwrap_or(usize::MAX))
            .cloned()
            .collect();
        if picked.is_empty() {
            return Err(nothing(selection.to_string()));
        }
        Ok(picked)
    }

    fn summary(&self) -> String {
        let lanes = self.study.lanes.iter().map(|lane| {
            let policies: Vec<_> = lane.policies.iter().map(|p| p.name()).collect();
            format!(
                "lane {}: games {}; policies {}; budgets {:?}; seeds {:?}",
                lane.name,
                lane.games.join(", "),
                policies.join(", "),
                lane.budgets,
                lane.seeds
            )
        });
        lanes.collect::<Vec<_>>().join("; ")
    }
}

/// Game names with ranges `A..B` written out, both ends included. A range of more than 100,000 stays a name.
fn expand(games: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for game in games {
        let ends = game
            .split_once("..")
            .and_then(|(a, b)| Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?)));
        match ends {
            Some((first, last)) if first <= last && last - first < 100_000 => {
                names.extend((first..=last).map(|n| n.to_string()));
            }
            _ => names.push(game.clone()),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_both_ends() {
        let expand = |game: &str| expand(&[game.to_owned()]);
        assert_eq!(expand("20261051..20261053"), ["20261051", "20261052", "20261053"]);
        assert_eq!(expand("3..2"), ["3..2"]);
        assert_eq!(expand("../game.json"), ["../game.json"]);
    }

    #[test]
    fn the_primary_study_has_two_hundred_rows() {
        let plan = Plan::new(Study::open("primary", &[]).unwrap()).unwrap();
        assert_eq!((plan.rows.len(), plan.tasks.len()), (200, 50));
        let selection = Selection {
            games: vec!["20261052".into()],
            limit: Some(3),
            ..Selection::default()
        };
        let keys: Vec<_> = plan
            .select(&selection)
            .unwrap()
            .iter()
            .map(|r| r.planned.key.clone())
            .collect();
        assert_eq!(keys[0], "primary/20261052/RawDiag/b4/s0");
        assert_eq!(keys.len(), 3);
        let none = Selection {
            budgets: vec![6],
            ..Selection::default()
        };
        let error = plan.select(&none).err().unwrap().to_string();
        assert!(
            error.contains("`--budget 6`") && error.contains("budgets [4]"),
            "{error}"
        );
    }
}
