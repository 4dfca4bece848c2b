//! Which runs to merge, and which part of a base to write again: a pure plan.
//!
//! # The problem
//!
//! Each checkpoint adds one run of changes to a section. Reading wants few runs, writing wants none
//! to be written again, and no single checkpoint shall pay for all.
//!
//! # How it works
//!
//! A section is parted into *segments*, at the keys where its bases begin (a base run has 16 to 32
//! MiB). Over the base of a segment lies a stack of runs, and each checkpoint adds one. At most
//! [`MAX_DELTAS`] = 11 of them and the base are there at any key.
//!
//! *Merging* follows the binomial scheme of Mathieu, Staelin, Young and Yousefi ("Bigtable merge
//! compaction", 2014): with k runs allowed and n changes since the base was written, let d be the
//! smallest depth with C(k + d − 1, d) ≥ n. The first C(k + d − 2, d − 1) changes become one run
//! (built with k runs and depth d − 1), the rest is put in k − 1 runs by the same rule. So a change
//! is written at most d times before it reaches the base: with k = 11, at most 2 times within 66
//! checkpoints, 3 within 286, 4 within 1,001, 5 within 3,003.
//!
//! *Rewriting*: when the changes over a segment have outgrown its base by [`OUTGROWN`] = 5/4, or half of
//! its entries are deleted, the segment is written again as a base. A change costs at most
//! 4/5 of its bytes for that.
//!
//! # The bounds
//!
//! For a section of B bytes of which D change at each checkpoint (uniformly):
//! - written, on average: D · (d + 4/5), with d from above for n = 5/4 · B / D changes. One percent: n =
//!   125, d = 3: at most 3.8 D; less in fact, since not every change is merged d times and merged
//!   runs hold a key once: 3.1 D.
//! - read at any key: 12 runs.
//! - space: the base, and changes of 5/4 of it: 2.25 B count at most. What lies in packs is at most
//!   [`STORED`] = 5/2 times what counts, by copying out of the deadest packs: 5.6 B in the worst case.
//! - one checkpoint: D for the changes and [`BUDGET`] = 4.6 D for all else, or 48 MiB where that is
//!   more. A stack that is full is merged in any case.
//!
//! So that segments don't all come to be merged and rewritten at the same time, each base
//! carries a phase (an eighth bit number): it behaves as if a part of the changes that it can bear
//! had come already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pack::LiveRun;
use crate::ranges::{KeyRange, overlapping};

/// At any key no more runs than this lie over the base.
pub(crate) const MAX_DELTAS: usize = 11;

/// A segment is written again when its changes have so many times the bytes of its base.
const OUTGROWN: f64 = 1.25;

/// What lies in packs is at most so many times what counts of it.
const STORED: f64 = 2.5;

/// From here on a segment is written again even if the budget does not allow it.
const OVERDUE: f64 = 1.5;

/// What is written besides the changes, in terms of them.
const BUDGET: f64 = 4.6;

/// What may be written besides them in any case.
const LEAST_BUDGET_BYTES: f64 = 48.0 * 1024.0 * 1024.0;

/// Smaller bases count as if they had so many bytes.
const LEAST_BASE_BYTES: f64 = 1024.0 * 1024.0;

/// Merges of neighbours that cost less together are one.
const LEAST_MERGE_BYTES: f64 = 8.0 * 1024.0 * 1024.0;

/// Where a checkpoint adds less than this to the mean segment, segments are merged together.
const LEAST_SPREAD_BYTES: f64 = 128.0 * 1024.0;

/// Changes that a phase stands for at most: those of the scheme's second depth.
const PHASE_CHANGES: u64 = 66;

/// Runs to be replaced by one within a range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    pub(crate) section: String,
    pub(crate) range: KeyRange,
    /// Places of the runs in their section, ascending: the newest ones, or all.
    pub(crate) runs: Vec<usize>,
    /// How many changes the new run holds; 0 if it is a base.
    pub(crate) merged: u32,
    cost: f64,
    urgency: f64,
    /// One run more, and there would be too many.
    is_due: bool,
}

