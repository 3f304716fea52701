//! Tables as Markdown with GitHub's table syntax.
//!
//! Not HTML: what a cell holds is text, and nothing in it is taken for markup.

use super::table::Table;

/// Renders a document: a heading, then a section per table.
pub fn render(heading: &str, tables: &[Table]) -> String {
    let mut out = format!("# {}\n", escape(heading));
    for table in tables {
        out.push_str(&format!("\n## {}\n\n", escape(&table.title)));
        let header: Vec<String> = table.header.iter().map(|name| escape(name)).collect();
        out.push_str(&format!("| {} |\n|", header.join(" | ")));
        for index in 0..table.header.len() {
            let numeric = table.rows.iter().all(|row| row[index].is_numeric()) && !table.rows.is_empty();
            out.push_str(if numeric { " ---: |" } else { " --- |" });
        }
        out.push('\n');
        for row in &table.rows {
            let cells: Vec<String> = row.iter().map(|cell| escape(&cell.shown())).collect();
            out.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
        if !table.note.is_empty() {
            out.push_str(&format!("\n{}\n", escape(&table.note)));
        }
    }
    out
}

/// Characters that Markdown or its HTML would act on. An underscore inside a word is left alone by GitHub.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '`' | '[' | ']' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_markup() {
        assert_eq!(
            escape("a|b <script> *x* textworld.action_invalid"),
            "a\\|b &lt;script> \\*x\\* textworld.action_invalid"
        );
    }
}
