//! A page: a few entries in hash order, with a tag and a stamp of each, and keys that have gone.

use std::borrow::Borrow;

use super::Writing;
use super::stamp::Stamps;
use crate::epoch::Epoch;

/// How many entries have a tag. Of pages that hold [`PAGE_ENTRIES`](super::PAGE_ENTRIES) on average,
/// one in 20 has more.
pub(super) const TAGS: usize = 32;

/// Room is made for so many entries at a time.
const STEP: usize = 4;

/// Invariant: the entries' hashes ascend, and `tags` are those of the first [`TAGS`] entries.
///
/// What a lookup reads comes first.
#[repr(C)]
pub(super) struct Page<K, V> {
    entries: Vec<Entry<K, V>>,
    tags: Tags,
    stamps: Stamps,
    /// In hash order.
    #[expect(clippy::box_collection, reason = "most pages have none: a pointer must do")]
    gone: Option<Box<Vec<Gone<K>>>>,
}

#[derive(Clone)]
pub(super) struct Entry<K, V> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) value: V,
}

/// A key that was removed, and that a view or a base may have.
#[derive(Clone)]
pub(super) struct Gone<K> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) epoch: Epoch,
}

/// An entry on its way from one page to another.
pub(super) struct Loose<K, V> {
    pub(super) entry: Entry<K, V>,
    pub(super) epoch: Epoch,
    pub(super) is_new: bool,
}

impl<K, V> Page<K, V> {
    /// A page of a range of 2^`bits` hashes, last changed in `newest`. Entries and keys must ascend by
    /// hash.
    pub(super) fn new(
        bits: u32,
        newest: Epoch,
        entries: impl ExactSizeIterator<Item = Loose<K, V>>,
        gone: Vec<Gone<K>>,
    ) -> Self {
        let mut page = Self {
            tags: Tags::none(),
            stamps: Stamps::default(),
            entries: Vec::with_capacity(entries.len()),
            gone: (!gone.is_empty()).then(|| Box::new(gone)),
        };
        for Loose { entry, epoch, is_new } in entries {
            let index = page.entries.len();
            page.tags.set(index, tag_of(entry.hash, bits));
            page.stamps.insert(index, index, newest.since(epoch), is_new);
            page.entries.push(entry);
        }
        page
    }

    pub(super) fn entries(&self) -> &[Entry<K, V>] {
        &self.entries
    }

    pub(super) fn gone(&self) -> &[Gone<K>] {
        self.gone.as_deref().map_or(&[], |gone| &gone[..])
    }

    /// The epoch of an entry's last change, where the page's is `newest`: not before the true one.
    pub(super) fn epoch(&self, index: usize, newest: Epoch) -> Epoch {
        newest.before(self.stamps.age(index))
    }

    /// Takes the page apart.
    pub(super) fn into_loose(
        self,
        newest: Epoch,
    ) -> (impl Iterator<Item = Loose<K, V>>, Vec<Gone<K>>) {
        let stamps = self.stamps;
        let entries = self.entries.into_iter().enumerate().map(move |(index, entry)| Loose {
            entry,
            epoch: newest.before(stamps.age(index)),
            is_new: stamps.is_new(index),
        });
        (entries, self.gone.map_or_else(Vec::new, |gone| *gone))
    }

    #[inline]
    pub(super) fn value(&self, index: usize) -> Option<&V> {
        self.entries.get(index).map(|entry| &entry.value)
    }

    /// The value, which is to be changed now. The page has been brought to the current epoch.
    #[inline]
    pub(super) fn value_mut(&mut self, index: usize) -> Option<&mut V> {
        self.stamps.renew(index);
        self.entries.get_mut(index).map(|entry| &mut entry.value)
    }

    /// Brings the stamps from one epoch to the current one, and drops what is confirmed of the keys
    /// that have gone.
    #[cold]
    pub(super) fn advance(&mut self, from: Epoch, writing: &mut Writing) {
        self.stamps.advance(writing.epochs.current().since(from));
        self.forget_confirmed(writing);
    }

    pub(super) fn has_confirmed(&self, writing: &Writing) -> bool {
        self.gone().iter().any(|gone| !writing.epochs.is_dirty(gone.epoch))
    }

    pub(super) fn forget_confirmed(&mut self, writing: &mut Writing) {
        let Some(gone) = &mut self.gone else { return };
        let before = gone.len();
        gone.retain(|gone| writing.epochs.is_dirty(gone.epoch));
        writing.gone -= before - gone.len();
        if gone.is_empty() {
            self.gone = None;
        }
    }

