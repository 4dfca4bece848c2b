//! A job on a simulated disk: what it publishes, and what must be there afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use strandline_snapshot::{
    Claim, Contents, JobId, LocalStore, Nonce, Owner, Result, Snapshot, Store, history, verify,
};

use crate::disk::SimDisk;

/// Where the store is: two directories that are not there at first.
pub(crate) const ROOT: &str = "/disk/checkpoints";

/// Section → key → value.
type Model = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

pub(crate) fn job() -> JobId {
    JobId::for_name("power")
}

pub(crate) fn store(disk: &SimDisk) -> Arc<dyn Store> {
    Arc::new(LocalStore::with_files(ROOT, Arc::new(disk.clone())))
}

pub(crate) fn claim(store: &Arc<dyn Store>) -> Result<Owner> {
    // A dead owner may have left no sign that it let go.
    let claim = Claim { nonce: Nonce([7; 16]), take_over: true, ..Claim::new("power") };
    Owner::claim(Arc::clone(store), claim)
}

/// What checkpoint `number` of the process `by` holds: a section that never changes, one that always
/// does, and a value of several pages.
fn model(number: u64, by: u8) -> Model {
    let value = |key: u64, seed: &[u8], len: usize| {
        let mut value = vec![0; len];
        blake3::Hasher::new()
            .update(&key.to_le_bytes())
            .update(seed)
            .finalize_xof()
            .fill(&mut value);
        (blake3::hash(&key.to_le_bytes()).as_bytes()[..8].to_vec(), value)
    };
    let seed = format!("{number} by {by}");
    let changing = (0..20).map(|key| value(key, seed.as_bytes(), 50));
    let large = [value(100, seed.as_bytes(), 9_000)];
    Model::from([
        ("constant".to_owned(), (0..30).map(|key| value(key, b"", 60)).collect()),
        ("changing".to_owned(), changing.chain(large).collect()),
    ])
}

/// Begins, writes, by a writer for each section, and publishes a checkpoint. One that fails is given
/// up.
pub(crate) fn publish(owner: &Owner, number: u64, by: u8) -> Result<()> {
    let published = try_publish(owner, number, by);
    if published.is_err() {
        owner.abandon(number)?;
    }
    published
}

fn try_publish(owner: &Owner, number: u64, by: u8) -> Result<()> {
    let checkpoint = owner.begin(number, owner.newest())?;
    let mut written = vec![checkpoint.merge()?];
    for (name, entries) in &model(number, by) {
        let mut pack = checkpoint.writer(name)?;
        let changed = checkpoint.base().is_some();
        let contents = if changed { Contents::Changed } else { Contents::All };
        let mut run = pack.section(name, contents, Vec::new())?;
        if !changed || name == "changing" {
            entries.iter().try_for_each(|(key, value)| run.push(key, value))?;
        }
        run.finish()?;
        written.push(pack.finish()?);
    }
    owner.publish(number, written, vec![by], number).map(drop)
}

/// The numbers of all checkpoints, each of them found whole: listed, verified, read.
pub(crate) fn whole_checkpoints(store: &Arc<dyn Store>) -> Result<Vec<u64>, String> {
    let failed = |error| format!("{error}");
    let listed = history(store, job()).map_err(failed)?;
    for of in &listed {
        let number = of.checkpoint;
        if let Some(damaged) = &of.damaged {
            return Err(format!("checkpoint {number}: {damaged}"));
        }
        let report = verify(store, job(), number).map_err(failed)?;
        if !report.problems.is_empty() {
            return Err(format!("checkpoint {number}: {:?}", report.problems));
        }
        let (by, read) = read(store, number).map_err(failed)?;
        if read != model(number, by) {
            return Err(format!("checkpoint {number} is not what was written"));
        }
    }
    Ok(listed.iter().map(|of| of.checkpoint).collect())
}

fn read(store: &Arc<dyn Store>, number: u64) -> Result<(u8, Model)> {
    let snapshot = Snapshot::open(store, job(), number)?;
    let mut model = Model::new();
    for section in snapshot.sections() {
        let entries = model.entry(section.to_owned()).or_default();
        snapshot.visit(section, &mut |key, value| {
            entries.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })?;
    }
    Ok((snapshot.metadata().first().copied().unwrap_or_default(), model))
}

/// What a process has seen done, each with the number of disk operations by then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Vec<(usize, Event)>);

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The checkpoint is there, whatever happens.
    There(u64),
    /// From here on the ones below may be gone.
    DeletingBelow(u64),
}

impl Events {
    pub(crate) fn there(&mut self, disk: &SimDisk, number: u64) {
        self.0.push((disk.ops_count(), Event::There(number)));
    }

    pub(crate) fn deleting_below(&mut self, disk: &SimDisk, number: u64) {
        self.0.push((disk.ops_count(), Event::DeletingBelow(number)));
    }

    /// The checkpoints that must be there after so many operations of the disk.
    pub(crate) fn required(&self, ops: usize) -> BTreeSet<u64> {
        let mut required = BTreeSet::new();
        for (_, event) in self.0.iter().filter(|(at, _)| *at <= ops) {
            match event {
                Event::There(number) => drop(required.insert(*number)),
                Event::DeletingBelow(number) => required.retain(|of| of >= number),
            }
        }
        required
    }
}

/// A process: three checkpoints, and a retention of the last of them.
pub(crate) fn run(disk: &SimDisk, by: u8) -> Result<Events> {
    let store = store(disk);
    let mut events = Events::default();
    let owner = claim(&store)?;
    if let Some(accepted) = owner.accepted() {
        events.there(disk, accepted.checkpoint);
    }
    let first = owner.first_checkpoint();
    for number in first..first + 3 {
        publish(&owner, number, by)?;
        events.there(disk, number);
    }
    events.deleting_below(disk, first + 2);
    owner.retain(1, 0)?;
    Ok(events)
}

/// After a power cut: what is required is there, everything that is there is whole, and the job goes
/// on.
pub(crate) fn check(disk: &SimDisk, required: &BTreeSet<u64>) -> Result<(), String> {
    let store = store(disk);
    let found = whole_checkpoints(&store)?;
    if let Some(missing) = required.iter().find(|number| !found.contains(number)) {
        return Err(format!("checkpoint {missing} is gone: {found:?}"));
    }
    check_goes_on(disk, &store, &found).map_err(|error| format!("going on: {error}"))
}

fn check_goes_on(disk: &SimDisk, store: &Arc<dyn Store>, found: &[u64]) -> Result<(), String> {
    let failed = |error| format!("{error}");
    let owner = claim(store).map_err(failed)?;
    let next = owner.first_checkpoint();
    let accepted = owner.accepted().map(|listed| listed.checkpoint);
    if accepted.as_ref() != found.last() || found.iter().any(|number| *number >= next) {
        return Err(format!("from {accepted:?} to {next}, of {found:?}"));
    }
    publish(&owner, next, 99).map_err(failed)?;
    owner.retain(1, 0).map_err(failed)?;
    let left = whole_checkpoints(store)?;
    if left != [next] {
        return Err(format!("only {next} is to be kept: {left:?}"));
    }
    no_leftovers(disk)
}

/// No temporary files.
pub(crate) fn no_leftovers(disk: &SimDisk) -> Result<(), String> {
    match disk.paths().into_iter().find(|path| path.contains("/.tmp-")) {
        Some(path) => Err(format!("{path} is left over")),
        None => Ok(()),
    }
}
