//! A page: a few entries in hash order, and a tag of each.

/// How many entries have a tag. Of pages that hold [`PAGE_ENTRIES`](super::PAGE_ENTRIES) on average,
/// one in 200 has more.
const TAGS: usize = 32;

/// Invariant: the entries' hashes ascend, and `tags` are those of the first [`TAGS`] entries.
pub(super) struct Page<K, V> {
    tags: Tags,
    /// The page's range has 2^`bits` hashes.
    bits: u32,
    entries: Vec<Entry<K, V>>,
}

#[derive(Clone)]
pub(super) struct Entry<K, V> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) value: V,
}

impl<K, V> Page<K, V> {
    /// The entries must ascend by hash.
    pub(super) fn new(bits: u32, entries: Vec<Entry<K, V>>) -> Self {
        let mut tags = Tags::none();
        for (index, entry) in entries.iter().enumerate().take(TAGS) {
            tags.set(index, tag_of(entry.hash, bits));
        }
        Self { tags, bits, entries }
    }

    pub(super) fn entries(&self) -> &[Entry<K, V>] {
        &self.entries
    }

    pub(super) fn into_entries(self) -> Vec<Entry<K, V>> {
        self.entries
    }

    #[inline]
    pub(super) fn value(&self, index: usize) -> Option<&V> {
        self.entries.get(index).map(|entry| &entry.value)
    }

    #[inline]
    pub(super) fn value_mut(&mut self, index: usize) -> Option<&mut V> {
        self.entries.get_mut(index).map(|entry| &mut entry.value)
    }

    pub(super) fn insert(&mut self, index: usize, entry: Entry<K, V>) {
        self.tags.insert(index, tag_of(entry.hash, self.bits));
        self.entries.insert(index, entry);
    }

    pub(super) fn remove(&mut self, index: usize) -> V {
        let removed = self.entries.remove(index);
        let last = self.entries.get(TAGS - 1);
        self.tags.remove(index, last.map_or(NO_TAG, |entry| tag_of(entry.hash, self.bits)));
        removed.value
    }

    /// A position at or before the first one whose hash isn't smaller; nearly always that one.
    #[inline(always)]
    fn guess(&self, hash: u64) -> usize {
        if self.entries.len() > TAGS {
            return self.entries.partition_point(|entry| entry.hash < hash);
        }
        self.tags.count_smaller(tag_of(hash, self.bits))
    }
}

impl<K: Eq, V> Page<K, V> {
    /// Where the key is (`Ok`), or where it belongs (`Err`).
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, key: &K) -> Result<usize, usize> {
        let mut index = self.guess(hash);
        while let Some(entry) = self.entries.get(index) {
            if entry.hash == hash && entry.key == *key {
                return Ok(index);
            }
            if entry.hash > hash {
                break;
            }
            index += 1;
        }
        Err(index)
    }
}

impl<K: Clone, V: Clone> Clone for Page<K, V> {
    #[cold]
    #[inline(never)]
    fn clone(&self) -> Self {
        Self { tags: self.tags.clone(), bits: self.bits, entries: self.entries.clone() }
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

    /// Entries come in and go out one by one at every position; the tags and every search follow.
    fn check(hashes: &[u64], bits: u32) {
        let mut page = Page::new(bits, Vec::new());
        for (key, hash) in hashes.iter().enumerate() {
            let index = page.find(*hash, &key).expect_err("it isn't there yet");
            page.insert(index, Entry { hash: *hash, key, value: key });
            check_all(&page, bits);
        }
        for (key, hash) in hashes.iter().enumerate() {
            let index = page.find(*hash, &key).expect("it is there");
            assert_eq!(page.remove(index), key);
            check_all(&page, bits);
        }
    }

    fn check_all(page: &Page<usize, usize>, bits: u32) {
        assert!(page.entries.is_sorted_by_key(|entry| entry.hash));
        assert_eq!(page.tags.0, Page::new(bits, page.entries.clone()).tags.0);
        for (index, entry) in page.entries.iter().enumerate() {
            assert_eq!(page.find(entry.hash, &entry.key), Ok(index));
            assert!(page.guess(entry.hash) <= index);
            assert!(page.find(entry.hash, &usize::MAX).is_err());
        }
    }

    #[test]
    fn searches_are_right_below_and_above_the_number_of_tags() {
        for count in [1, TAGS as u64, TAGS as u64 + 9] {
            let order = (0..count).map(|i| i * 7_919 % count);
            check(&order.clone().map(|i| i << 59).collect::<Vec<_>>(), 64);
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
