//! Carries out what [`plan`](crate::plan) says: merges runs, and moves out of packs that are mostly
//! dead.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::chunk::Value;
use crate::hash::Blob;
use crate::index::RunIndex;
use crate::live::{Base, known};
use crate::pack::{Change, Known, LiveRun, PackWriter};
use crate::plan::Task;
use crate::ranges::{KeyRange, overlapping};
use crate::run::{OpenRun, Packs};
use crate::scan::{Scan, Slice};
use crate::{Error, Result};

/// Merges the runs of one task.
pub(crate) fn merge(
    packs: &Arc<Packs>,
    base: &Base,
    dying: &BTreeSet<Arc<str>>,
    writer: &mut PackWriter,
    task: Task,
) -> Result<()> {
    let Some(section) = base.sections.get(&task.section) else {
        return Ok(());
    };
    let runs: Vec<&LiveRun> = task.runs.iter().filter_map(|run| section.runs.get(*run)).collect();
    let inputs: Vec<LiveRun> = runs.iter().map(|live| (*live).clone()).collect();
    let metadata = runs.last().map_or_else(Vec::new, |live| live.run.metadata().to_vec());
    let known = Arc::new(known(&inputs, dying));
    let mut merged = writer.merge(&task.section, task.merged, metadata, known);
    let keeps_tombstones = task.merged > 0;
    let mut failed = None;
    let visited = Scan::new(slices(packs, &runs, &task.range)).visit(&mut |key, value| {
        if value == Value::Tombstone && !keeps_tombstones {
            return ControlFlow::Continue(());
        }
        match merged.push_value(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    // It breaks off only with an error of its own.
    visited.map(drop)?;
    failed.map_or(Ok(()), Err)?;
    let by = merged.finish_merge()?;
    let Task { section, range, runs, .. } = task;
    writer.change(Change::Replace { section, range, runs, by });
    Ok(())
}

fn slices(packs: &Arc<Packs>, runs: &[&LiveRun], range: &KeyRange) -> Vec<Slice> {
    let mut slices = Vec::new();
    for (age, live) in runs.iter().enumerate() {
        let index = Arc::clone(&live.index);
        let run = Arc::new(OpenRun::with_index(Arc::clone(packs), live.run.clone(), index));
        let common = overlapping(&live.run.ranges, range).iter().filter_map(|of| of.common(range));
        slices.extend(common.map(|range| Slice { age, range, run: Arc::clone(&run) }));
    }
    slices
}

/// Copies what of a run lies in packs that are to go, and writes its index anew.
pub(crate) fn relocate(
    packs: &Arc<Packs>,
    live: &LiveRun,
    dying: &BTreeSet<Arc<str>>,
    writer: &mut PackWriter,
) -> Result<LiveRun> {
    let nothing_known = Known::default();
    let old = &live.index;
    let mut index = RunIndex::default();
    for number in live.chunk_numbers() {
        let Some(chunk) = old.chunks.get(number) else { continue };
        let mut moved = chunk.clone();
        let name: Arc<str> = old.pack(chunk.pack).into();
        let pack = if dying.contains(&name) {
            // Read as a reader would: what is damaged is not passed on.
            packs.chunk(old, chunk)?;
            let stored = packs.read(&name, chunk.offset, chunk.stored_bytes as usize)?;
            let place = writer.copy_chunk(&stored, chunk.plain_bytes)?;
            moved.offset = place.offset;
            place.pack
        } else {
            name
        };
        moved.pack = index.pack_number(&pack);
        index.chunks.push(moved);
    }
    if let Some(filter) = &old.filter {
        let mut moved = filter.clone();
        let name: Arc<str> = old.pack(filter.pack).into();
        let pack = if dying.contains(&name) {
            let bytes = packs.read(&name, filter.offset, filter.bytes as usize)?;
            let (hash, place) = writer.place_other(&bytes, &nothing_known)?;
            if hash != filter.hash {
                return Err(Error::damaged(&name, "the filter of a run does not fit its hash"));
            }
            moved.offset = place.offset;
            place.pack
        } else {
            name
        };
        moved.pack = index.pack_number(&pack);
        index.filter = Some(moved);
    }
    let mut run = live.run.clone();
    run.entry_count = index.chunks.iter().map(|chunk| u64::from(chunk.entries)).sum();
    run.tombstone_count = index.chunks.iter().map(|chunk| u64::from(chunk.tombstones)).sum();
    run.plain_bytes = index.chunks.iter().map(|chunk| u64::from(chunk.plain_bytes)).sum();
    run.metadata = Blob(live.run.metadata().to_vec());
    writer.place_index(run, index, &nothing_known)
}

/// Whether anything of a run lies in packs that are to go.
pub(crate) fn is_in(live: &LiveRun, dying: &BTreeSet<Arc<str>>) -> bool {
    live.pieces().any(|(pack, _, _)| dying.contains(&pack))
}

/// Moves runs out of packs that are to go.
pub(crate) fn relocate_all(
    packs: &Arc<Packs>,
    base: &Base,
    dying: &BTreeSet<Arc<str>>,
    writer: &mut PackWriter,
) -> Result<()> {
    for (name, section) in &base.sections {
        // A section without changes is written in full each time, and leaves such packs by itself.
        if section.runs.iter().all(|live| live.run.is_base()) {
            continue;
        }
        for (number, live) in section.runs.iter().enumerate() {
            if is_in(live, dying) {
                let to = relocate(packs, live, dying, writer)?;
                writer.change(Change::Move { section: name.clone(), run: number, to });
            }
        }
    }
    Ok(())
}
