//! The heap table: entries in hash order, frozen without copying them.
//!
//! ```text
//!  spine      [ group | group | group ]            one per table; a view is a copy of this
//!                 │       │       │                (pointers only)
//!  group      [ segment | … up to 64 ]             in the order in which they came
//!                  │
//!  segment    [ page | page | … up to 256 ]        equal hash ranges, a power of two of them
//!                │      │
//!  page       tags    [ 2 B, 2 B, … 32 of them ]   the upper bits of each hash, in order
//!             stamps  [ 1 B, 1 B, … 32 of them ]   when each was last changed
//!             entries [ (hash, K, V), …         ]  in hash order, about 12–24
//!             gone    [ (hash, K), …            ]  removed, and in a base or a view perhaps
//! ```
//!
//! # Lookup
//!
//! The spine guesses a segment from how far the hash lies into the hashes in use (they spread
//! evenly, so the guess is nearly always right), the segment shifts the hash to a page, the page
//! counts the smaller tags, all at once. Keys are compared only when the hashes are equal.
//!
//! # Growth
//!
//! A segment whose pages hold 24 entries on average doubles its pages; one that has 256 pages splits
//! in two by its hash range. Either moves the 24 · 256 = 6 144 entries of a segment at most (colliding
//! hashes apart) and nothing else, so no insertion is slower than that, however large the table.
//!
//! # Freezing
//!
//! Groups, segments and pages are shared by reference counts. [`Table::freeze`] copies the spine: one
//! pointer per group, and a group holds 196 608 to 393 216 entries. 10⁷ entries are 26 to 51 pointers.
//! The first write to a group after that copies its 64 pointers, the first write to a segment its page
//! pointers (at most 256), the first write to a page the page. Writes to what no view holds copy
//! nothing. Keys and values are cloned with their page; long ones belong behind a [`Shared`].
//!
//! # Changes
//!
//! A page remembers for each entry in which [epoch](crate::epoch) it was last changed, and the keys
//! that were removed, until that is confirmed; beside each pointer to a page, and for each segment, is
//! the newest epoch in it. [`View::visit_changes`] passes by clean segments and pages without touching
//! them. An entry that came and went between two freezes leaves nothing behind.
//!
//! What is confirmed of the removed keys is dropped when their page is next written to, and by a sweep
//! that goes on by one page with each removal: at any time there are as many of them as are not
//! confirmed, and at most one for each page besides, on average.
//!
//! # Memory
//!
//! An entry takes its hash and its own size; a page adds 96 bytes for tags and stamps, 48 for its
//! header, what the allocator takes for two pieces, and room for 2 entries on average. At 19 entries a
//! page (10⁷ entries) pairs of `u64` take 35 bytes each by this count, and 38 at 15 a page (10⁶). The
//! process has about a fifth more, since pages are made anew while a table grows.
//!
//! # Colliding hashes
//!
//! Entries with equal hashes lie next to each other and are compared one by one: access is linear in
//! how many share one hash, and such a page grows past its usual size.
//!
//! # Removal
//!
//! A segment whose pages run empty halves their number; segments aren't merged. A table from which
//! everything has been removed, and confirmed, keeps nothing.

mod page;
mod segment;
mod shared;
mod spine;
mod stamp;
mod view;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Weak;

use triomphe::Arc;

pub use self::shared::Shared;
pub use self::view::View;

use self::page::{Entry, Page};
use self::spine::{Place, Spine};
use self::view::Held;
use crate::epoch::{Epoch, Epochs};
use crate::key::KeyHash;

/// How many entries the pages of a segment hold on average when their number is doubled.
const PAGE_ENTRIES: usize = 24;

/// The most pages in a segment.
const SEGMENT_PAGES: usize = 256;

/// So many lookups of a batch wait for memory at the same time.
const BATCH: usize = 32;

/// A table with fewer entries is mostly in the cache next to the processor: asking for memory ahead
/// costs more than it saves.
const WARM_ENTRIES: usize = 1 << 16;

