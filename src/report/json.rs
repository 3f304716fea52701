//! All tables as one JSON document, with numbers as numbers.
//!
//! Not rounded and never NaN: an absent value is `null`. A share is `{"part", "whole"}`, an interval
//! `{"low", "high"}`.

use super::table::{Cell, Table};
use serde_json::{Map, Value, json};

/// Version of the document's form.
pub const FORM: u32 = 1;

/// Renders the tables; `state` is `complete` or says how partial the run is.
pub fn render(study: &str, state: &str, tables: &[Table]) -> String {
    let tables: Vec<Value> = tables.iter().map(table).collect();
    let document = json!({ "form": FORM, "study": study, "state": state, "tables": tables });
    format!("{document:#}\n")
}

fn table(table: &Table) -> Value {
    let rows: Vec<Map<String, Value>> = table
        .rows
        .iter()
        .map(|row| table.header.iter().cloned().zip(row.iter().map(value)).collect())
        .collect();
    json!({
        "id": table.id,
        "scope": table.scope,
        "title": table.title,
        "note": table.note,
        "columns": table.header,
        "rows": rows,
    })
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Text(text) => json!(text),
        Cell::Count(count) => json!(count),
        Cell::Number { value, .. } | Cell::P(value) => json!(value),
        Cell::Share { part, whole } => json!({ "part": part, "whole": whole }),
        Cell::Interval(interval, _) => json!({ "low": interval.low, "high": interval.high }),
        Cell::Absent(_) => Value::Null,
    }
}
