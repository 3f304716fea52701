//! A table of figures as Markdown, CSV or JSON, each with the machine it was measured on.
//!
//! Not the measuring, and no rounding of what programs read: only Markdown shows fewer digits.

use super::Format;
use crate::cli::{complain, machine, open::BackendArgs};
use serde_json::{Map, Value, json};
use std::io::Write;

/// Widest line of a Markdown table that still pads its cells.
const WIDTH: usize = 80;

/// A column: its name in CSV and JSON, and its heading in Markdown, where one without a heading is left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) key: &'static str,
    pub(super) head: &'static str,
    pub(super) number: bool,
}

/// A column of words.
pub(super) const fn words(key: &'static str, head: &'static str) -> Column {
    Column {
        key,
        head,
        number: false,
    }
}

/// A column of numbers.
pub(super) const fn number(key: &'static str, head: &'static str) -> Column {
    Column {
        key,
        head,
        number: true,
    }
}

/// A value, and how Markdown shows it.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    value: Value,
    shown: String,
}

impl Cell {
    /// A value that is shown in other words.
    pub(super) fn shown(value: Value, shown: String) -> Self {
        Self { value, shown }
    }

    /// A value that is shown as it is.
    pub(super) fn plain(value: Value) -> Self {
        let shown = text(&value);
        Self { value, shown }
    }

    /// A number with three digits that count.
    pub(super) fn rounded(x: f64) -> Self {
        Self::shown(json!(x), three_digits(x))
    }
}

/// Three digits that count, or all before the point.
pub(super) fn three_digits(x: f64) -> String {
    match x.abs() {
        size if size >= 99.95 => format!("{x:.0}"),
        size if size >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// Rows of cells under the same columns.
pub(super) struct Figures {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Figures {
    /// Prints the table to stdout. The machine is a line above it; beside CSV it goes to stderr.
    pub(super) fn print(&self, format: Format, backend: &BackendArgs) -> anyhow::Result<()> {
        let line = format!("{}; {}", machine::cpu_name(), backend.describe());
        let mut out = std::io::stdout().lock();
        match format {
            Format::Json => {
                let row = |row: &Vec<Cell>| -> Map<String, Value> {
                    let keys = self.columns.iter().map(|column| column.key.to_owned());
                    keys.zip(row.iter().map(|cell| cell.value.clone())).collect()
                };
                let rows: Vec<_> = self.rows.iter().map(row).collect();
                let machine = json!({
                    "cpu": machine::cpu_name(), "threads": backend.threads(), "isa": backend.isa(),
                });
                let document = json!({ "machine": machine, "rows": rows });
                writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
            }
            Format::Csv => {
                complain(&line);
                let mut csv = csv::Writer::from_writer(Vec::new());
                csv.write_record(self.columns.iter().map(|column| column.key))?;
                for row in &self.rows {
                    csv.write_record(row.iter().map(|cell| text(&cell.value)))?;
                }
                out.write_all(&csv.into_inner().map_err(csv::IntoInnerError::into_error)?)?;
            }
            Format::Md => write!(out, "{line}\n\n{}", self.markdown())?,
        }
        out.flush()?;
        Ok(())
    }

    fn markdown(&self) -> String {
        let columns = || (0..self.columns.len()).filter(|&c| !self.columns[c].head.is_empty());
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].shown.chars().count());
            cells.chain([self.columns[column].head.len()]).max().unwrap_or(0)
        };
        let total: usize = columns().map(|column| width(column) + 3).sum();
        let pad = if total < WIDTH { " " } else { "" };
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells = columns().map(|c| {
                let (cell, width) = (cell(c), width(c));
                match self.columns[c].number {
                    true => format!("{pad}{cell:>width$}{pad}|"),
                    false => format!("{pad}{cell:<width$}{pad}|"),
                }
            });
            format!("|{}\n", cells.collect::<String>())
        };
        let rule = |c: usize| match self.columns[c].number {
            true => format!("{}:", "-".repeat(width(c) - 1)),
            false => "-".repeat(width(c)),
        };
        let mut out = line(&|c| self.columns[c].head.to_owned()) + &line(&rule);
        for row in &self.rows {
            out += &line(&|c| row[c].shown.clone());
        }
        out
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_table_loses_its_padding_and_a_column_without_a_heading() {
        let mut figures = Figures {
            columns: vec![words("name", "name"), number("hidden", ""), number("x", "x/s")],
            rows: vec![vec![
                Cell::plain(json!("a")),
                Cell::plain(json!(7)),
                Cell::rounded(12.345),
            ]],
        };
        assert_eq!(
            figures.markdown(),
            "| name |  x/s |\n| ---- | ---: |\n| a    | 12.3 |\n"
        );
        figures.rows[0][0] = Cell::plain(json!("b".repeat(70)));
        let wide = figures.markdown();
        assert!(wide.lines().all(|line| line.chars().count() == 77), "{wide}");
    }

    #[test]
    fn digits_that_count() {
        let said = [0.5, 9.999, 99.94, 99.96, 1234.5].map(three_digits);
        assert_eq!(said, ["0.50", "10.0", "99.9", "100", "1234"]);
    }
}
