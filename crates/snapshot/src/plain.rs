//! Bytes that are shared without being copied: a buffer, and a part of it.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Some bytes of a shared buffer. Cloning counts.
#[derive(Clone, Default)]
pub(crate) struct Plain {
    buffer: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Plain {
    /// A part of these bytes; empty where the range is out of place.
    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        let start = self.range.start.saturating_add(range.start).min(self.range.end);
        let end = self.range.start.saturating_add(range.end).min(self.range.end).max(start);
        Self { buffer: Arc::clone(&self.buffer), range: start..end }
    }
}

impl From<Vec<u8>> for Plain {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { buffer: Arc::new(bytes), range }
    }
}

impl Deref for Plain {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.buffer.get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plain({} bytes)", self.len())
    }
}
