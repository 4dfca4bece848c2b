//! What a completed checkpoint names: its runs with their indexes, and what of each still counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::Result;
use crate::hash::Hash;
use crate::index::ChunkRef;
use crate::pack::{Known, LiveRun, Place};
use crate::ranges::KeyRange;
use crate::run::OpenRun;
use crate::snapshot::Snapshot;

/// A completed checkpoint as the owner knows it.
#[derive(Debug, Default)]
pub(crate) struct Base {
    pub(crate) checkpoint: u64,
    pub(crate) sections: BTreeMap<String, BaseSection>,
    /// All packs that it names.
    pub(crate) packs: BTreeSet<Arc<str>>,
    live_bytes: OnceLock<BTreeMap<Arc<str>, u64>>,
}

#[derive(Debug, Default)]
pub(crate) struct BaseSection {
    /// The oldest first.
    pub(crate) runs: Vec<LiveRun>,
    known: OnceLock<Arc<Known>>,
}

impl Base {
    pub(crate) fn new(checkpoint: u64, sections: BTreeMap<String, Vec<LiveRun>>) -> Self {
        let mut packs = BTreeSet::new();
        for run in sections.values().flatten() {
            packs.extend(run.packs());
        }
        let section = |runs| BaseSection { runs, known: OnceLock::new() };
        let sections = sections.into_iter().map(|(name, runs)| (name, section(runs))).collect();
        Self { checkpoint, sections, packs, live_bytes: OnceLock::new() }
    }

    /// Reads the indexes of a checkpoint.
    pub(crate) fn read(snapshot: &Snapshot) -> Result<Self> {
        let mut sections = BTreeMap::new();
        for section in snapshot.all_sections() {
            let live =
                |run: &Arc<OpenRun>| Ok(LiveRun { run: run.run.clone(), index: run.index()? });
            let runs: Result<Vec<LiveRun>> =
                snapshot.runs(&section.name).iter().map(live).collect();
            sections.insert(section.name.clone(), runs?);
        }
        Ok(Self::new(snapshot.manifest().checkpoint, sections))
    }

    /// Bytes of each pack that count.
    pub(crate) fn live_bytes(&self) -> &BTreeMap<Arc<str>, u64> {
        self.live_bytes.get_or_init(|| self.count_live_bytes())
    }

    fn count_live_bytes(&self) -> BTreeMap<Arc<str>, u64> {
        let mut live: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let runs = self.sections.values().flat_map(|section| &section.runs);
        let pieces = runs.flat_map(LiveRun::pieces);
        for (pack, offset, bytes) in pieces {
            let is_new = seen.insert((Arc::clone(&pack), offset));
            *live.entry(pack).or_default() += if is_new { bytes } else { 0 };
        }
        live
    }
}

impl BaseSection {
    /// What of it may be named again, but for what lies in packs that are to go, and chunks that
    /// are damaged.
    pub(crate) fn known(
        &self,
        dying: &BTreeSet<Arc<str>>,
        distrusted: &BTreeSet<Hash>,
    ) -> Arc<Known> {
        let known = self.known.get_or_init(|| Arc::new(known(&self.runs, dying)));
        if distrusted.is_empty() {
            return Arc::clone(known);
        }
        // An index that names a damaged chunk is not to be named again either.
        let mut chunks = known.chunks.clone();
        chunks.retain(|hash, _| !distrusted.contains(hash));
        Arc::new(Known { chunks, ..Known::default() })
    }
}

/// The chunks, filters and indexes of these runs.
pub(crate) fn known(runs: &[LiveRun], dying: &BTreeSet<Arc<str>>) -> Known {
    let mut known = Known::default();
    for live in runs {
        for chunk in live.chunks() {
            let Some(pack) = live.index.packs.get(chunk.pack).filter(|pack| !dying.contains(*pack))
            else {
                continue;
            };
            let place = Place {
                pack: Arc::clone(pack),
                offset: chunk.offset,
                stored_bytes: chunk.stored_bytes,
                plain_bytes: chunk.plain_bytes,
            };
            known.chunks.insert(chunk.hash, place);
        }
        known.others.extend(live.others().filter(|(_, place)| !dying.contains(&place.pack)));
    }
    known
}

impl LiveRun {
    /// The chunks that can hold a key that the run speaks for.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &ChunkRef> {
        self.chunk_numbers().filter_map(|number| self.index.chunks.get(number))
    }

    /// Their places in the index, ascending.
    pub(crate) fn chunk_numbers(&self) -> impl Iterator<Item = usize> {
        let mut next = 0;
        self.run.ranges.iter().flat_map(move |range| {
            let first = self.index.chunk_for(range.first()).max(next);
            let end = self.end_of(range).max(first);
            next = end;
            first..end
        })
    }

    /// The first chunk behind a range.
    fn end_of(&self, range: &KeyRange) -> usize {
        match range.after() {
            None => self.index.chunks.len(),
            Some(after) => self.index.chunks.partition_point(|chunk| &chunk.first_key[..] < after),
        }
    }

    /// Filter and index.
    fn others(&self) -> impl Iterator<Item = (Hash, Place)> {
        let place = |pack: Arc<str>, offset, bytes| Place {
            pack,
            offset,
            stored_bytes: bytes,
            plain_bytes: bytes,
        };
        let filter = self.index.filter.as_ref().and_then(|filter| {
            let pack = self.index.packs.get(filter.pack)?;
            Some((filter.hash, place(Arc::clone(pack), filter.offset, filter.bytes)))
        });
        let run = &self.run;
        let index = place(run.pack.as_str().into(), run.index_offset, run.index_bytes);
        filter.into_iter().chain([(run.index_hash, index)])
    }

    /// Everything of it that counts: pack, offset, bytes.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Arc<str>, u64, u64)> {
        let chunks = self.chunks().filter_map(|chunk| {
            let pack = self.index.packs.get(chunk.pack)?;
            Some((Arc::clone(pack), chunk.offset, u64::from(chunk.stored_bytes)))
        });
        let others = self.others();
        let others =
            others.map(|(_, place)| (place.pack, place.offset, u64::from(place.stored_bytes)));
        chunks.chain(others)
    }

    fn packs(&self) -> BTreeSet<Arc<str>> {
        let mut numbers: BTreeSet<usize> = self.chunks().map(|chunk| chunk.pack).collect();
        numbers.extend(self.index.filter.iter().map(|filter| filter.pack));
        let names = numbers.into_iter().filter_map(|number| self.index.packs.get(number).cloned());
        names.chain([self.run.pack.as_str().into()]).collect()
    }
}