/// How much may be written besides the changes of this many bytes.
pub(crate) fn budget(changed_bytes: u64) -> f64 {
    (as_f64(changed_bytes) * BUDGET).max(LEAST_BUDGET_BYTES)
}

/// What to do for the sections of a checkpoint, in this order. Takes what it costs from the budget.
pub(crate) fn plan<'a>(
    sections: impl Iterator<Item = (&'a str, &'a [LiveRun])>,
    left: &mut f64,
) -> Vec<Task> {
    let mut tasks: Vec<Task> =
        sections.flat_map(|(name, runs)| joined(of_section(name, runs))).collect();
    tasks.sort_by(|a, b| {
        let due = b.is_due.cmp(&a.is_due);
        // What is written again needs no merge any more.
        let bases_first = (a.merged > 0).cmp(&(b.merged > 0));
        due.then(bases_first).then(b.urgency.total_cmp(&a.urgency))
    });
    let mut rewrites = 0;
    tasks.retain(|task| {
        // One segment that is long overdue is written whatever the budget, so that all are in time.
        let overdue = task.merged == 0 && rewrites == 0 && task.urgency >= OVERDUE;
        let taken = task.is_due || overdue || task.cost <= *left;
        if taken {
            *left -= task.cost;
            rewrites += u32::from(task.merged == 0);
        }
        taken
    });
    tasks
}

/// What one segment of a section has.
struct Segment {
    range: KeyRange,
    base_bytes: f64,
    base_entries: f64,
    phase: f64,
    /// The runs over the base, the oldest first.
    stack: Vec<Layer>,
    /// All runs that say something here.
    runs: Vec<usize>,
}

/// Runs that don't overlap and hold as many changes each: several writers have written them for one
/// checkpoint, or one merge that was long. At a key they are one.
struct Layer {
    runs: Vec<usize>,
    ranges: Vec<KeyRange>,
    merged: u64,
    bytes: f64,
    tombstones: f64,
}

fn of_section(name: &str, runs: &[LiveRun]) -> Vec<Task> {
    if runs.iter().all(|live| live.run.is_base()) {
        return Vec::new();
    }
    let segments = segments(runs);
    // The average of a whole checkpoint: that of a single segment is a matter of a chunk or two.
    let newest = runs.iter().rev().find(|live| live.run.merged == 1);
    let of_newest = newest.map_or(0.0, |newest| {
        let made = |live: &&LiveRun| live.run.merged == 1 && live.run.pack == newest.run.pack;
        runs.iter().filter(made).map(|live| as_f64(live.run.full_bytes)).sum()
    });
    let spread = of_newest / as_f64(segments.len() as u64) >= LEAST_SPREAD_BYTES;
    segments.into_iter().filter_map(|segment| segment.task(name, spread)).collect()
}

/// The parts of a section, with what every run has in them.
fn segments(runs: &[LiveRun]) -> Vec<Segment> {
    let bases = runs.iter().filter(|live| live.run.is_base());
    let mut starts: Vec<&[u8]> =
        bases.flat_map(|live| live.run.ranges.iter().map(KeyRange::first)).collect();
    starts.sort_unstable();
    starts.dedup();
    let inner = starts.get(1..).unwrap_or_default();
    let firsts = std::iter::once(&[][..]).chain(inner.iter().copied());
    let afters = inner.iter().copied().map(Some).chain([None]);
    let mut segments: Vec<Segment> = firsts
        .zip(afters)
        .map(|(first, after)| Segment::new(KeyRange::new(first, after)))
        .collect();
    for (number, live) in runs.iter().enumerate() {
        add_run(&mut segments, number, live);
    }
    segments
}

