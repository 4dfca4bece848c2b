//! Files: lines in, lines out.

mod lines;
mod names;
mod parts;

pub use lines::{FileLines, Line, LineReader, Position};
pub use parts::{FileSink, PartWriter};

/// A path so that two of one place are equal: resolved as far as it exists.
fn place(path: &std::path::Path) -> String {
    let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    std::fs::canonicalize(path).unwrap_or_else(|_| absolute()).display().to_string()
}
