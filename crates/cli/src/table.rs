//! Printing: tables for people, JSON for programs.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

/// Prints a table with a header; figures stand to the right.
pub(crate) fn print(header: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line(&table.trim_fmt());
}

/// Prints one JSON document.
pub(crate) fn json<T: Serialize>(value: &T) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => line(&text),
        Err(error) => say(&format!("error: {error}")),
    }
}

#[expect(clippy::print_stdout, reason = "this is what the command is for")]
pub(crate) fn line(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "what went wrong goes beside the output")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}
