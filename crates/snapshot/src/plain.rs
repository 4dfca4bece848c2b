//! Bytes that are shared without being copied: a buffer, and a part of it.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::store::Mapped;

/// Some bytes of a shared buffer or of a mapped file. Cloning counts.
#[derive(Clone)]
pub(crate) struct Plain {
    buffer: Buffer,
    range: Range<usize>,
}

#[derive(Clone)]
enum Buffer {
    Owned(Arc<Vec<u8>>),
    Mapped(Mapped),
}

impl Default for Plain {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl Plain {
    /// A part of these bytes; empty where the range is out of place.
    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        let start = self.range.start.saturating_add(range.start).min(self.range.end);
        let end = self.range.start.saturating_add(range.end).min(self.range.end).max(start);
        Self { buffer: self.buffer.clone(), range: start..end }
    }
}

impl From<Vec<u8>> for Plain {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { buffer: Buffer::Owned(Arc::new(bytes)), range }
    }
}

impl From<Mapped> for Plain {
    fn from(mapped: Mapped) -> Self {
        let range = 0..mapped.len();
        Self { buffer: Buffer::Mapped(mapped), range }
    }
}

impl Deref for Plain {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes: &[u8] = match &self.buffer {
            Buffer::Owned(bytes) => bytes,
            Buffer::Mapped(mapped) => mapped,
        };
        bytes.get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plain({} bytes)", self.len())
    }
}
