//! Printing: tables for people, JSON for programs.

use std::io::{BufWriter, StdoutLock, Write};
use std::ops::ControlFlow;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::interrupt;

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

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Many lines. They end when nobody is reading any more, and when the command is interrupted.
pub(crate) struct Lines {
    out: BufWriter<StdoutLock<'static>>,
    begun: bool,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::new(std::io::stdout().lock()), begun: false }
    }

    /// Whether there has been one: then the work can't be begun again.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Cells with tabs between them.
    pub(crate) fn line(&mut self, cells: &[&str]) -> ControlFlow<()> {
        self.begun = true;
        for (number, cell) in cells.iter().enumerate() {
            let tab = if number > 0 { "\t" } else { "" };
            if write!(self.out, "{tab}{cell}").is_err() {
                return ControlFlow::Break(());
            }
        }
        self.end()
    }

    /// One JSON object.
    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> ControlFlow<()> {
        self.begun = true;
        if serde_json::to_writer(&mut self.out, value).is_err() {
            return ControlFlow::Break(());
        }
        self.end()
    }

    fn end(&mut self) -> ControlFlow<()> {
        match writeln!(self.out) {
            Ok(()) => interrupt::go_on(),
            Err(_) => ControlFlow::Break(()),
        }
    }

    /// Hands over what is left.
    pub(crate) fn finish(&mut self) {
        drop(self.out.flush());
    }
}
