//! A segment: pages of equal hash ranges, shared one by one.

use std::borrow::Borrow;

use triomphe::Arc;

use super::page::{Entry, Gone, Loose, Page};
use super::{PAGE_ENTRIES, SEGMENT_PAGES, Writing};
use crate::epoch::{Epoch, Epochs};

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
    /// The newest of its pages' epochs.
    newest: Epoch,
    pages: Vec<Slot<K, V>>,
}

/// A page, and when it was last changed: whoever looks for changes passes by clean pages without
/// touching them.
struct Slot<K, V> {
    page: Arc<Page<K, V>>,
    newest: Epoch,
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

/// What a segment holds, in hash order, between one deal and the next.
struct Content<K, V> {
    newest: Epoch,
    entries: Vec<Loose<K, V>>,
    gone: Vec<Gone<K>>,
}

impl<K, V> Content<K, V> {
    fn empty() -> Self {
        Self { newest: Epoch::NONE, entries: Vec::new(), gone: Vec::new() }
    }

    /// Takes out what lies from a hash on.
    fn split_off(&mut self, hash: u64) -> Self {
        let entries = self.entries.partition_point(|loose| loose.entry.hash < hash);
        let gone = self.gone.partition_point(|gone| gone.hash < hash);
        Self {
            newest: self.newest,
            entries: self.entries.split_off(entries),
            gone: self.gone.split_off(gone),
        }
    }
}

impl<K, V> Segment<K, V> {
    /// An empty segment for all hashes.
    pub(super) fn whole() -> Self {
        Self::deal(0, 64, Content::empty())
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

    pub(super) fn page_count(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<K, V>> {
        self.pages.iter().flat_map(|slot| slot.page.entries())
    }

    /// What was changed after the confirmed epoch, in hash order: an entry, or a key that has gone.
    pub(super) fn changes(&self, epochs: Epochs) -> impl Iterator<Item = Changed<'_, K, V>> {
        let pages = if epochs.is_dirty(self.newest) { &self.pages[..] } else { &[] };
        let dirty = pages.iter().filter(move |slot| epochs.is_dirty(slot.newest));
        dirty.flat_map(move |slot| slot.changes(epochs))
    }

    #[inline]
    pub(super) fn page(&self, page: usize) -> Option<&Page<K, V>> {
        self.pages.get(page).map(|slot| &*slot.page)
    }

    /// The page of a hash, which must lie in the range.
    #[inline(always)]
    pub(super) fn page_at(&self, hash: u64) -> Option<&Page<K, V>> {
        self.page(self.page_of(hash))
    }

    pub(super) fn page_bits(&self) -> u32 {
        self.page_bits
    }

    /// Which page a hash belongs to. The hash must lie in the range.
    #[inline]
    pub(super) fn page_of(&self, hash: u64) -> usize {
        let distance = hash.wrapping_sub(self.first);
        usize::try_from(distance >> self.page_bits).unwrap_or(usize::MAX)
    }

    /// Deals entries into as many pages as they need.
    fn deal(first: u64, bits: u32, content: Content<K, V>) -> Self {
        let len = content.entries.len();
        let count = len.div_ceil(PAGE_ENTRIES).next_power_of_two().min(SEGMENT_PAGES);
        let (newest, pages) = (content.newest, Vec::new());
        let mut segment = Self { first, bits, page_bits: bits, len, newest, pages };
        segment.deal_pages(count.ilog2(), content);
        segment
    }

    /// Replaces the pages by 2^`count_bits` new ones (fewer if there aren't so many hashes). Each is
    /// as new as what it holds.
    fn deal_pages(&mut self, count_bits: u32, content: Content<K, V>) {
        self.page_bits = self.bits.saturating_sub(count_bits).min(63);
        let count = 1_usize << (self.bits - self.page_bits);
        let mut entries = content.entries.into_iter();
        let mut gone = content.gone.into_iter();
        self.pages = (0..count)
            .map(|page| {
                let is_here = |hash: u64| self.page_of(hash) <= page;
                let count = entries.as_slice().partition_point(|of| is_here(of.entry.hash));
                let gone_count = gone.as_slice().partition_point(|gone| is_here(gone.hash));
                let own: Vec<_> = entries.by_ref().take(count).collect();
                let own_gone: Vec<_> = gone.by_ref().take(gone_count).collect();
                let epochs = own.iter().map(|of| of.epoch);
                let newest = epochs.chain(own_gone.iter().map(|gone| gone.epoch)).max();
                let newest = newest.unwrap_or(Epoch::NONE);
                let page = Page::new(self.page_bits, newest, own.into_iter(), own_gone);
                Slot { page: Arc::new(page), newest }
            })
            .collect();
    }

    fn count_bits(&self) -> u32 {
        self.bits - self.page_bits
    }
}

impl<K: Eq, V> Segment<K, V> {
    /// Where a key is (`Ok`), or where it belongs (`Err`): page and place in it.
    #[inline(always)]
    pub(super) fn find<Q>(&self, hash: u64, key: &Q) -> (usize, Result<usize, usize>)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let page = self.page_of(hash);
        let of = self.page(page).expect("the pages cover the range of the segment");
        (page, of.find(self.page_bits, hash, key))
    }
}

impl<K: Clone, V: Clone> Segment<K, V> {
    /// A page to be changed: copied first if a view holds it, and brought to the current epoch.
    #[inline]
    pub(super) fn page_mut(
        &mut self,
        page: usize,
        writing: &mut Writing,
    ) -> Option<&mut Page<K, V>> {
        let slot = self.pages.get_mut(page)?;
        let page = writing.make_page_mut(&mut slot.page);
        if slot.newest < writing.stamp() {
            page.advance(slot.newest, writing);
            slot.newest = writing.stamp();
            self.newest = slot.newest;
        }
        Some(page)
    }

