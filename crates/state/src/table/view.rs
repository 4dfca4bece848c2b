//! Views: a table as it was when it was frozen.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use triomphe::Arc as Counted;

use super::segment::Segment;
use super::spine::Spine;
use crate::epoch::{Epoch, Epochs};
use crate::error::{Error, ErrorKind};
use crate::key::KeyHash;

/// A table as it was when it was frozen. Cheap to clone, and shared between threads; it keeps alive
/// the pages that the table has replaced since, until all clones are gone or one is
/// [released](Self::release).
///
/// Whoever reads it takes segment by segment, each behind a lock that is held for as long as it takes
/// to count a reference. The table's owner never takes it but for a look whether it was released.
pub struct View<K, V> {
    held: Arc<Held<K, V>>,
}

/// What a view keeps alive.
pub(super) struct Held<K, V> {
    spine: Mutex<Option<Spine<K, V>>>,
    len: usize,
    /// As they were when the epoch was ended.
    epochs: Epochs,
}

impl<K, V> Held<K, V> {
    pub(super) fn is_held(&self) -> bool {
        self.spine.lock().is_some()
    }
}

impl<K, V> View<K, V> {
    pub(super) fn new(spine: Spine<K, V>, len: usize, epochs: Epochs) -> Self {
        Self { held: Arc::new(Held { spine: Mutex::new(Some(spine)), len, epochs }) }
    }

    pub(super) fn downgrade(&self) -> Weak<Held<K, V>> {
        Arc::downgrade(&self.held)
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.len == 0
    }

    /// The epoch that the freeze has ended: what [`Table::confirm`](super::Table::confirm) takes.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.held.epochs.current()
    }

    /// The epoch that was confirmed at the freeze: what was last changed in it or before is none of
    /// the view's changes.
    #[must_use]
    pub fn confirmed(&self) -> Epoch {
        self.held.epochs.confirmed()
    }

    /// Lets go of the memory, for all clones: whoever reads one now or later gets an error of kind
    /// [`Released`](ErrorKind::Released).
    pub fn release(&self) {
        // Dropped behind the lock: it may be the last reference to many pages.
        let spine = self.held.spine.lock().take();
        drop(spine);
    }

    /// Shows all entries in hash order, entries of equal hashes in any order, until the last one or
    /// until told to break off.
    ///
    /// # Errors
    /// The view was released.
    pub fn visit(
        &self,
        mut show: impl FnMut(KeyHash, &K, &V) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.visit_segments(|segment| {
            segment.iter().try_for_each(|entry| show(KeyHash(entry.hash), &entry.key, &entry.value))
        })
    }

    /// Shows what was changed after the confirmed epoch: keys with their values, and without one
    /// where they were removed. In hash order, keys of equal hashes in any order.
    ///
    /// # Errors
    /// The view was released.
    pub fn visit_changes(
        &self,
        mut show: impl FnMut(KeyHash, &K, Option<&V>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let epochs = self.held.epochs;
        self.visit_segments(|segment| {
            let mut changes = segment.changes(epochs);
            changes.try_for_each(|(hash, key, value)| show(KeyHash(hash), key, value))
        })
    }

    fn visit_segments(
        &self,
        mut visit: impl FnMut(&Segment<K, V>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut position = 0;
        while let Some(segment) = self.segment(position)? {
            if visit(&segment).is_break() {
                break;
            }
            position += 1;
        }
        Ok(())
    }

    /// The n-th segment, held by itself.
    fn segment(&self, position: usize) -> Result<Option<Counted<Segment<K, V>>>, Error> {
        let spine = self.held.spine.lock();
        let spine = spine.as_ref().ok_or_else(released)?;
        Ok(spine.nth_segment(position).cloned())
    }
}

impl<K: Eq, V: Clone> View<K, V> {
    /// The value that a key had.
    ///
    /// # Errors
    /// The view was released.
    pub fn get(&self, hash: KeyHash, key: &K) -> Result<Option<V>, Error> {
        let spine = self.held.spine.lock();
        let spine = spine.as_ref().ok_or_else(released)?;
        let place = spine.locate(hash.0, key);
        Ok(place.ok().map(|place| spine.value(place).clone()))
    }
}

fn released() -> Error {
    Error::new(ErrorKind::Released, "the view was released while it was being read")
}

impl<K, V> Clone for View<K, V> {
    fn clone(&self) -> Self {
        Self { held: Arc::clone(&self.held) }
    }
}

impl<K, V> fmt::Debug for View<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.held.len).finish_non_exhaustive()
    }
}
