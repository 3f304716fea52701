//! What the tables of one condition share: their titles, and a row or a column per policy.
//!
//! Not a table: `tables` and `beside` make them.

use super::figures::{Condition, PolicyFigures};
use super::overview::Overview;
use super::table::{Cell, Table};
use std::collections::BTreeMap;

/// What all tables of a condition share.
pub(super) struct Maker<'a> {
    pub(super) condition: &'a Condition,
    pub(super) overview: &'a Overview,
}

impl Maker<'_> {
    pub(super) fn table(
        &self,
        id: &'static str,
        title: &str,
        header: &[&str],
        rows: Vec<Vec<Cell>>,
        note: impl Into<String>,
    ) -> Table {
        let Condition { lane, budget, .. } = self.condition;
        let title = format!("{title}: lane {lane}, budget {budget}");
        Table {
            id,
            scope: format!("{lane}/b{budget}"),
            title: self.overview.title(&title),
            note: note.into(),
            header: header.iter().map(|&name| name.to_owned()).collect(),
            rows,
        }
    }

    /// A row per policy: its name, then what `cells` gives.
    pub(super) fn by_policy(&self, cells: impl Fn(&PolicyFigures) -> Vec<Cell>) -> Vec<Vec<Cell>> {
        let policies = self.condition.policies.iter();
        policies
            .map(|figures| {
                let mut row = vec![Cell::text(&figures.policy)];
                row.extend(cells(figures));
                row
            })
            .collect()
    }

    /// A column per policy, a row per name that any of them has, in the order of `first` and then by name.
    pub(super) fn across(
        &self,
        first: &[&str],
        counts: impl Fn(&PolicyFigures) -> BTreeMap<String, u64>,
    ) -> Vec<(String, Vec<Cell>)> {
        let columns: Vec<BTreeMap<String, u64>> = self.condition.policies.iter().map(counts).collect();
        let mut names: Vec<&String> = columns.iter().flat_map(BTreeMap::keys).collect();
        names.sort_by_key(|name| (first.iter().position(|f| f == name).unwrap_or(first.len()), *name));
        names.dedup();
        let cell = |column: &BTreeMap<String, u64>, name| Cell::Count(column.get(name).copied().unwrap_or(0));
        names
            .into_iter()
            .map(|name| (name.clone(), columns.iter().map(|c| cell(c, name)).collect()))
            .collect()
    }

    pub(super) fn policy_names(&self) -> impl Iterator<Item = &str> {
        self.condition
            .policies
            .iter()
            .map(|figures| figures.policy.as_str())
    }
}
