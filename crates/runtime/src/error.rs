//! What can go wrong in a job, and how a caller tells the cases apart.

use std::error::Error as StdError;
use std::fmt;

/// What a caller would do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The graph, an option or an argument is wrong: nothing was started. Mend it and start again.
    Invalid,
    /// Something outside stands in the way (output already there, another owner, a job of another
    /// name): nothing was started or changed. The message says the way out.
    Refused,
    /// The input can't be read, or a record can't be understood.
    Source,
    /// User code failed or panicked.
    Operator,
    /// The output can't be written or committed.
    Sink,
    /// A checkpoint can't be written, or the coordinator gave up on checkpoints.
    Checkpoint,
    /// A checkpoint can't be restored. The message names the damaged object.
    Restore,
    /// This process no longer owns the job: another one has taken over.
    Fenced,
    /// The storage failed in a way that leaves open whether a checkpoint exists. The next start
    /// finds out.
    Unsettled,
    /// The task on the other side of a channel has gone; its own error says why.
    PeerGone,
}

/// An error of a job: lower-case text that names the thing and the way out, and its cause.
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error with its text.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), source: None }
    }

    /// The same with the error that caused it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What a caller would do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Puts the name of the operator in front, once it is known.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.text = format!("{place}: {}", self.text);
        self
    }

    /// The whole chain of causes on one line, outermost first.
    #[must_use]
    pub fn full(&self) -> String {
        let mut text = self.text.clone();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// As [`Error::full`], since this is what a `main` that returns it prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;
