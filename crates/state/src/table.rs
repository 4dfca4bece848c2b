//! The heap table: entries in hash order, frozen without copying them.
//!
//! ```text
//!  spine      [ segment | segment | segment ]      one per table; a view is a copy of this
//!                  │         │         │           (pointers only)
//!  segment    [ page | page | … up to 256 ]        equal hash ranges, a power of two of them
//!                │      │
//!  page       tags    [ 2 B, 2 B, … 32 of them ]   the upper bits of each hash, in order
//!             entries [ (hash, K, V), …         ]  in hash order, about 10–20
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
//! A segment whose pages hold 20 entries on average doubles its pages; one that has 256 pages splits
//! in two by its hash range. Either moves the 20 · 256 = 5 120 entries of a segment at most (colliding
//! hashes apart) and nothing else, so no insertion is slower than that, however large the table.
//!
//! # Freezing
//!
//! Spine, segments and pages are shared by reference counts. [`Table::freeze`] copies the spine: one
//! pointer per segment, and a segment holds 2 560 to 5 120 entries. 10⁷ entries are 1 953 to 3 906
//! pointers, about 0.1 ms. The first write to a segment after that copies its page pointers (at most
//! 256), the first write to a page copies the page. Writes to what no view holds copy nothing.
//!
//! # Colliding hashes
//!
//! Entries with equal hashes lie next to each other and are compared one by one: access is linear in
//! how many share one hash, and such a page grows past its usual size.
//!
//! # Removal
//!
//! A segment whose pages run empty halves their number; segments aren't merged. A table from which
//! everything has been removed keeps nothing.

mod page;
mod segment;
mod spine;

use std::fmt;

use triomphe::Arc;

use self::page::Entry;
use self::spine::{Place, Spine};
use crate::key::KeyHash;

/// How many entries the pages of a segment hold on average when their number is doubled.
const PAGE_ENTRIES: usize = 20;

/// The most pages in a segment.
const SEGMENT_PAGES: usize = 256;

/// A map from keys to values in the order of the keys' hashes. It has a single owner and is frozen
/// into [`View`]s.
///
/// The caller gives the hash with each key. Equal keys must come with equal hashes; a table never
/// hashes.
pub struct Table<K, V> {
    spine: Spine<K, V>,
    len: usize,
}

impl<K, V> Table<K, V> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self { spine: Spine::new(), len: 0 }
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
    /// The cost is one reference per segment (entries / 2 560 at most), independent of the values.
    #[must_use]
    pub fn freeze(&self) -> View<K, V> {
        View { spine: Arc::new(self.spine.clone()), len: self.len }
    }
}

impl<K: Eq, V> Table<K, V> {
    /// The value of a key.
    #[inline]
    #[must_use]
    pub fn get(&self, hash: KeyHash, key: &K) -> Option<&V> {
        self.spine.locate(hash.0, key).ok().map(|place| self.spine.value(place))
    }
}

impl<K: Clone + Eq, V: Clone> Table<K, V> {
    /// The value of a key, to be changed. A page that a view holds is copied first, but only when the
    /// key is in it.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, hash: KeyHash, key: &K) -> Option<&mut V> {
        let place = self.spine.locate(hash.0, key).ok()?;
        Some(self.spine.value_mut(place))
    }

    /// The value of a key, to be changed; made and put in first when there is none.
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
        self.spine.value_mut(place)
    }

    /// Sets the value of a key and returns the one before.
    #[inline]
    pub fn insert(&mut self, hash: KeyHash, key: K, value: V) -> Option<V> {
        match self.spine.locate(hash.0, &key) {
            Ok(place) => Some(std::mem::replace(self.spine.value_mut(place), value)),
            Err(place) => {
                self.insert_at(place, hash, key, value);
                None
            }
        }
    }

    /// Takes out a key's entry and returns its value.
    pub fn remove(&mut self, hash: KeyHash, key: &K) -> Option<V> {
        let place = self.spine.locate(hash.0, key).ok()?;
        let value = self.spine.remove(place);
        self.len -= 1;
        if self.len == 0 {
            self.spine = Spine::new();
        }
        Some(value)
    }

    #[inline(never)]
    fn insert_at(&mut self, place: Place, hash: KeyHash, key: K, value: V) -> Place {
        let place = self.spine.make_room(place, hash.0, &key);
        self.spine.insert(place, Entry { hash: hash.0, key, value });
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

/// A table as it was when it was frozen. Cheap to clone, and shared between threads; it keeps alive
/// the pages that the table has replaced since.
pub struct View<K, V> {
    spine: Arc<Spine<K, V>>,
    len: usize,
}

impl<K, V> View<K, V> {
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
}

impl<K: Eq, V> View<K, V> {
    /// The value that a key had.
    #[must_use]
    pub fn get(&self, hash: KeyHash, key: &K) -> Option<&V> {
        self.spine.locate(hash.0, key).ok().map(|place| self.spine.value(place))
    }
}

impl<K, V> Clone for View<K, V> {
    fn clone(&self) -> Self {
        Self { spine: Arc::clone(&self.spine), len: self.len }
    }
}

impl<K, V> fmt::Debug for View<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(view.get(hash(key), &key), Some(&(key * 2)));
        }
        assert!(table.is_empty());
        assert_eq!(view.iter().count(), view.len());
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
        assert!(table.spine.shares_all_with(&view.spine));
        *table.get_mut(spread(3), &3).expect("it is there") = 0;
        assert!(!table.spine.shares_all_with(&view.spine));
        assert_eq!(view.get(spread(3), &3), Some(&6));
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