    pub(super) fn remove(&mut self, bits: u32, index: usize, writing: &mut Writing) -> V {
        let is_new = self.stamps.is_new(index);
        let removed = self.entries.remove(index);
        let last = self.entries.get(TAGS - 1);
        self.tags.remove(index, last.map_or(NO_TAG, |entry| tag_of(entry.hash, bits)));
        self.stamps.remove(index, self.entries.len());
        let Entry { hash, key, value } = removed;
        if !is_new {
            let gone = self.gone.get_or_insert_default();
            let at = gone.partition_point(|of| of.hash <= hash);
            gone.insert(at, Gone { hash, key, epoch: writing.epochs.current() });
            writing.gone += 1;
        }
        value
    }

    /// A position at or before the first one whose hash isn't smaller; nearly always that one.
    #[inline(always)]
    fn guess(&self, bits: u32, hash: u64) -> usize {
        if self.entries.len() > TAGS {
            return self.entries.partition_point(|entry| entry.hash < hash);
        }
        self.tags.count_smaller(tag_of(hash, bits))
    }

    /// Something of the memory that a search will touch.
    #[inline(always)]
    pub(super) fn warm_tags(&self) -> usize {
        let Tags([.., last]) = &self.tags;
        self.entries.len() ^ usize::from(*last)
    }

    #[inline(always)]
    pub(super) fn warm_entry(&self, bits: u32, hash: u64) -> u64 {
        self.entries.get(self.guess(bits, hash)).map_or(0, |entry| entry.hash)
    }

    /// About how many bytes a copy takes, without what keys and values point to.
    pub(super) fn copied_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.entries[..]) + size_of_val(self.gone())
    }
}

impl<K: Eq, V> Page<K, V> {
    /// Where the key is (`Ok`), or where it belongs (`Err`).
    #[inline(always)]
    pub(super) fn find<Q>(&self, bits: u32, hash: u64, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let mut index = self.guess(bits, hash);
        while let Some(entry) = self.entries.get(index) {
            if entry.hash == hash && entry.key.borrow() == key {
                return Ok(index);
            }
            if entry.hash > hash {
                break;
            }
            index += 1;
        }
        Err(index)
    }

    pub(super) fn insert(
        &mut self,
        bits: u32,
        index: usize,
        entry: Entry<K, V>,
        writing: &mut Writing,
    ) {
        let was_gone = self.take_gone(entry.hash, &entry.key);
        writing.gone -= usize::from(was_gone);
        self.tags.insert(index, tag_of(entry.hash, bits));
        self.stamps.insert(index, self.entries.len(), 0, !was_gone && !writing.is_restoring);
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(STEP);
        }
        self.entries.insert(index, entry);
    }

    /// The key is there again.
    fn take_gone(&mut self, hash: u64, key: &K) -> bool {
        let Some(gone) = &mut self.gone else { return false };
        let Some(at) = gone.iter().position(|of| of.hash == hash && of.key == *key) else {
            return false;
        };
        gone.remove(at);
        if gone.is_empty() {
            self.gone = None;
        }
        true
    }
}

impl<K: Clone, V: Clone> Clone for Page<K, V> {
    /// With the room that there was: most pages are copied to be written to.
    #[cold]
    #[inline(never)]
    fn clone(&self) -> Self {
        let mut entries = Vec::with_capacity(self.entries.capacity());
        entries.extend_from_slice(&self.entries);
        Self {
            tags: self.tags.clone(),
            stamps: self.stamps.clone(),
            entries,
            gone: self.gone.clone(),
        }
    }
}

/// The tag where there is no entry: none is larger.
const NO_TAG: u16 = 0x7FFF;

/// The upper 15 of the lower `bits` bits of a hash: how far it lies into its page's range.
#[inline]
fn tag_of(hash: u64, bits: u32) -> u16 {
    // A range of one hash has all of it, and any tag will do: wrapping leaves the hash as it is.
    let [.., low, high] = hash.wrapping_shl(64 - bits).to_le_bytes();
    u16::from_le_bytes([low, high]) >> 1
}

/// Ascending tags, two little-endian bytes each, whose upper bit is set.
///
/// They lie apart from the entries, in one or two cache lines whatever the size of keys and values, and are
/// compared four at a time, all of them: a search has no branch that depends on the hash, so that the
/// processor guesses none wrongly while it waits for memory.
#[derive(Clone)]
struct Tags([u8; 2 * TAGS]);

