//! Inputs that can be read again.
//!
//! A [`Source`] is a set of *splits*: parts of the input whose number and names don't depend on
//! parallelism (a whole file, a partition of a log). Each split is read by one [`SplitReader`] at
//! a time and has a position; positions are what a checkpoint keeps of a source. At a restore a
//! split may land on another subtask: its position goes with its name.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;

/// A replayable input.
pub trait Source: Send + Sync + 'static {
    /// What it yields.
    type Record: Send + 'static;
    /// Where reading goes on. Its `Display` is what a person reads in the log ("line 12, byte 90").
    type Position: Serialize + DeserializeOwned + Clone + Display + Send + 'static;
    /// Reads one split.
    type Reader: SplitReader<Record = Self::Record, Position = Self::Position>;

    /// Where the records come from, if that is a place which a sink might write to (a path): a job
    /// that writes to its own input is refused.
    fn input(&self) -> Option<String> {
        None
    }

    /// The names of all splits, in a stable order. Asked once at every start.
    ///
    /// # Errors
    /// The input is missing or can't be listed.
    fn splits(&self) -> Result<Vec<String>>;

    /// Opens one split, at its start or at a position that a reader of it gave before. The first
    /// record read is the one after that position.
    ///
    /// # Errors
    /// The split can't be opened, or no longer reaches the position.
    fn open(&self, split: &str, position: Option<&Self::Position>) -> Result<Self::Reader>;
}

/// Reads one split from a position on.
pub trait SplitReader: Send {
    /// What it yields.
    type Record;
    /// Where reading goes on.
    type Position;

    /// Appends at most `max` records to `out` (at least one unless it says otherwise).
    ///
    /// # Errors
    /// The input can't be read; what has been appended before counts.
    fn read(&mut self, max: usize, out: &mut Vec<Self::Record>) -> Result<Read>;

    /// The position after the last record that `read` has appended.
    fn position(&self) -> Self::Position;
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// There may be more.
    More,
    /// Nothing now; ask again after this time.
    Wait(Duration),
    /// The split has ended for good.
    End,
}
