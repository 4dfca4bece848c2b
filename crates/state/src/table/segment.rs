//! A segment: pages of equal hash ranges, shared one by one.

use triomphe::Arc;

use super::page::{Entry, Page};
use super::{PAGE_ENTRIES, SEGMENT_PAGES};

/// The entries of an aligned range of 2^`bits` hashes, from `first` on.
///
/// Invariant: there are 2^(`bits` − `page_bits`) pages, and page `i` holds the entries of the hashes
/// from `first` + `i`·2^`page_bits` on. `page_bits` is at most 63, so that it is a shift: a segment of
/// all hashes has two pages at least.
pub(super) struct Segment<K, V> {
    first: u64,
    bits: u32,
    page_bits: u32,
    len: usize,
    pages: Vec<Arc<Page<K, V>>>,
}

/// What a full segment can do before it takes another entry.
pub(super) enum Room {
    /// It has room, or is one hash's and can only grow.
    Enough,
    /// Its pages have been dealt anew: positions in it are void.
    Made,
    /// It must be split.
    Split,
}

impl<K, V> Segment<K, V> {
    /// An empty segment for all hashes.
    pub(super) fn whole() -> Self {
        Self::deal(0, 64, Vec::new())
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The last hash of its range.
    pub(super) fn last(&self) -> u64 {
        self.first | u64::MAX.checked_shr(64 - self.bits).unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(super) fn page_count(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<K, V>> {
        self.pages.iter().flat_map(|page| page.entries())
    }

    #[inline]
    pub(super) fn page(&self, page: usize) -> Option<&Page<K, V>> {
        self.pages.get(page).map(|page| &**page)
    }

    /// Which page a hash belongs to. The hash must lie in the range.
    #[inline]
    pub(super) fn page_of(&self, hash: u64) -> usize {
        let distance = hash.wrapping_sub(self.first);
        usize::try_from(distance >> self.page_bits).unwrap_or(usize::MAX)
    }

    /// Deals entries into as many pages as they need.
    fn deal(first: u64, bits: u32, entries: Vec<Entry<K, V>>) -> Self {
        let count = entries.len().div_ceil(PAGE_ENTRIES).next_power_of_two().min(SEGMENT_PAGES);
        let mut segment =
            Self { first, bits, page_bits: bits, len: entries.len(), pages: Vec::new() };
        segment.deal_pages(count.ilog2(), entries);
        segment
    }

    /// Replaces the pages by 2^`count_bits` new ones (fewer if there aren't so many hashes).
    fn deal_pages(&mut self, count_bits: u32, entries: Vec<Entry<K, V>>) {
        self.page_bits = self.bits.saturating_sub(count_bits).min(63);
        let count = 1_usize << (self.bits - self.page_bits);
        let mut entries = entries.into_iter();
        self.pages = (0..count)
            .map(|page| {
                let here =
                    entries.as_slice().partition_point(|entry| self.page_of(entry.hash) <= page);
                let own = entries.by_ref().take(here).collect();
                Arc::new(Page::new(self.page_bits, own))
            })
            .collect();
    }

    fn count_bits(&self) -> u32 {
        self.bits - self.page_bits
    }
}

impl<K: Clone, V: Clone> Segment<K, V> {
    /// A page to be changed: copied first if a view holds it.
    #[inline]
    pub(super) fn page_mut(&mut self, page: usize) -> Option<&mut Page<K, V>> {
        self.pages.get_mut(page).map(Arc::make_mut)
    }

    pub(super) fn insert(&mut self, page: usize, index: usize, entry: Entry<K, V>) {
        let page = self.page_mut(page).expect("the place was found in this segment");
        page.insert(index, entry);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, page: usize, index: usize) -> V {
        let page = self.page_mut(page).expect("the place was found in this segment");
        let value = page.remove(index);
        self.len -= 1;
        if self.is_sparse() {
            self.redeal(self.count_bits() - 1);
        }
        value
    }

    /// Whether one more entry would be too much for the pages there are.
    fn is_full(&self) -> bool {
        self.len >= self.pages.len() * PAGE_ENTRIES && self.page_bits > 0
    }

    /// Whether half as many pages would do, with room to spare.
    fn is_sparse(&self) -> bool {
        self.len < self.pages.len() * PAGE_ENTRIES / 8 && self.page_bits < self.bits.min(63)
    }

    /// Doubles the pages if there may be more of them.
    pub(super) fn make_room(&mut self) -> Room {
        if !self.is_full() {
            return Room::Enough;
        }
        if self.pages.len() >= SEGMENT_PAGES {
            return Room::Split;
        }
        self.redeal(self.count_bits() + 1);
        Room::Made
    }

    /// Gives the upper half of the range to a new segment.
    pub(super) fn split(&mut self) -> Self {
        let mut entries = self.take();
        self.bits -= 1;
        let middle = self.first + (1 << self.bits);
        let upper = entries.split_off(entries.partition_point(|entry| entry.hash < middle));
        *self = Self::deal(self.first, self.bits, entries);
        Self::deal(middle, self.bits, upper)
    }

    fn redeal(&mut self, count_bits: u32) {
        let entries = self.take();
        self.deal_pages(count_bits, entries);
    }

    /// Takes out all entries, in order; those of pages that a view holds are cloned.
    fn take(&mut self) -> Vec<Entry<K, V>> {
        let mut entries = Vec::with_capacity(self.len);
        for page in self.pages.drain(..) {
            entries.extend(Arc::unwrap_or_clone(page).into_entries());
        }
        entries
    }
}

impl<K, V> Clone for Segment<K, V> {
    #[cold]
    #[inline(never)]
    fn clone(&self) -> Self {
        Self { pages: self.pages.clone(), ..*self }
    }
}
