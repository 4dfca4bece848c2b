//! A small real job: three owners, a checkpoint of each, every kind of object, every compression.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use strandline_snapshot::{
    Attempt, Checkpoint, Claim, Claimant, Compression, Contents, JobId, MemoryStore, Nonce, Owner,
    Pin, Result, Snapshot, Store, Written, has_taken_up, history, job_name, list_jobs, verify,
};

/// Objects by their paths.
pub type Objects = BTreeMap<String, Vec<u8>>;

/// The entries of a section.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The section that has all: a base of several chunks, changes, deletions.
const TABLE: &str = "operator/table";

/// Nothing reads more entries than this.
const MOST_ENTRIES: usize = 200_000;

/// The job.
#[must_use]
pub fn job() -> JobId {
    JobId::for_name("fuzz")
}

/// Its objects after three checkpoints.
pub fn objects() -> &'static Objects {
    static OBJECTS: OnceLock<Objects> = OnceLock::new();
    OBJECTS.get_or_init(|| make().expect("memory does not fail"))
}

/// A store of these objects. What can't be an object is left out.
#[must_use]
pub fn store(objects: &Objects) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    for (path, bytes) in objects {
        store.create(path, bytes).ok();
    }
    store
}

fn make() -> Result<Objects> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = claim(&store, Compression::None)?;
    let checkpoint = first.begin(1, None)?;
    first.publish(1, vec![write_all(&checkpoint)?], b"metadata".to_vec(), 1)?;
    drop(first);
    for (number, compression) in [(2, Compression::Lz4), (3, Compression::Zstd)] {
        let owner = claim(&store, compression)?;
        go_on(&owner, number)?;
    }
    // Dropped after the objects have been read: it is one of them.
    let _pin = Pin::open(&store, job(), 2, "a reader", 5)?;
    let all = store.list("")?.into_iter().map(|object| {
        let bytes = store.read(&object.path, 0, usize::try_from(object.bytes).unwrap_or(0))?;
        Ok((object.path, bytes))
    });
    all.collect()
}

fn key(index: u64) -> Vec<u8> {
    let hash = strandline_snapshot::pieces::mix(index + 1).to_be_bytes();
    [&hash[..], b"key", &index.to_le_bytes()[..2]].concat()
}

fn write_all(checkpoint: &Checkpoint) -> Result<Written> {
    let mut pack = checkpoint.writer("all")?;
    let mut keys: Vec<Vec<u8>> = (0..1500).map(key).collect();
    keys.sort_unstable();
    let mut run = pack.section(TABLE, Contents::All, b"schema".to_vec())?;
    for key in &keys {
        let value = [&key[8..], &[b'v'; 30]].concat();
        run.push(key, &value)?;
    }
    run.finish()?;
    let mut run = pack.section("operator/few", Contents::All, Vec::new())?;
    run.push(b"", b"nothing")?;
    run.push(b"a", b"")?;
    run.push(b"b", b"1")?;
    run.finish()?;
    pack.section("operator/none", Contents::All, Vec::new())?.finish()?;
    pack.finish()
}

fn write_changes(checkpoint: &Checkpoint, number: u64) -> Result<Written> {
    let mut pack = checkpoint.writer("changes")?;
    let mut keys: Vec<Vec<u8>> = (number..1600).step_by(97).map(key).collect();
    keys.sort_unstable();
    let mut run = pack.section(TABLE, Contents::Changed, b"schema".to_vec())?;
    for (at, key) in keys.iter().enumerate() {
        if at % 3 == 0 { run.delete(key)? } else { run.push(key, &number.to_le_bytes())? }
    }
    run.finish()?;
    let mut run = pack.section("operator/few", Contents::Changed, Vec::new())?;
    run.delete(b"a")?;
    run.finish()?;
    pack.finish()
}

fn a_claim(compression: Compression) -> Claim {
    Claim {
        holder: "a fuzzer".to_owned(),
        nonce: Nonce([7; 16]),
        take_over: true,
        compression,
        ..Claim::new("fuzz")
    }
}

/// Takes the job over.
fn claim(store: &Arc<dyn Store>, compression: Compression) -> Result<Owner> {
    Owner::claim(Arc::clone(store), a_claim(compression))
}

/// Takes a checkpoint of changes, with all the work that comes with it.
fn go_on(owner: &Owner, number: u64) -> Result<()> {
    let checkpoint = owner.begin(number, owner.newest())?;
    let merged = checkpoint.merge()?;
    let written = write_changes(&checkpoint, number)?;
    owner.publish(number, vec![written, merged], b"metadata".to_vec(), number).map(drop)
}

/// All that is done with a job. True if a checkpoint was published.
pub fn live(store: &Arc<dyn Store>) -> Option<u64> {
    look(store);
    let mut gentle =
        Claimant::new(Arc::clone(store), Claim { take_over: false, ..a_claim(Compression::Lz4) });
    if let Ok(Attempt::Claimed(owner)) = gentle.attempt(3) {
        owner.renew(4).ok();
    }
    let owner = claim(store, Compression::Zstd).ok()?;
    let number = owner.first_checkpoint();
    owner.renew(5).ok();
    let published = go_on(&owner, number).is_ok();
    if !published {
        owner.abandon(number).ok();
    }
    owner.retain(2, 6).ok();
    drop(owner);
    look(store);
    published.then_some(number)
}

/// What somebody from outside asks.
fn look(store: &Arc<dyn Store>) {
    list_jobs(store).ok();
    job_name(store, job()).ok();
    has_taken_up(store, job(), "savepoint").ok();
    for listed in history(store, job()).unwrap_or_default() {
        Snapshot::open(store, job(), listed.checkpoint).ok();
    }
}

/// The entries of a section, if it can be read.
///
/// # Errors
/// It can't.
pub fn read(snapshot: &Snapshot, section: &str) -> Result<Entries> {
    let mut entries = Vec::new();
    snapshot.visit(section, &mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        if entries.len() < MOST_ENTRIES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys ascend");
    Ok(entries)
}

/// A published checkpoint counts and is whole.
pub fn check_whole(store: &Arc<dyn Store>, number: u64) {
    let listed = history(store, job()).expect("its owner has read the same");
    assert!(listed.iter().any(|listed| listed.checkpoint == number), "{number} is in {listed:?}");
    let report = verify(store, job(), number).expect("it is there");
    assert_eq!(report.problems, []);
    let snapshot = Snapshot::open(store, job(), number).expect("it is there");
    assert!(read(&snapshot, TABLE).is_ok_and(|entries| entries.len() > 1000));
}