/// A map from keys to values in the order of the keys' hashes. It has a single owner and is frozen
/// into [`View`]s.
///
/// The caller gives the hash with each key. Equal keys must come with equal hashes; a table never
/// hashes.
pub struct Table<K, V> {
    spine: Spine<K, V>,
    len: usize,
    writing: Writing,
    /// The page that the sweep comes to next: segment and page.
    sweep: (u32, usize),
    /// Views that may be alive, the oldest first, with what had been copied before each.
    views: Vec<(Weak<Held<K, V>>, u64)>,
}

/// What a write must know, and what it counts.
#[derive(Default)]
struct Writing {
    epochs: Epochs,
    /// Entries come from a checkpoint: they are no change.
    is_restoring: bool,
    /// Keys that have gone and are not forgotten.
    gone: usize,
    /// Bytes of pages that were copied because a view held them.
    copied_bytes: u64,
}

impl Writing {
    /// The epoch that what is written now belongs to.
    #[inline(always)]
    fn stamp(&self) -> Epoch {
        if self.is_restoring { Epoch::NONE } else { self.epochs.current() }
    }

    #[inline(always)]
    fn make_page_mut<'a, K, V>(&mut self, page: &'a mut Arc<Page<K, V>>) -> &'a mut Page<K, V>
    where
        K: Clone,
        V: Clone,
    {
        if !page.is_unique() {
            self.copied_bytes += page.copied_bytes() as u64;
        }
        Arc::make_mut(page)
    }
}

impl<K, V> Table<K, V> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self {
            spine: Spine::new(),
            len: 0,
            writing: Writing::default(),
            sweep: (0, 0),
            views: Vec::new(),
        }
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries in hash order; entries of equal hashes in any order.
    pub fn iter(&self) -> impl Iterator<Item = (KeyHash, &K, &V)> {
        self.spine.iter()
    }

    /// An immutable view of the entries as they are now. Later writes don't reach it.
    ///
    /// The cost is one reference per 64 segments, independent of the values.
    #[must_use]
    pub fn freeze(&mut self) -> View<K, V> {
        self.views.retain(|(view, _)| view.strong_count() > 0);
        let confirmed = self.writing.epochs;
        self.writing.epochs.freeze();
        let view = View::new(self.spine.clone(), self.len, confirmed);
        self.views.push((view.downgrade(), self.writing.copied_bytes));
        view
    }

    /// The view of this epoch can no longer be lost: what was last changed in it or before is part of
    /// no later view's changes.
    pub fn confirm(&mut self, view: Epoch) {
        self.writing.epochs.confirm(view);
    }

    /// Which epoch writes are of, and which are confirmed.
    #[must_use]
    pub fn epochs(&self) -> Epochs {
        self.writing.epochs
    }

    /// Removed keys that are remembered since their removal may not be confirmed.
    #[must_use]
    pub fn gone_count(&self) -> usize {
        self.writing.gone
    }

    /// About how many bytes the views that are alive keep from being freed, at most: pages that were
    /// copied since the oldest of them was frozen, without what keys and values point to.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let holds = |view: &Weak<Held<K, V>>| view.upgrade().is_some_and(|held| held.is_held());
        let oldest = self.views.iter().find(|(view, _)| holds(view));
        oldest.map_or(0, |(_, before)| self.writing.copied_bytes - before)
    }
}

impl<K: Eq, V> Table<K, V> {
    /// The value of a key.
    #[inline]
    #[must_use]
    pub fn get<Q>(&self, hash: KeyHash, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.spine.locate(hash.0, key).ok().map(|place| self.spine.value(place))
    }

    /// Shows the value of each key. All of them are on their way from memory at once, so this is
    /// several times faster than one [`get`](Self::get) after the other where the table is larger
    /// than the cache. Hashes and keys without a partner are left out.
    pub fn get_batch<Q>(
        &self,
        hashes: &[KeyHash],
        keys: &[Q],
        mut show: impl FnMut(usize, Option<&V>),
    ) where
        K: Borrow<Q>,
        Q: Eq,
    {
        let batches = hashes.chunks(BATCH).zip(keys.chunks(BATCH));
        for (number, (hashes, keys)) in batches.enumerate() {
            self.warm(hashes);
            for (index, (hash, key)) in hashes.iter().zip(keys).enumerate() {
                show(number * BATCH + index, self.get(*hash, key));
            }
        }
    }
}

