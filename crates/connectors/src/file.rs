//! Files: lines in, lines out.

mod lines;
mod names;
mod parts;

pub use lines::{FileLines, Line, LineReader, Position};
pub use parts::{FileSink, PartWriter};
