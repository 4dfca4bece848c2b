//! What can go wrong, and how a caller tells the cases apart.

use std::error::Error as StdError;
use std::fmt;

/// What a caller would do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such object, job or checkpoint.
    NotFound,
    /// The object is there already.
    AlreadyExists,
    /// The checkpoint has been deleted while it was read, since newer ones are there. Nothing is
    /// damaged.
    Subsumed,
    /// Bytes are not what they were when they were written.
    Damaged,
    /// The storage, or a format in it, is of a kind that this build doesn't know.
    Unsupported,
    /// Another process has taken over the job.
    Fenced,
    /// Another process holds the job now.
    Held,
    /// There are several jobs, and none was named.
    Ambiguous,
    /// An argument is wrong.
    Invalid,
    /// The storage failed, and whether a checkpoint exists is not known. It must be taken neither
    /// for completed nor for given up; the next owner finds out.
    Unsettled,
    /// The storage failed.
    Io,
}

/// An error: lower-case text that names the object, and its cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

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

    pub(crate) fn damaged(object: &str, what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Damaged, format!("{object} is damaged: {what}"))
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
