//! The spine: all segments, and the way to the right one.

use std::borrow::Borrow;

use triomphe::Arc;

use super::Writing;
use super::page::Entry;
use super::segment::{Room, Segment};
use crate::key::KeyHash;

/// Segments are shared in groups of so many.
const GROUP: usize = 64;

/// Where an entry is, or belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The segment's number.
    segment: u32,
    page: usize,
    index: usize,
}

/// All segments of a table. A copy shares everything: it costs one pointer per group.
pub(super) struct Spine<K, V> {
    index: Arc<Index>,
    /// By their numbers, in the order in which they came.
    groups: Vec<Arc<Group<K, V>>>,
}

/// Up to [`GROUP`] segments; all groups but the last are full.
struct Group<K, V>([Option<Arc<Segment<K, V>>>; GROUP]);

impl<K, V> Group<K, V> {
    fn new() -> Self {
        Self([const { None }; GROUP])
    }
}

/// Which segment has which hashes.
#[derive(Clone)]
struct Index {
    /// In the order of their hashes.
    segments: Vec<Range>,
    hints: Hints,
}

/// Invariant: ranges follow each other and cover all hashes.
#[derive(Clone, Copy)]
struct Range {
    /// The first hash.
    first: u64,
    /// The segment's number.
    segment: u32,
}

impl Index {
    #[inline(always)]
    fn segment_of(&self, hash: u64) -> u32 {
        let at = self.position_of(hash);
        self.segments.get(at).map_or(0, |range| range.segment)
    }

    #[inline(always)]
    fn position_of(&self, hash: u64) -> usize {
        let slot = self.hints.slot_of(hash);
        let from = self.hints.segment_at(slot);
        if self.segments.get(from + 1).is_none_or(|next| hash < next.first) {
            return from;
        }
        let to = self.hints.segment_at(slot + 1);
        let range = self.segments.get(from + 1..=to).unwrap_or_default();
        from + range.partition_point(|range| range.first <= hash)
    }
}

impl<K, V> Spine<K, V> {
    pub(super) fn new() -> Self {
        let hints = Hints::new(0, 63, vec![0, 0]);
        let index = Index { segments: vec![Range { first: 0, segment: 0 }], hints };
        let mut group = Group::new();
        let [first, ..] = &mut group.0;
        *first = Some(Arc::new(Segment::whole()));
        Self { index: Arc::new(index), groups: vec![Arc::new(group)] }
    }

    /// In the order of their hashes.
    pub(super) fn segments(&self) -> impl Iterator<Item = &Arc<Segment<K, V>>> {
        self.index.segments.iter().filter_map(|range| self.shared_segment(range.segment))
    }

    /// The n-th in the order of their hashes.
    pub(super) fn nth_segment(&self, position: usize) -> Option<&Arc<Segment<K, V>>> {
        self.shared_segment(self.index.segments.get(position)?.segment)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (KeyHash, &K, &V)> {
        self.segments()
            .flat_map(|segment| segment.iter())
            .map(|Entry { hash, key, value }| (KeyHash(*hash), key, value))
    }

    #[inline]
    pub(super) fn value(&self, place: Place) -> &V {
        self.segment(place.segment)
            .and_then(|segment| segment.page(place.page))
            .and_then(|page| page.value(place.index))
            .expect("a place is used before the next change")
    }

    #[inline(always)]
    fn segment(&self, number: u32) -> Option<&Segment<K, V>> {
        self.shared_segment(number).map(|segment| &**segment)
    }

    #[inline(always)]
    fn shared_segment(&self, number: u32) -> Option<&Arc<Segment<K, V>>> {
        let number = number as usize;
        self.groups.get(number / GROUP)?.0.get(number % GROUP)?.as_ref()
    }

    /// The segment that a hash belongs to.
    #[inline(always)]
    pub(super) fn segment_at(&self, hash: u64) -> &Segment<K, V> {
        self.segment(self.index.segment_of(hash)).expect("the segments cover all hashes")
    }

    /// Makes the hints anew: four to eight slots for each segment, spread over the hashes in use.
    fn aim(&mut self) {
        let mut used = self.segments().filter(|segment| !segment.is_empty());
        let first = used.next();
        let base = first.map_or(0, |segment| segment.first());
        let last = used.last().or(first).map_or(u64::MAX, |segment| segment.last());
        let wanted = self.segment_count() as u64 * 8;
        let slot_bits = ((last - base) / wanted).checked_ilog2().map_or(0, |bits| bits + 1).min(63);
        let slot_count = ((last - base) >> slot_bits) + 1;
        let index = Arc::make_mut(&mut self.index);
        let hints = (0..slot_count).map(|slot| {
            let start = if slot == 0 { 0 } else { base + (slot << slot_bits) };
            index.segments.partition_point(|range| range.first <= start) - 1
        });
        let hints = hints.chain([index.segments.len() - 1]).map(narrow).collect();
        index.hints = Hints::new(base, slot_bits, hints);
    }

    pub(super) fn segment_count(&self) -> usize {
        self.index.segments.len()
    }

    #[cfg(test)]
    pub(super) fn page_count(&self) -> usize {
        self.segments().map(|segment| segment.page_count()).sum()
    }

    #[cfg(test)]
    pub(super) fn shares_all_with(&self, other: &Self) -> bool {
        self.segments().zip(other.segments()).all(|(one, two)| Arc::ptr_eq(one, two))
    }
}

impl<K: Eq, V> Spine<K, V> {
    /// Where a key is (`Ok`), or where it belongs (`Err`).
    // Always: a place that is handed over in memory costs as much as the search.
    #[inline(always)]
    pub(super) fn locate<Q>(&self, hash: u64, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let number = self.index.segment_of(hash);
        let segment = self.segment(number).expect("the segments cover all hashes");
        let (page, found) = segment.find(hash, key);
        match found {
            Ok(index) => Ok(Place { segment: number, page, index }),
            Err(index) => Err(Place { segment: number, page, index }),
        }
    }
}

impl<K: Clone + Eq, V: Clone> Spine<K, V> {
    #[inline(always)]
    pub(super) fn value_mut(&mut self, place: Place, writing: &mut Writing) -> &mut V {
        self.segment_mut(place.segment)
            .page_mut(place.page, writing)
            .and_then(|page| page.value_mut(place.index))
            .expect("a place is used before the next change")
    }