    pub(super) fn remove(&mut self, page: usize, index: usize, writing: &mut Writing) -> V {
        let bits = self.page_bits;
        let page = self.page_mut(page, writing).expect("the place was found in this segment");
        let value = page.remove(bits, index, writing);
        self.len -= 1;
        if self.is_sparse() {
            self.redeal(self.count_bits() - 1);
        }
        value
    }

    /// Drops what is confirmed of the keys that have gone from one page.
    pub(super) fn sweep(&mut self, page: usize, writing: &mut Writing) {
        let slot = self.pages.get_mut(page).filter(|slot| slot.page.has_confirmed(writing));
        if let Some(slot) = slot {
            writing.make_page_mut(&mut slot.page).forget_confirmed(writing);
        }
    }

    pub(super) fn needs_sweep(&self, page: usize, writing: &Writing) -> bool {
        self.page(page).is_some_and(|page| page.has_confirmed(writing))
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
        let mut content = self.take();
        self.bits -= 1;
        let middle = self.first + (1 << self.bits);
        let upper = content.split_off(middle);
        *self = Self::deal(self.first, self.bits, content);
        Self::deal(middle, self.bits, upper)
    }

    fn redeal(&mut self, count_bits: u32) {
        let content = self.take();
        self.deal_pages(count_bits, content);
    }

    /// Takes out all that there is, in order; what pages hold that a view has is cloned.
    fn take(&mut self) -> Content<K, V> {
        let mut content = Content { newest: self.newest, ..Content::empty() };
        content.entries.reserve_exact(self.len);
        for Slot { page, newest } in self.pages.drain(..) {
            let (entries, gone) = Arc::unwrap_or_clone(page).into_loose(newest);
            content.entries.extend(entries);
            content.gone.extend(gone);
        }
        content
    }
}

impl<K: Clone + Eq, V: Clone> Segment<K, V> {
    pub(super) fn insert(
        &mut self,
        page: usize,
        index: usize,
        entry: Entry<K, V>,
        writing: &mut Writing,
    ) {
        let bits = self.page_bits;
        let page = self.page_mut(page, writing).expect("the place was found in this segment");
        page.insert(bits, index, entry, writing);
        self.len += 1;
    }
}

/// A change: the key and, unless it has gone, its value.
pub(super) type Changed<'a, K, V> = (u64, &'a K, Option<&'a V>);

impl<K, V> Slot<K, V> {
    /// Entries and keys that have gone, merged by their hashes.
    fn changes(&self, epochs: Epochs) -> impl Iterator<Item = Changed<'_, K, V>> {
        let newest = self.newest;
        let entries = self.page.entries().iter().enumerate();
        let dirty = move |(index, _): &(usize, &Entry<K, V>)| {
            epochs.is_dirty(self.page.epoch(*index, newest))
        };
        let mut entries = entries.filter(dirty).map(|(_, entry)| entry).peekable();
        let gone = self.page.gone().iter().filter(move |gone| epochs.is_dirty(gone.epoch));
        let mut gone = gone.peekable();
        std::iter::from_fn(move || {
            let gone_first = match (entries.peek(), gone.peek()) {
                (Some(entry), Some(gone)) => gone.hash < entry.hash,
                (entry, _) => entry.is_none(),
            };
            if gone_first {
                return gone.next().map(|gone| (gone.hash, &gone.key, None));
            }
            entries.next().map(|entry| (entry.hash, &entry.key, Some(&entry.value)))
        })
    }
}

impl<K, V> Clone for Slot<K, V> {
    fn clone(&self) -> Self {
        Self { page: Arc::clone(&self.page), newest: self.newest }
    }
}

impl<K, V> Clone for Segment<K, V> {
    #[cold]
    #[inline(never)]
    fn clone(&self) -> Self {
        Self { pages: self.pages.clone(), ..*self }
    }
}
