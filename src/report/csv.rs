//! All tables as one CSV file in long form: one value a line.
//!
//! Not one grid a table: grids of different widths do not fit one file that a program can read. The columns are
//! `table,scope,state,row,column,value`; `row` counts from 1, and an absent value is empty.

use super::table::{Cell, Table};

/// Renders the tables; `state` is `complete` or says how partial the run is. Numbers are not rounded.
pub fn render(state: &str, tables: &[Table]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut line = |fields: [&str; 6]| {
        // Writing to memory does not fail, and every record has six fields.
        let _ = writer.write_record(fields);
    };
    line(["table", "scope", "state", "row", "column", "value"]);
    for table in tables {
        for (index, row) in table.rows.iter().enumerate() {
            let number = (index + 1).to_string();
            for (name, cell) in table.header.iter().zip(row) {
                for (part, value) in values(cell) {
                    let column = format!("{name}{part}");
                    line([table.id, &table.scope, state, &number, &column, &value]);
                }
            }
        }
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// The values of a cell, each with what its column's name gets appended.
fn values(cell: &Cell) -> Vec<(&'static str, String)> {
    match cell {
        Cell::Text(text) => vec![("", text.clone())],
        Cell::Count(count) => vec![("", count.to_string())],
        Cell::Number { value, .. } | Cell::P(value) => vec![("", value.to_string())],
        Cell::Share { part, whole } => vec![("", part.to_string()), (" of", whole.to_string())],
        Cell::Interval(interval, _) => vec![
            (" low", interval.low.to_string()),
            (" high", interval.high.to_string()),
        ],
        Cell::Absent(_) => vec![("", String::new())],
    }
}
