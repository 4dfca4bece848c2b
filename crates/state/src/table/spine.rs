//! The spine: all segments, and the way to the right one.

use triomphe::Arc;

use super::page::Entry;
use super::segment::{Room, Segment};
use crate::key::KeyHash;

/// Where an entry is, or belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    segment: usize,
    page: usize,
    index: usize,
}

/// Invariant: the segments' ranges follow each other and cover all hashes.
pub(super) struct Spine<K, V> {
    /// The first hash of each segment.
    firsts: Vec<u64>,
    segments: Vec<Arc<Segment<K, V>>>,
    hints: Hints,
}

impl<K, V> Spine<K, V> {
    pub(super) fn new() -> Self {
        let whole = Arc::new(Segment::whole());
        Self { firsts: vec![0], segments: vec![whole], hints: Hints::new(0, 63, vec![0, 0]) }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (KeyHash, &K, &V)> {
        self.segments
            .iter()
            .flat_map(|segment| segment.iter())
            .map(|Entry { hash, key, value }| (KeyHash(*hash), key, value))
    }

    #[inline]
    pub(super) fn value(&self, place: Place) -> &V {
        self.segments
            .get(place.segment)
            .and_then(|segment| segment.page(place.page))
            .and_then(|page| page.value(place.index))
            .expect("a place is used before the next change")
    }

    #[inline]
    fn segment_of(&self, hash: u64) -> usize {
        let slot = self.hints.slot_of(hash);
        let from = self.hints.segment_at(slot);
        if self.firsts.get(from + 1).is_none_or(|next| hash < *next) {
            return from;
        }
        let to = self.hints.segment_at(slot + 1);
        let range = self.firsts.get(from + 1..=to).unwrap_or_default();
        from + range.partition_point(|first| *first <= hash)
    }

    /// Makes the hints anew: four to eight slots for each segment, spread over the hashes in use.
    fn aim(&mut self) {
        let used = || self.segments.iter().filter(|segment| !segment.is_empty());
        let base = used().next().map_or(0, |segment| segment.first());
        let last = used().next_back().map_or(u64::MAX, |segment| segment.last());
        let wanted = self.segments.len() as u64 * 8;
        let slot_bits = ((last - base) / wanted).checked_ilog2().map_or(0, |bits| bits + 1).min(63);
        let slot_count = ((last - base) >> slot_bits) + 1;
        let hints = (0..slot_count).map(|slot| {
            let start = if slot == 0 { 0 } else { base + (slot << slot_bits) };
            self.firsts.partition_point(|first| *first <= start) - 1
        });
        let hints = hints.chain([self.firsts.len() - 1]).map(narrow).collect();
        self.hints = Hints::new(base, slot_bits, hints);
    }

    #[cfg(test)]
    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    #[cfg(test)]
    pub(super) fn page_count(&self) -> usize {
        self.segments.iter().map(|segment| segment.page_count()).sum()
    }

    #[cfg(test)]
    pub(super) fn shares_all_with(&self, other: &Self) -> bool {
        self.segments.iter().zip(&other.segments).all(|(one, two)| Arc::ptr_eq(one, two))
    }
}

impl<K: Eq, V> Spine<K, V> {
    /// Where a key is (`Ok`), or where it belongs (`Err`).
    // Always: a place that is handed over in memory costs as much as the search.
    #[inline(always)]
    pub(super) fn locate(&self, hash: u64, key: &K) -> Result<Place, Place> {
        let index = self.segment_of(hash);
        let segment = self.segments.get(index).expect("the segments cover all hashes");
        let page = segment.page_of(hash);
        let found =
            segment.page(page).expect("the pages cover the range of the segment").find(hash, key);
        match found {
            Ok(at) => Ok(Place { segment: index, page, index: at }),
            Err(at) => Err(Place { segment: index, page, index: at }),
        }
    }
}

impl<K: Clone + Eq, V: Clone> Spine<K, V> {
    #[inline(always)]
    pub(super) fn value_mut(&mut self, place: Place) -> &mut V {
        self.segments
            .get_mut(place.segment)
            .and_then(|segment| Arc::make_mut(segment).page_mut(place.page))
            .and_then(|page| page.value_mut(place.index))
            .expect("a place is used before the next change")
    }

    pub(super) fn insert(&mut self, place: Place, entry: Entry<K, V>) {
        self.segment_mut(place.segment).insert(place.page, place.index, entry);
    }

    pub(super) fn remove(&mut self, place: Place) -> V {
        self.segment_mut(place.segment).remove(place.page, place.index)
    }

    /// Grows the segment of a place, should it be full, and says where the key belongs then.
    pub(super) fn make_room(&mut self, place: Place, hash: u64, key: &K) -> Place {
        let index = place.segment;
        match self.segment_mut(index).make_room() {
            Room::Enough => return place,
            Room::Made => {}
            Room::Split => self.split(index),
        }
        self.locate(hash, key).err().expect("growing adds no entry")
    }

    fn split(&mut self, index: usize) {
        let upper = self.segment_mut(index).split();
        let first = upper.first();
        self.firsts.insert(index + 1, first);
        self.segments.insert(index + 1, Arc::new(upper));
        // Half the slots that there were at first for each segment: their number has doubled since.
        if self.segments.len() * 2 > self.hints.slot_count() {
            self.aim();
        } else {
            self.hints.segment_added(first);
        }
    }

    fn segment_mut(&mut self, index: usize) -> &mut Segment<K, V> {
        let segment = self.segments.get_mut(index).expect("a place is used before the next change");
        Arc::make_mut(segment)
    }
}

impl<K, V> Clone for Spine<K, V> {
    fn clone(&self) -> Self {
        Self {
            firsts: self.firsts.clone(),
            segments: self.segments.clone(),
            hints: self.hints.clone(),
        }
    }
}

/// A guess at the segment of a hash: the range from `base` on is cut into slots of 2^`slot_bits`
/// hashes, and each slot knows the segment of its first hash. Hashes below belong to the first slot,
/// those above to the last one.
#[derive(Clone)]
struct Hints {
    base: u64,
    slot_bits: u32,
    /// One per slot, and the last segment at the end.
    segments: Vec<u32>,
}

impl Hints {
    fn new(base: u64, slot_bits: u32, segments: Vec<u32>) -> Self {
        Self { base, slot_bits, segments }
    }

    fn slot_count(&self) -> usize {
        self.segments.len() - 1
    }

    #[inline]
    fn slot_of(&self, hash: u64) -> usize {
        let slot = hash.saturating_sub(self.base) >> self.slot_bits;
        usize::try_from(slot).unwrap_or(usize::MAX).min(self.slot_count() - 1)
    }

    #[inline]
    fn segment_at(&self, slot: usize) -> usize {
        self.segments.get(slot).copied().unwrap_or_default() as usize
    }

    /// A segment was put in that begins with `first`: every slot that begins there or later moves by
    /// one. The first slot begins with hash 0, so it never does.
    fn segment_added(&mut self, first: u64) {
        let distance = first.saturating_sub(self.base);
        let slot = usize::try_from(distance.div_ceil(1 << self.slot_bits)).unwrap_or(usize::MAX);
        let slot = slot.clamp(1, self.slot_count());
        for segment in self.segments.iter_mut().skip(slot) {
            *segment += 1;
        }
    }
}

/// 2³² segments of some thousand entries don't fit into any memory.
fn narrow(segment: usize) -> u32 {
    u32::try_from(segment).expect("there are less than 2^32 segments")
}
