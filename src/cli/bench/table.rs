//! A table of figures as Markdown, CSV or JSON.
//!
//! Not the measuring.

use super::Format;
use serde_json::{Map, Value};
use std::io::Write;

/// Rows of named cells; all rows have the names of the first.
pub(super) struct Figures {
    pub(super) names: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Value>>,
}

impl Figures {
    /// Prints the table to stdout.
    pub(super) fn print(&self, format: Format) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        match format {
            Format::Json => {
                let row = |row: &Vec<Value>| -> Map<String, Value> {
                    let names = self.names.iter().map(|name| (*name).to_owned());
                    names.zip(row.iter().cloned()).collect()
                };
                let rows: Vec<_> = self.rows.iter().map(row).collect();
                writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
            }
            Format::Csv => {
                let mut csv = csv::Writer::from_writer(&mut out);
                csv.write_record(&self.names)?;
                for row in &self.rows {
                    csv.write_record(row.iter().map(text))?;
                }
                csv.flush()?;
            }
            Format::Md => {
                let cells: Vec<Vec<String>> = self
                    .rows
                    .iter()
                    .map(|row| row.iter().map(text).collect())
                    .collect();
                let width = |column: usize| {
                    let lengths = cells.iter().map(|row| row[column].chars().count());
                    lengths.chain([self.names[column].len()]).max().unwrap_or(0)
                };
                let widths: Vec<usize> = (0..self.names.len()).map(width).collect();
                let numeric = |column: usize| self.rows.iter().any(|row| row[column].is_number());
                let mut line = |cells: Vec<&str>| {
                    let padded = cells.iter().enumerate().map(|(i, cell)| match numeric(i) {
                        true => format!("{cell:>width$}", width = widths[i]),
                        false => format!("{cell:<width$}", width = widths[i]),
                    });
                    writeln!(out, "| {} |", padded.collect::<Vec<_>>().join(" | "))
                };
                line(self.names.clone())?;
                let rules: Vec<String> = (0..widths.len())
                    .map(|i| match numeric(i) {
                        true => format!("{}:", "-".repeat(widths[i] - 1)),
                        false => "-".repeat(widths[i]),
                    })
                    .collect();
                line(rules.iter().map(String::as_str).collect())?;
                for row in &cells {
                    line(row.iter().map(String::as_str).collect())?;
                }
            }
        }
        Ok(())
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Number(number) => match number.as_f64() {
            Some(x) if !number.is_u64() && x.abs() >= 100.0 => format!("{x:.0}"),
            Some(x) if !number.is_u64() => format!("{x:.2}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}
