//! Why a command could not do what it was asked.

use strandline::snapshot::{self, ErrorKind};

/// What a command ends with instead of its result.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// The exit code.
    pub(crate) code: u8,
    /// Newer checkpoints have taken the place of the one that was read, and nothing has been
    /// printed of it: it may be tried again with the newest.
    pub(crate) subsumed: bool,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Something can't be read or written.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: 1, subsumed: false }
    }

    /// The same of a store, which tells a checkpoint that is gone from one that is damaged.
    pub(crate) fn of_store(error: &snapshot::Error) -> Self {
        if error.kind() == ErrorKind::Subsumed {
            return Self::subsumed(&full(error));
        }
        let refusals = [ErrorKind::AlreadyExists, ErrorKind::Held, ErrorKind::Invalid];
        let code = if refusals.contains(&error.kind()) { 2 } else { 1 };
        Self { code, ..Self::failed(full(error)) }
    }

    /// What was asked for makes no sense, or is refused.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: 2, subsumed: false }
    }

    /// A checkpoint was deleted before it had been read to its end.
    pub(crate) fn subsumed(what: &str) -> Self {
        let text = format!(
            "subsumed while reading: newer checkpoints are there; name one of them, or none for \
             the newest ({what})"
        );
        Self { text, code: 1, subsumed: true }
    }
}

/// The error and its causes on one line.
pub(crate) fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