impl<K, V> Table<K, V> {
    /// Asks for the memory that searches for these hashes will touch, all at once: loads that don't
    /// wait for each other. First the pointers to pages, then tags, then entries.
    #[inline]
    fn warm(&self, hashes: &[KeyHash]) {
        if self.len < WARM_ENTRIES {
            return;
        }
        let mut pages = [None; BATCH];
        for (page, hash) in pages.iter_mut().zip(hashes) {
            let segment = self.spine.segment_at(hash.0);
            *page = segment.page_at(hash.0).map(|page| (page, segment.page_bits()));
        }
        let pages = || pages.iter().flatten();
        let tags = pages().fold(0, |sum, (page, _)| sum ^ page.warm_tags());
        std::hint::black_box(tags);
        let entries =
            pages().zip(hashes).map(|((page, bits), hash)| page.warm_entry(*bits, hash.0));
        std::hint::black_box(entries.fold(0, |sum, entry| sum ^ entry));
    }
}

impl<K: Clone + Eq, V: Clone> Table<K, V> {
    /// The value of a key, to be changed; it counts as changed. A page that a view holds is copied
    /// first, but only when the key is in it.
    #[inline]
    #[must_use]
    pub fn get_mut<Q>(&mut self, hash: KeyHash, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let place = self.spine.locate(hash.0, key).ok()?;
        Some(self.spine.value_mut(place, &mut self.writing))
    }

    /// The value of a key, to be changed; made and put in first when there is none. It counts as
    /// changed.
    #[inline]
    pub fn get_or_insert_with(
        &mut self,
        hash: KeyHash,
        key: &K,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let place = match self.spine.locate(hash.0, key) {
            Ok(place) => place,
            Err(place) => self.insert_at(place, hash, key.clone(), make()),
        };
        self.spine.value_mut(place, &mut self.writing)
    }

    /// Changes the value of each key, one after the other, as
    /// [`get_or_insert_with`](Self::get_or_insert_with) does; `make` and `update` are told which one.
    /// All of them are on their way from memory at once. Hashes and keys without a partner are left
    /// out.
    pub fn update_batch(
        &mut self,
        hashes: &[KeyHash],
        keys: &[K],
        mut make: impl FnMut(usize) -> V,
        mut update: impl FnMut(usize, &mut V),
    ) {
        let batches = hashes.chunks(BATCH).zip(keys.chunks(BATCH));
        for (number, (hashes, keys)) in batches.enumerate() {
            self.warm(hashes);
            for (index, (hash, key)) in hashes.iter().zip(keys).enumerate() {
                let index = number * BATCH + index;
                update(index, self.get_or_insert_with(*hash, key, || make(index)));
            }
        }
    }

    /// Sets the value of a key and returns the one before.
    #[inline]
    pub fn insert(&mut self, hash: KeyHash, key: K, value: V) -> Option<V> {
        match self.spine.locate(hash.0, &key) {
            Ok(place) => {
                let old = self.spine.value_mut(place, &mut self.writing);
                Some(std::mem::replace(old, value))
            }
            Err(place) => {
                self.insert_at(place, hash, key, value);
                None
            }
        }
    }

    /// Puts in an entry of the checkpoint that the table begins with: it is no change. For a table
    /// that nothing has been written to.
    pub fn restore(&mut self, hash: KeyHash, key: K, value: V) {
        self.writing.is_restoring = true;
        self.insert(hash, key, value);
        self.writing.is_restoring = false;
    }

    /// Takes out a key's entry and returns its value.
    pub fn remove<Q>(&mut self, hash: KeyHash, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let place = self.spine.locate(hash.0, key).ok()?;
        let value = self.spine.remove(place, &mut self.writing);
        self.len -= 1;
        if self.writing.gone > 0 {
            self.spine.sweep(&mut self.sweep, &mut self.writing);
        }
        if self.len == 0 && self.writing.gone == 0 {
            self.spine = Spine::new();
        }
        Some(value)
    }

