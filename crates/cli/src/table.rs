//! Printing: tables for people, JSON for programs.

use std::io::Write;

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

/// A line of output. Nobody may be reading any more (`… | head`): then it is lost, quietly.
pub(crate) fn line(text: &str) {
    drop(writeln!(std::io::stdout(), "{text}"));
}

/// A line beside the output.
pub(crate) fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}
