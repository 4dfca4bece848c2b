//! What differs between two checkpoints, entry by entry.
//!
//! Both are read side by side in the order of keys, so memory is what two scans take: for each run
//! that speaks at the place at hand a chunk and the bytes read ahead of it. A section whose runs
//! are the same on both sides is read once.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::Result;
use crate::chunk::Value;
use crate::ranges::KeyRange;
use crate::scan::Scan;
use crate::snapshot::{Snapshot, slices};

/// How an entry differs from the first checkpoint to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Only the second has the key.
    Added,
    /// Only the first has it.
    Removed,
    /// Both have it, with different values.
    Changed,
    /// Both have it, with the same value.
    Unchanged,
}

/// An entry that has been compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared<'a> {
    /// Its section.
    pub section: &'a str,
    /// Its key.
    pub key: &'a [u8],
    /// How it differs.
    pub difference: Difference,
    /// Bytes of key and value: in the second checkpoint, if the key is there.
    pub bytes: u64,
}

/// Takes an entry that has been compared; `Break` ends the comparison.
pub type VisitCompared<'a> = dyn FnMut(&Compared<'_>) -> ControlFlow<()> + 'a;

/// A number of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub entries: u64,
    /// Bytes of their keys and values; of changed ones those in the second checkpoint.
    pub bytes: u64,
}

/// How a section differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SectionDiff {
    /// Its name.
    pub section: String,
    /// Entries that only the second checkpoint has.
    pub added: Tally,
    /// Entries that only the first has.
    pub removed: Tally,
    /// Keys of both with different values.
    pub changed: Tally,
    /// Entries of both.
    pub unchanged: Tally,
}

impl SectionDiff {
    /// Whether the section holds the same in both.
    #[must_use]
    pub fn is_same(&self) -> bool {
        [self.added, self.removed, self.changed].iter().all(|tally| tally.entries == 0)
    }

    fn add(&mut self, difference: Difference, bytes: u64) {
        let tally = match difference {
            Difference::Added => &mut self.added,
            Difference::Removed => &mut self.removed,
            Difference::Changed => &mut self.changed,
            Difference::Unchanged => &mut self.unchanged,
        };
        tally.entries += 1;
        tally.bytes += bytes;
    }
}

/// Compares all entries of two checkpoints or savepoints, of whatever jobs. `visit` hears of each
/// entry: sections ascending by name, keys ascending in each.
///
/// # Errors
/// `Damaged` or `NotFound`, naming the object; `Subsumed` if one has been deleted. Entries before
/// it have been visited.
pub fn diff(a: &Snapshot, b: &Snapshot, visit: &mut VisitCompared<'_>) -> Result<Vec<SectionDiff>> {
    let names: BTreeSet<&str> = a.sections().into_iter().chain(b.sections()).collect();
    let mut found = Vec::new();
    for name in names {
        let mut section = SectionDiff { section: name.to_owned(), ..SectionDiff::default() };
        let ended = if have_same_runs(a, b, name) {
            count(a, &mut section, visit)?
        } else {
            compare(a, b, &mut section, visit)?
        };
        found.push(section);
        if ended.is_break() {
            break;
        }
    }
    Ok(found)
}

/// Runs are known by their hash: the same runs for the same ranges in the same order are the same
/// entries.
fn have_same_runs(a: &Snapshot, b: &Snapshot, section: &str) -> bool {
    let (a, b) = (a.runs(section), b.runs(section));
    let mut pairs = a.iter().zip(b);
    let same =
        pairs.all(|(a, b)| a.run.index_hash == b.run.index_hash && a.run.ranges == b.run.ranges);
    a.len() == b.len() && same
}

