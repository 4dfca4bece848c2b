//! What can go wrong.

use std::fmt;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What a caller would do differently about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The type, or a value of it, can't be a key. The job must use another key.
    KeyRefused,
    /// A value of state can't be encoded. The job must use another type of state.
    ValueRefused,
    /// Bytes aren't what this crate writes for the types asked for: they are damaged, or were written
    /// for other types.
    Corrupt,
    /// A setting lies outside its range.
    OutOfRange,
    /// A view was told to let go of its memory before it had been read. What was made of it is of no
    /// use; the state itself is as it was.
    Released,
}

/// An error of this crate: a [kind](Error::kind) to act on, a text to read, and its source if there
/// is one.
pub struct Error {
    // Boxed, so that a result without a value is one word on the path of a record.
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    text: String,
    source: Option<Source>,
}

impl Error {
    /// The coarse kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    #[cold]
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { kind, text: text.into(), source: None }) }
    }

    #[cold]
    pub(crate) fn key_refused(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::KeyRefused, text)
    }

    #[cold]
    pub(crate) fn corrupt(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, text)
    }

    pub(crate) fn because(mut self, source: impl Into<Source>) -> Self {
        self.inner.source = Some(source.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.inner.kind)
            .field("text", &self.inner.text)
            .field("source", &self.inner.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

/// A type that refuses to be encoded was used as a key.
impl serde::ser::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::key_refused(format!("the key can't be encoded: {text}"))
    }
}

/// A type that refuses what was decoded: the bytes are those of another type.
impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::corrupt(format!("the bytes don't fit the key's type: {text}"))
    }
}

/// The first bytes in hexadecimal digits, to name a key whose type can't be printed.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 64;
    let mut text = String::new();
    for byte in bytes.iter().take(SHOWN_BYTES_MAX) {
        text.push_str(&format!("{byte:02x}"));
    }
    if bytes.len() > SHOWN_BYTES_MAX {
        text.push('…');
    }
    text
}
