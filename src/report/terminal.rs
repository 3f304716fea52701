//! Tables for a terminal: 80 columns, no colour.
//!
//! Not a format to parse (`csv`, `json`): numbers are rounded and long cells wrapped.

use super::page::{WIDTH, columns, wrap};
use super::table::Table;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Row, TableStyle, Width};

/// Spaces between columns: one of padding, one where the table's style could have a border.
const GAP: usize = 2;
const PADDING: u16 = 1;
/// Rules above, under the header and below.
const STYLE: TableStyle = TableStyle::new()
    .top_border(RULE)
    .header_separator(RULE)
    .bottom_border(RULE);
const RULE: LineStyle = LineStyle::none().fill('─').junction('─');

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
    grid.load_style(STYLE)
        .force_no_tty()
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH as u16)
        .set_header(Row::from(table.header.clone()));
    for row in &table.rows {
        grid.add_row(Row::from(row.iter().map(|cell| cell.shown()).collect::<Vec<_>>()));
    }
    let widths = widths(table);
    for index in 0..table.header.len() {
        let Some(column) = grid.column_mut(index) else {
            continue;
        };
        let padding = if index + 1 < table.header.len() {
            PADDING
        } else {
            0
        };
        column.set_padding((0, padding));
        if !table.rows.is_empty() && table.rows.iter().all(|row| row[index].is_numeric()) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if let Some(widths) = &widths {
            let width = widths[index] as u16 + padding;
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
    }
    grid.lines().for_each(|text| line(&text));
    if !table.note.is_empty() {
        wrap(&table.note, "").iter().for_each(|text| line(text));
    }
}

/// Widths at which no cell and no word of the header is broken, header lines kept whole from the left as far as there
/// is room; `None` when not even the former fits.
fn widths(table: &Table) -> Option<Vec<usize>> {
    let mut widths: Vec<usize> = Vec::new();
    for (index, name) in table.header.iter().enumerate() {
        let words = name.split(' ').map(columns);
        let cells = table.rows.iter().map(|row| columns(&row[index].shown()));
        widths.push(words.chain(cells).max().unwrap_or(0));
    }
    let gaps = GAP * widths.len().saturating_sub(1);
    let mut room = WIDTH.checked_sub(gaps + widths.iter().sum::<usize>())?;
    for (width, name) in widths.iter_mut().zip(&table.header) {
        let more = columns(name).saturating_sub(*width);
        if more <= room {
            *width += more;
            room -= more;
        }
    }
    Some(widths)
}
