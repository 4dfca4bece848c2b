//! What the tests share: claiming, writing and reading checkpoints by plain maps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use strandline_snapshot::{
    Checkpoint, Claim, Contents, JobId, Nonce, Owner, Published, Result, Snapshot, Store, Written,
};

/// Section → key → value.
pub(crate) type Model = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

pub(crate) fn job() -> JobId {
    JobId::for_name("test")
}

/// Takes the job, from a dead owner too whose lease has not run out.
pub(crate) fn claim(store: &Arc<dyn Store>, fresh: bool) -> Result<Owner> {
    Owner::claim(Arc::clone(store), Claim { fresh, take_over: true, ..gentle_claim() })
}

/// A claim that takes nothing from a live owner.
pub(crate) fn gentle_claim() -> Claim {
    Claim { holder: "a test".to_owned(), host: "here".to_owned(), ..Claim::new("test") }
}

/// Writes a model as one pack, all of it.
pub(crate) fn write(checkpoint: &Checkpoint, label: &str, model: &Model) -> Result<Written> {
    let mut pack = checkpoint.writer(label)?;
    for (name, entries) in model {
        let mut run = pack.section(name, Contents::All, Vec::new())?;
        for (key, value) in entries {
            run.push(key, value)?;
        }
        run.finish()?;
    }
    pack.finish()
}

/// Writes what makes one model of another as one pack.
pub(crate) fn write_changes(
    checkpoint: &Checkpoint,
    label: &str,
    before: &Model,
    after: &Model,
) -> Result<Written> {
    let mut pack = checkpoint.writer(label)?;
    let nothing = BTreeMap::new();
    for (name, entries) in after {
        let old = before.get(name).unwrap_or(&nothing);
        let mut run = pack.section(name, Contents::Changed, Vec::new())?;
        let keys: BTreeSet<&Vec<u8>> = old.keys().chain(entries.keys()).collect();
        for key in keys {
            match (old.get(key), entries.get(key)) {
                (Some(old), Some(new)) if old == new => {}
                (_, Some(new)) => run.push(key, new)?,
                (_, None) => run.delete(key)?,
            }
        }
        run.finish()?;
    }
    pack.finish()
}

/// Begins, writes and publishes a checkpoint.
pub(crate) fn publish(owner: &Owner, number: u64, model: &Model) -> Result<()> {
    let checkpoint = owner.begin(number, owner.newest())?;
    let written = write(&checkpoint, "all", model)?;
    owner.publish(number, vec![written], b"metadata".to_vec(), number).map(drop)
}

/// The same for changes since the newest, with a merge.
pub(crate) fn publish_changes(
    owner: &Owner,
    number: u64,
    before: &Model,
    after: &Model,
) -> Result<Published> {
    let checkpoint = owner.begin(number, owner.newest())?;
    let merged = checkpoint.merge()?;
    let written = write_changes(&checkpoint, "changes", before, after)?;
    owner.publish(number, vec![written, merged], b"metadata".to_vec(), number)
}

/// Reads a checkpoint back; sections without entries are left out.
pub(crate) fn read(store: &Arc<dyn Store>, number: u64) -> Result<Model> {
    read_all(&Snapshot::open(store, job(), number)?)
}

/// Reads a checkpoint that has been opened.
pub(crate) fn read_all(snapshot: &Snapshot) -> Result<Model> {
    let mut model = Model::new();
    for section in snapshot.sections() {
        let mut entries = BTreeMap::new();
        snapshot.visit(section, &mut |key, value| {
            entries.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })?;
        if !entries.is_empty() {
            model.insert(section.to_owned(), entries);
        }
    }
    Ok(model)
}

/// The model as a reader sees it.
pub(crate) fn visible(model: &Model) -> Model {
    model
        .iter()
        .filter(|(_, entries)| !entries.is_empty())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// Entries with 8-byte well-mixed keys, as keyed state has them.
pub(crate) fn entries(count: u64, value_bytes: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entry = |index: u64| {
        let key = blake3::hash(&index.to_le_bytes()).as_bytes()[..12].to_vec();
        let mut value = vec![0; value_bytes];
        blake3::Hasher::new()
            .update(&index.to_le_bytes())
            .update(b"value")
            .finalize_xof()
            .fill(&mut value);
        (key, value)
    };
    (0..count).map(entry).collect()
}

/// The seed of a random test: printed, and taken from `STRANDLINE_SEED` if that is set.
#[expect(clippy::print_stderr, reason = "whoever sees it fail needs the seed")]
pub(crate) fn seed() -> u64 {
    let given = std::env::var("STRANDLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let [a, b, c, d, e, f, g, h, ..] = Nonce::random().0;
    let seed = given.unwrap_or_else(|| u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    eprintln!("STRANDLINE_SEED={seed}");
    seed
}