    #[inline(never)]
    fn insert_at(&mut self, place: Place, hash: KeyHash, key: K, value: V) -> Place {
        let place = self.spine.make_room(place, hash.0, &key);
        self.spine.insert(place, Entry { hash: hash.0, key, value }, &mut self.writing);
        self.len += 1;
        place
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    /// Hashes as even as a real one's, without hashing.
    fn spread(key: u64) -> KeyHash {
        KeyHash(key.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn filled(count: u64, hash: impl Fn(u64) -> KeyHash) -> Table<u64, u64> {
        let mut table = Table::new();
        for key in 0..count {
            assert_eq!(table.insert(hash(key), key, key * 2), None);
        }
        table
    }

    fn check(count: u64, hash: impl Fn(u64) -> KeyHash) {
        let mut table = filled(count, &hash);
        let view = table.freeze();
        assert_eq!(table.len(), usize::try_from(count).unwrap());
        for key in 0..count {
            assert_eq!(table.get(hash(key), &key), Some(&(key * 2)));
            *table.get_or_insert_with(hash(key), &key, || unreachable!("it is there")) += 1;
        }
        assert!(table.iter().is_sorted_by_key(|(hash, ..)| hash));
        assert_eq!(table.iter().count(), table.len());
        for key in 0..count {
            assert_eq!(table.remove(hash(key), &key), Some(key * 2 + 1));
            assert_eq!(table.remove(hash(key), &key), None);
            assert_eq!(view.get(hash(key), &key).unwrap(), Some(key * 2));
        }
        assert!(table.is_empty());
        let mut count = 0;
        let visit = view.visit(|_, _, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((visit.unwrap(), count), ((), view.len()));
    }

    #[test]
    fn hashes_that_spread() {
        check(0, spread);
        check(1, spread);
        check(20_000, spread);
    }

    #[test]
    fn hashes_of_one_subtask_among_many() {
        // A narrow range across the middle of the hash space, as one of many subtasks sees it.
        check(20_000, |key| KeyHash((1 << 63) - (1 << 52) + (spread(key).0 >> 11)));
    }

    #[test]
    fn hashes_in_two_far_clusters() {
        check(10_000, |key| KeyHash((key % 2) * (u64::MAX - 20_000) + key));
    }

    #[test]
    fn hashes_that_are_all_equal() {
        check(600, |_| KeyHash(u64::MAX));
    }

    #[test]
    fn a_missing_key_copies_nothing() {
        let mut table = filled(10, spread);
        let view = table.freeze();
        assert_eq!(table.get_mut(spread(11), &11), None);
        let copy = table.spine.clone();
        assert!(table.spine.shares_all_with(&copy));
        *table.get_mut(spread(3), &3).expect("it is there") = 0;
        assert!(!table.spine.shares_all_with(&copy));
        assert_eq!(view.get(spread(3), &3).unwrap(), Some(6));
    }

    #[test]
    fn an_emptied_table_keeps_nothing() {
        let mut table = filled(50_000, spread);
        assert!(table.spine.segment_count() > 8);
        for key in 0..50_000 {
            table.remove(spread(key), &key);
        }
        assert_eq!((table.spine.segment_count(), table.spine.page_count()), (1, 2));
    }

    #[test]
    fn sparse_segments_halve_their_pages() {
        let mut table = filled(50_000, spread);
        let before = table.spine.page_count();
        for key in 1_000..50_000 {
            table.remove(spread(key), &key);
        }
        assert!(table.spine.page_count() * 4 < before);
        assert!((0..1_000).all(|key| table.get(spread(key), &key) == Some(&(key * 2))));
    }

    #[test]
    fn the_spine_is_as_short_as_promised() {
        let table = filled(200_000, spread);
        assert!(table.spine.segment_count() <= 200_000 / 2_560 + 1);
    }
}