impl Tags {
    fn none() -> Self {
        Self([0xFF; 2 * TAGS])
    }

    /// How many tags are smaller.
    ///
    /// Per lane of 16 bits, (2¹⁵ + tag) − wanted has the upper bit exactly when the tag isn't
    /// smaller, and borrows nothing from its neighbour.
    #[inline(always)]
    fn count_smaller(&self, tag: u16) -> usize {
        const ONES: u64 = 0x0001_0001_0001_0001;
        let wanted = u64::from(tag) * ONES;
        let (words, _) = self.0.as_chunks::<8>();
        let counts = words
            .iter()
            .map(|word| ((u64::from_le_bytes(*word) - wanted) >> 15) & ONES)
            .sum::<u64>();
        let [.., low, high] = counts.wrapping_mul(ONES).to_le_bytes();
        TAGS - usize::from(u16::from_le_bytes([low, high]))
    }

    fn set(&mut self, index: usize, tag: u16) {
        if let Some(two) = self.0.get_mut(2 * index..2 * index + 2) {
            two.copy_from_slice(&(tag | 0x8000).to_le_bytes());
        }
    }

    fn insert(&mut self, index: usize, tag: u16) {
        if index < TAGS {
            self.0.copy_within(2 * index..2 * (TAGS - 1), 2 * index + 2);
            self.set(index, tag);
        }
    }

    /// Takes one out and appends another.
    fn remove(&mut self, index: usize, last: u16) {
        if index < TAGS {
            self.0.copy_within(2 * index + 2.., 2 * index);
            self.set(TAGS - 1, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loose(entries: &[Entry<usize, usize>]) -> Vec<Loose<usize, usize>> {
        let loose = |entry: &Entry<usize, usize>| Loose {
            entry: entry.clone(),
            epoch: Epoch::NONE,
            is_new: false,
        };
        entries.iter().map(loose).collect()
    }

    /// Entries come in and go out one by one at every position; the tags and every search follow.
    fn check(hashes: &[u64], bits: u32) {
        let mut writing = Writing::default();
        let mut page = Page::new(bits, Epoch::NONE, Vec::new().into_iter(), Vec::new());
        for (key, hash) in hashes.iter().enumerate() {
            let index = page.find(bits, *hash, &key).expect_err("it isn't there yet");
            page.insert(bits, index, Entry { hash: *hash, key, value: key }, &mut writing);
            check_all(&page, bits);
        }
        for (key, hash) in hashes.iter().enumerate() {
            let index = page.find(bits, *hash, &key).expect("it is there");
            assert_eq!(page.remove(bits, index, &mut writing), key);
            check_all(&page, bits);
        }
        assert_eq!(writing.gone, 0);
    }

    fn check_all(page: &Page<usize, usize>, bits: u32) {
        assert!(page.entries.is_sorted_by_key(|entry| entry.hash));
        let again = Page::new(bits, Epoch::NONE, loose(&page.entries).into_iter(), Vec::new());
        assert_eq!(page.tags.0, again.tags.0);
        for (index, entry) in page.entries.iter().enumerate() {
            assert_eq!(page.find(bits, entry.hash, &entry.key), Ok(index));
            assert!(page.guess(bits, entry.hash) <= index);
            assert!(page.find(bits, entry.hash, &usize::MAX).is_err());
        }
    }

    #[test]
    fn searches_are_right_below_and_above_the_number_of_tags() {
        for count in [1, TAGS as u64, TAGS as u64 + 9] {
            let order = (0..count).map(|i| i * 7_919 % count);
            check(&order.clone().map(|i| i << 58).collect::<Vec<_>>(), 64);
            check(&order.clone().map(|i| 0xFF00 + i).collect::<Vec<_>>(), 8);
            check(&order.clone().map(|i| i / 3 * 1000).collect::<Vec<_>>(), 20);
            check(&order.map(|_| 5).collect::<Vec<_>>(), 0);
        }
    }

    #[test]
    fn tags_are_counted_at_their_limits() {
        let mut tags = Tags::none();
        for (index, tag) in [0, 0, 1, 0x3FFF, 0x4000, NO_TAG - 1, NO_TAG].into_iter().enumerate() {
            tags.set(index, tag);
        }
        for (tag, smaller) in [(0, 0), (1, 2), (2, 3), (0x4000, 4), (NO_TAG - 1, 5), (NO_TAG, 6)] {
            assert_eq!(tags.count_smaller(tag), smaller, "tag={tag}");
        }
    }
}
