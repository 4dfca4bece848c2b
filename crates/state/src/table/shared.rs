//! Long keys and values, which a table must not copy with their page.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use triomphe::Arc;

/// A key or value behind a pointer: copying a page copies the pointer, and the value itself is
/// copied at its own first change after a freeze, if a view still has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Puts a value behind a pointer.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T: Clone> Shared<T> {
    /// The value, to be changed; copied first if a view has it too.
    pub fn make_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }

    /// The value, copied if a view has it too.
    #[must_use]
    pub fn into_inner(self) -> T {
        Arc::unwrap_or_clone(self.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A table with shared keys is searched by the keys themselves.
impl<T> Borrow<T> for Shared<T> {
    #[inline]
    fn borrow(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: serde::Serialize> serde::Serialize for Shared<T> {
    /// As the value itself.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}