    pub(super) fn insert(&mut self, place: Place, entry: Entry<K, V>, writing: &mut Writing) {
        self.segment_mut(place.segment).insert(place.page, place.index, entry, writing);
    }

    pub(super) fn remove(&mut self, place: Place, writing: &mut Writing) -> V {
        self.segment_mut(place.segment).remove(place.page, place.index, writing)
    }

    /// Grows the segment of a place, should it be full, and says where the key belongs then.
    pub(super) fn make_room(&mut self, place: Place, hash: u64, key: &K) -> Place {
        match self.segment_mut(place.segment).make_room() {
            Room::Enough => return place,
            Room::Made => {}
            Room::Split => self.split(hash, place.segment),
        }
        self.locate(hash, key).err().expect("growing adds no entry")
    }

    fn split(&mut self, hash: u64, number: u32) {
        let upper = self.segment_mut(number).split();
        let first = upper.first();
        let added = Range { first, segment: narrow(self.segment_count()) };
        let index = Arc::make_mut(&mut self.index);
        let position = index.position_of(hash);
        index.segments.insert(position + 1, added);
        self.add_segment(added.segment as usize, upper);
        // Half the slots that there were at first for each segment: their number has doubled since.
        if self.segment_count() * 2 > self.index.hints.slot_count() {
            self.aim();
        } else {
            Arc::make_mut(&mut self.index).hints.segment_added(first);
        }
    }

    fn add_segment(&mut self, number: usize, segment: Segment<K, V>) {
        if number / GROUP == self.groups.len() {
            self.groups.push(Arc::new(Group::new()));
        }
        let group = self.groups.get_mut(number / GROUP).map(Arc::make_mut);
        if let Some(place) = group.and_then(|group| group.0.get_mut(number % GROUP)) {
            *place = Some(Arc::new(segment));
        }
    }

    /// Drops what is confirmed of the keys that have gone from one page: the next one after the
    /// `(segment, page)` that is given, which is moved on.
    pub(super) fn sweep(&mut self, at: &mut (u32, usize), writing: &mut Writing) {
        let (number, page) = *at;
        let Some(segment) = self.segment(number) else {
            *at = (0, 0);
            return;
        };
        *at = if page < segment.page_count() { (number, page + 1) } else { (number + 1, 0) };
        if segment.needs_sweep(page, writing) {
            self.segment_mut(number).sweep(page, writing);
        }
    }

    #[inline(always)]
    fn segment_mut(&mut self, number: u32) -> &mut Segment<K, V> {
        let number = number as usize;
        let group = self.groups.get_mut(number / GROUP);
        let place = group.and_then(|group| Arc::make_mut(group).0.get_mut(number % GROUP));
        let segment = place.and_then(Option::as_mut);
        Arc::make_mut(segment.expect("a place is used before the next change"))
    }
}

impl<K, V> Clone for Group<K, V> {
    #[cold]
    #[inline(never)]
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Clone for Spine<K, V> {
    fn clone(&self) -> Self {
        Self { index: Arc::clone(&self.index), groups: self.groups.clone() }
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
