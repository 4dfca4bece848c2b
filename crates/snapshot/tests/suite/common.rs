//! What the tests share: claiming, writing and reading checkpoints by plain maps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use strandline_snapshot::{Checkpoint, Claim, JobId, Owner, Result, Snapshot, Store, Written};

/// Section → key → value.
pub(crate) type Model = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

pub(crate) fn job() -> JobId {
    JobId::for_name("test")
}

pub(crate) fn claim(store: &Arc<dyn Store>, fresh: bool) -> Result<Owner> {
    let claim = Claim {
        job: job(),
        name: "test".to_owned(),
        holder: "a test".to_owned(),
        now_ms: 0,
        fresh,
    };
    Owner::claim(Arc::clone(store), claim)
}

/// Writes a model as one pack.
pub(crate) fn write(checkpoint: &Checkpoint, label: &str, model: &Model) -> Result<Written> {
    let mut pack = checkpoint.writer(label)?;
    for (name, entries) in model {
        let mut run = pack.section(name, Vec::new())?;
        for (key, value) in entries {
            run.push(key, value)?;
        }
        run.finish()?;
    }
    pack.finish()
}

/// Begins, writes and publishes a checkpoint.
pub(crate) fn publish(owner: &Owner, number: u64, model: &Model) -> Result<()> {
    let checkpoint = owner.begin(number)?;
    let written = write(&checkpoint, "all", model)?;
    owner.publish(number, vec![written], b"metadata".to_vec(), number).map(drop)
}

/// Reads a checkpoint back; sections without entries are left out.
pub(crate) fn read(store: &Arc<dyn Store>, number: u64) -> Result<Model> {
    let snapshot = Snapshot::open(store, job(), number)?;
    let mut model = Model::new();
    for section in snapshot.sections() {
        let entries = model.entry(section.to_owned()).or_default();
        snapshot.visit(section, &mut |key, value| {
            entries.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })?;
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