/// Adds what a run has to each segment that it says something in.
fn add_run(segments: &mut [Segment], number: usize, live: &LiveRun) {
    let mut begun = 0;
    for range in &live.run.ranges {
        // Two ranges of the run may be of one segment.
        begun += segments
            .get(begun..)
            .map_or(0, |left| left.partition_point(|segment| segment.range.ends_by(range.first())));
        let left = segments.get_mut(begun..).unwrap_or_default().iter_mut();
        for segment in left.take_while(|segment| !range.ends_by(segment.range.first())) {
            segment.begin_run(number, live);
            begun += 1;
        }
    }
    let mut at = 0;
    for chunk in live.chunks() {
        while segments.get(at).is_some_and(|segment| segment.range.ends_by(&chunk.first_key)) {
            at += 1;
        }
        // A chunk that begins before the first range counts where the run begins.
        let Some(segment) = segments.get_mut(at) else { break };
        let (bytes, entries) = (f64::from(chunk.stored_bytes), f64::from(chunk.entries));
        if live.run.is_base() {
            segment.base_bytes += bytes;
            segment.base_entries += entries;
        } else if let Some(layer) =
            segment.stack.last_mut().filter(|of| of.runs.last() == Some(&number))
        {
            layer.bytes += bytes;
            layer.tombstones += f64::from(chunk.tombstones);
        }
    }
}

impl Segment {
    fn new(range: KeyRange) -> Self {
        let (base_bytes, base_entries, phase) = (0.0, 0.0, 0.0);
        Self { range, base_bytes, base_entries, phase, stack: Vec::new(), runs: Vec::new() }
    }

    fn begin_run(&mut self, number: usize, live: &LiveRun) {
        self.runs.push(number);
        if live.run.is_base() {
            self.phase = self.phase.max(f64::from(live.run.phase) / 256.0);
        } else {
            let ranges = overlapping(&live.run.ranges, &self.range).iter();
            let ranges = ranges.filter_map(|range| range.common(&self.range));
            self.add_to_stack(number, u64::from(live.run.merged), ranges.collect());
        }
    }

    /// To the newest layer, if these ranges fit in beside what it has; otherwise to a new one.
    fn add_to_stack(&mut self, number: usize, merged: u64, ranges: Vec<KeyRange>) {
        let fits = self.stack.last().is_some_and(|layer| {
            let mut pairs = layer.ranges.iter().flat_map(|of| ranges.iter().map(move |r| (of, r)));
            layer.merged == merged && pairs.all(|(a, b)| a.common(b).is_none())
        });
        let mut layer = match self.stack.pop() {
            Some(layer) if fits => layer,
            other => {
                self.stack.extend(other);
                let (runs, ranges) = (Vec::new(), Vec::new());
                Layer { runs, ranges, merged, bytes: 0.0, tombstones: 0.0 }
            }
        };
        layer.runs.push(number);
        layer.ranges.extend(ranges);
        self.stack.push(layer);
    }

    /// `spread`: segments are merged at different times.
    fn task(self, section: &str, spread: bool) -> Option<Task> {
        let bytes: f64 = self.stack.iter().map(|layer| layer.bytes).sum();
        let tombstones: f64 = self.stack.iter().map(|layer| layer.tombstones).sum();
        let base = self.base_bytes.max(LEAST_BASE_BYTES);
        let outgrown = bytes / (base * OUTGROWN) + self.phase;
        let deleted = 2.0 * tombstones / self.base_entries.max(1000.0);
        let is_due = self.stack.len() >= MAX_DELTAS;
        let urgency = outgrown.max(deleted);
        if urgency >= 1.0 && !self.stack.is_empty() {
            // What is merged if it comes to that: the segment must not wait for its turn.
            let merge = if is_due { self.merge(section, spread) } else { None };
            // Changes are taken for new values of old keys.
            let cost = self.base_bytes.max(bytes / OUTGROWN);
            let base = Task {
                section: section.to_owned(),
                range: self.range,
                runs: self.runs,
                merged: 0,
                cost,
                urgency,
                is_due: false,
            };
            return merge.filter(|merge| merge.cost < base.cost).or(Some(Task { is_due, ..base }));
        }
        self.merge(section, spread)
    }