fn count(
    of: &Snapshot,
    section: &mut SectionDiff,
    visit: &mut VisitCompared<'_>,
) -> Result<ControlFlow<()>> {
    let mut entries = Entries::new(of, &section.section);
    while let Some((key, value)) = entries.next()? {
        if note(section, key, Difference::Unchanged, value.len(), visit).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn compare(
    a: &Snapshot,
    b: &Snapshot,
    section: &mut SectionDiff,
    visit: &mut VisitCompared<'_>,
) -> Result<ControlFlow<()>> {
    let (mut a, mut b) = (Entries::new(a, &section.section), Entries::new(b, &section.section));
    a.next()?;
    b.next()?;
    loop {
        let (order, ended) = match (a.entry(), b.entry()) {
            (None, None) => return Ok(ControlFlow::Continue(())),
            (Some((key, value)), None) => {
                (Ordering::Less, note(section, key, Difference::Removed, value.len(), visit))
            }
            (None, Some((key, value))) => {
                (Ordering::Greater, note(section, key, Difference::Added, value.len(), visit))
            }
            (Some(of_a), Some(of_b)) => note_two(section, of_a, of_b, visit),
        };
        if ended.is_break() {
            return Ok(ended);
        }
        if order.is_le() {
            a.next()?;
        }
        if order.is_ge() {
            b.next()?;
        }
    }
}

/// A key and its value.
type Entry<'a> = (&'a [u8], &'a [u8]);

/// Notes the smaller key, or both where they are equal.
fn note_two(
    section: &mut SectionDiff,
    a: Entry<'_>,
    b: Entry<'_>,
    visit: &mut VisitCompared<'_>,
) -> (Ordering, ControlFlow<()>) {
    let order = a.0.cmp(b.0);
    let (entry, difference) = match order {
        Ordering::Less => (a, Difference::Removed),
        Ordering::Greater => (b, Difference::Added),
        Ordering::Equal if a.1 == b.1 => (b, Difference::Unchanged),
        Ordering::Equal => (b, Difference::Changed),
    };
    (order, note(section, entry.0, difference, entry.1.len(), visit))
}

fn note(
    section: &mut SectionDiff,
    key: &[u8],
    difference: Difference,
    value_bytes: usize,
    visit: &mut VisitCompared<'_>,
) -> ControlFlow<()> {
    let bytes = (key.len() + value_bytes) as u64;
    section.add(difference, bytes);
    visit(&Compared { section: &section.section, key, difference, bytes })
}

/// The entries of a section, one after the other; what is deleted is left out.
struct Entries {
    scan: Scan,
    begun: bool,
}

impl Entries {
    fn new(of: &Snapshot, section: &str) -> Self {
        Self { scan: Scan::new(slices(of.runs(section), &KeyRange::all())), begun: false }
    }

    /// Goes to the first entry, or to the next.
    fn next(&mut self) -> Result<Option<Entry<'_>>> {
        let mut there = if self.begun { self.scan.next()? } else { self.scan.first()? };
        self.begun = true;
        while there && self.entry().is_none() {
            there = self.scan.next()?;
        }
        Ok(self.entry())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        match self.scan.entry()? {
            (key, Value::Put(value)) => Some((key, value)),
            (_, Value::Tombstone) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{Claim, Contents, JobId, MemoryStore, Owner, Store};

    type Table = BTreeMap<Vec<u8>, Vec<u8>>;

    /// What has been put and what deleted, by key.
    type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    /// Checkpoints 1, 2, …: each the changes to the one before.
    fn publish(store: &Arc<dyn Store>, changes: &[Changes]) {
        let owner = Owner::claim(Arc::clone(store), Claim::new("diff")).expect("nobody has it");
        for (number, changes) in (1..).zip(changes) {
            let checkpoint = owner.begin(number, owner.newest()).expect("the next number");
            let mut pack = checkpoint.writer("only").expect("a fine label");
            let contents = if number == 1 { Contents::All } else { Contents::Changed };
            let mut run = pack.section("s", contents, Vec::new()).expect("a section");
            for (key, value) in changes.iter().filter(|(_, value)| number > 1 || value.is_some()) {
                let pushed = value.as_ref().map(|value| run.push(key, value));
                pushed.unwrap_or_else(|| run.delete(key)).expect("an entry");
            }
            run.finish().expect("a run");
            let mut written = vec![pack.finish().expect("a pack")];
            written.push(checkpoint.merge().expect("a merge"));
            owner.publish(number, written, Vec::new(), 0).expect("it is published");
        }
    }

    fn tables(changes: &[Changes]) -> Vec<Table> {
        let mut table = Table::new();
        let apply = |changes: &Changes| {
            for (key, value) in changes {
                match value {
                    Some(value) => table.insert(key.clone(), value.clone()),
                    None => table.remove(key),
                };
            }
            table.clone()
        };
        changes.iter().map(apply).collect()
    }

    fn naive(a: &Table, b: &Table) -> Vec<(Vec<u8>, Difference)> {
        let keys: BTreeSet<&Vec<u8>> = a.keys().chain(b.keys()).collect();
        let difference = |key: &Vec<u8>| match (a.get(key), b.get(key)) {
            (None, _) => Difference::Added,
            (_, None) => Difference::Removed,
            (a, b) if a == b => Difference::Unchanged,
            _ => Difference::Changed,
        };
        keys.into_iter().map(|key| (key.clone(), difference(key))).collect()
    }

    fn changes() -> impl Strategy<Value = Vec<Changes>> {
        let key = prop::collection::vec(0_u8..4, 1..3);
        let value = prop::option::weighted(0.7, prop::collection::vec(0_u8..3, 0..3));
        prop::collection::vec(prop::collection::btree_map(key, value, 0..12), 1..6)
    }

    proptest! {
        #[test]
        fn fits_two_tables(changes in changes(), a: prop::sample::Index, b: prop::sample::Index) {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
            publish(&store, &changes);
            let tables = tables(&changes);
            let (a, b) = (a.index(tables.len()), b.index(tables.len()));
            let job = JobId::for_name("diff");
            let open = |at: usize| Snapshot::open(&store, job, at as u64 + 1).expect("it is there");
            let mut seen = Vec::new();
            let sections = diff(&open(a), &open(b), &mut |entry| {
                seen.push((entry.key.to_vec(), entry.difference));
                ControlFlow::Continue(())
            });
            let expected = naive(&tables[a], &tables[b]);
            prop_assert_eq!(&seen, &expected);
            let sections = sections.expect("nothing is damaged");
            let unchanged = sections.iter().map(|section| section.unchanged.entries).sum::<u64>();
            let same = expected.iter().filter(|(_, difference)| *difference == Difference::Unchanged);
            prop_assert_eq!(unchanged, same.count() as u64);
        }
    }
}
