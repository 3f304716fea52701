//! Tables for a terminal: 80 columns, no colour.
//!
//! Not a format to parse (`csv`, `json`): numbers are rounded and long cells wrapped.

use super::page::{WIDTH, wrap};
use super::table::Table;
use comfy_table::{CellAlignment, ContentArrangement, Row, TableStyle, presets};

/// Renders the tables one after the other.
pub fn render(tables: &[Table]) -> String {
    let mut out = String::new();
    for table in tables {
        if !out.is_empty() {
            out.push('\n');
        }
        one(table, &mut out);
    }
    out
}

fn one(table: &Table, out: &mut String) {
    let mut line = |text: &str| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    wrap(&table.title, "").iter().for_each(|text| line(text));
    let mut grid = comfy_table::Table::new();
    let style: TableStyle = presets::UTF8_HORIZONTAL_ONLY;
    grid.load_style(style)
        .force_no_tty()
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH as u16)
        .set_header(Row::from(table.header.clone()));
    for row in &table.rows {
        grid.add_row(Row::from(row.iter().map(|cell| cell.shown()).collect::<Vec<_>>()));
    }
    for index in 0..table.header.len() {
        let numeric = table.rows.iter().all(|row| row[index].is_numeric()) && !table.rows.is_empty();
        if let (true, Some(column)) = (numeric, grid.column_mut(index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    grid.lines().for_each(|text| line(&text));
    if !table.note.is_empty() {
        wrap(&table.note, "").iter().for_each(|text| line(text));
    }
}