    /// The newest runs that the scheme wants to be one.
    fn merge(&self, section: &str, spread: bool) -> Option<Task> {
        let count = self.to_merge(spread);
        let newest = self.stack.get(self.stack.len() - count..).unwrap_or_default();
        if newest.len() < 2 {
            return None;
        }
        let merged: u64 = newest.iter().map(|layer| layer.merged).sum();
        Some(Task {
            section: section.to_owned(),
            range: self.range.clone(),
            runs: newest.iter().flat_map(|layer| layer.runs.iter().copied()).collect(),
            merged: u32::try_from(merged).unwrap_or(u32::MAX).max(1),
            cost: newest.iter().map(|layer| layer.bytes).sum(),
            urgency: as_f64(self.stack.len() as u64),
            is_due: self.stack.len() >= MAX_DELTAS,
        })
    }

    /// How many of the newest runs are not where the scheme wants runs to end.
    fn to_merge(&self, spread: bool) -> usize {
        let merged: u64 = self.stack.iter().map(|layer| layer.merged).sum();
        let phase = if spread { self.phase_changes() } else { 0 };
        let ends = group_ends(merged + phase + 1);
        let mut end = phase;
        let at_an_end = |layer: &Layer| {
            end += layer.merged;
            ends.binary_search(&end).is_ok()
        };
        let kept = self.stack.iter().map(at_an_end).take_while(|at_an_end| *at_an_end).count();
        // One run alone is where it should be; a stack that is full must shrink in any case.
        match self.stack.len() - kept {
            0 | 1 if self.stack.len() >= MAX_DELTAS => 2,
            0 | 1 => 0,
            count => count,
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 66")]
    fn phase_changes(&self) -> u64 {
        (self.phase * as_f64(PHASE_CHANGES)) as u64
    }
}

/// More changes than this are not told apart.
const MAX_CHANGES: u64 = 1 << 31;

/// Where the groups end that n changes are in, by the binomial scheme.
fn group_ends(changes: u64) -> Vec<u64> {
    // No job lives to see more.
    let mut changes = changes.min(MAX_CHANGES);
    let mut ends = Vec::new();
    let (mut end, mut runs) = (0, MAX_DELTAS as u64);
    let mut depth = (1..).find(|depth| capacity(runs, *depth) >= changes).unwrap_or(1);
    while depth > 1 && changes > 0 {
        let first = capacity(runs, depth - 1);
        if changes <= first {
            depth -= 1;
            continue;
        }
        end += first;
        ends.push(end);
        changes -= first;
        runs -= 1;
    }
    ends.extend(end + 1..=end + changes);
    ends
}

/// How many changes so many runs can hold if each is written at most `depth` times: the binomial
/// coefficient C(runs + depth − 1, depth), at most 2³².
fn capacity(runs: u64, depth: u64) -> u64 {
    let steps = 1..=depth;
    let capacity = steps.fold(1, |product: u64, step| product * (runs + step - 1) / step);
    capacity.min(1 << 32)
}

/// Neighbours that merge the same runs, as one as long as that is small.
fn joined(tasks: Vec<Task>) -> Vec<Task> {
    let mut joined: Vec<Task> = Vec::with_capacity(tasks.len());
    for task in tasks {
        match joined.last_mut() {
            Some(last) if adjoin(last, &task) => {
                last.range = KeyRange::new(last.range.first(), task.range.after());
                last.runs.extend(task.runs);
                last.runs.sort_unstable();
                last.runs.dedup();
                last.cost += task.cost;
                last.urgency = last.urgency.max(task.urgency);
                last.is_due |= task.is_due;
            }
            _ => joined.push(task),
        }
    }
    joined
}

fn adjoin(a: &Task, b: &Task) -> bool {
    let same = if a.merged == 0 { b.merged == 0 } else { a.runs == b.runs };
    same && a.range.after() == Some(b.range.first()) && a.cost + b.cost <= LEAST_MERGE_BYTES
}

/// Sizes are far below 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "sizes are estimates here")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

/// Bytes by pack.
pub(crate) type PackBytes = BTreeMap<Arc<str>, u64>;

/// Packs of which less than a quarter counts: what is written in full is written anew if it lies
/// there.
pub(crate) fn dying(live: &PackBytes, sizes: &PackBytes) -> BTreeSet<Arc<str>> {
    let mostly_dead = |(pack, live): (&Arc<str>, &u64)| {
        let size = sizes.get(pack).copied().unwrap_or(0);
        (live.saturating_mul(4) < size).then(|| Arc::clone(pack))
    };
    live.iter().filter_map(mostly_dead).collect()
}

/// Packs to be emptied by copying what counts: the deadest, until what is left is at most
/// [`STORED`] times what counts. Most packs die by themselves, when what they hold is merged.
pub(crate) fn to_empty(live: &PackBytes, sizes: &PackBytes, budget: f64) -> BTreeSet<Arc<str>> {
    let size = |pack: &Arc<str>| sizes.get(pack).copied().unwrap_or(0);
    let counts: f64 = live.values().copied().map(as_f64).sum();
    let mut stored: f64 = live.keys().map(|pack| as_f64(size(pack))).sum();
    let mut deadest: Vec<(f64, &Arc<str>, u64)> = live
        .iter()
        .map(|(pack, live)| (as_f64(*live) / as_f64(size(pack).max(1)), pack, *live))
        .filter(|(share, _, _)| *share < 0.5)
        .collect();
    deadest.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut empty, mut left) = (BTreeSet::new(), budget);
    for (_, pack, live) in deadest {
        if stored <= STORED * counts + LEAST_BUDGET_BYTES {
            break;
        }
        if as_f64(live) <= left {
            left -= as_f64(live);
            stored -= as_f64(size(pack));
            empty.insert(Arc::clone(pack));
        }
    }
    empty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_binomial() {
        assert_eq!(capacity(11, 1), 11);
        assert_eq!(capacity(11, 2), 66);
        assert_eq!(capacity(11, 3), 286);
        assert_eq!(capacity(11, 4), 1001);
        assert_eq!(capacity(11, 5), 3003);
        assert_eq!(capacity(1, 9), 1);
    }

    #[test]
    fn groups_are_few_and_only_ever_merge() {
        let mut before: Vec<u64> = Vec::new();
        for changes in 1..5000 {
            let ends = group_ends(changes);
            assert!(ends.len() <= MAX_DELTAS, "changes={changes}: {ends:?}");
            assert_eq!(ends.last(), Some(&changes));
            let kept = ends.iter().filter(|end| **end != changes);
            assert!(kept.into_iter().all(|end| before.contains(end)), "changes={changes}");
            before = ends;
        }
    }

    /// First change and end of each group.
    fn groups(changes: u64) -> Vec<(u64, u64)> {
        let ends = group_ends(changes);
        let firsts = std::iter::once(0).chain(ends.iter().copied());
        firsts.zip(ends.iter().copied()).collect()
    }

    /// A change is written as often as it is in a run that is new: with its own at most d times.
    #[test]
    fn a_change_is_written_no_more_often_than_the_depth_allows() {
        for (changes, depth) in [(11, 1), (66, 2), (286, 3), (1001, 4)] {
            let mut written = vec![0; changes];
            let mut before: Vec<(u64, u64)> = Vec::new();
            for now in 1..=changes as u64 {
                let groups = groups(now);
                let new = groups.iter().filter(|group| !before.contains(group));
                let changes = new.flat_map(|(first, end)| *first..*end);
                let places = changes.map(|change| usize::try_from(change).expect("small"));
                places.for_each(|change| written[change] += 1);
                before = groups;
            }
            assert!(written.iter().all(|times| *times <= depth), "changes={changes}");
        }
    }
}
