//! Where state meets snapshot: frozen sections become runs, and runs become state again.
//!
//! A task that meets a barrier fills a `TaskSnapshot` with frozen views and goes on. A storage
//! thread turns it into a pack (`write_snapshot`); the runs that came of it are what the task is
//! acknowledged with (`TaskState`). At a restore each task reads its slice through `Restored`.
//!
//! A section is named `<operator uid>/<state>`. All subtasks of an operator write runs of the same
//! section; keyed entries are disjoint by hash, entries of operator state by their names.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strandline_barrier::{Barrier, CheckpointId};
use strandline_snapshot::{Checkpoint, Contents, PackWriter, Snapshot, Written};
use strandline_state::{
    Epoch, Frozen, HashRange, KeyHash, MaxParallelism, Table, View, decode_entry, hash_range,
};

use crate::sink::MakeDurable;
use crate::{Error, ErrorKind, Result};

/// What one task hands over at a barrier.
#[derive(Default)]
pub(crate) struct TaskSnapshot {
    sections: Vec<(String, Contents, Box<dyn Frozen>)>,
    durables: Vec<MakeDurable>,
    /// Where each split of a source stood.
    pub(crate) splits: Vec<SplitProgress>,
    /// The task has had all its input.
    pub(crate) ended: bool,
}

impl TaskSnapshot {
    /// Adds one named piece of state, all of it.
    pub(crate) fn section(&mut self, name: &str, frozen: impl Frozen + 'static) {
        self.sections.push((name.to_owned(), Contents::All, Box::new(frozen)));
    }

    /// Adds something that must be synced before the task is acknowledged.
    pub(crate) fn durable(&mut self, make_durable: MakeDurable) {
        self.durables.push(make_durable);
    }
}

impl std::fmt::Debug for TaskSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.sections.iter().map(|(name, ..)| name.as_str()).collect();
        f.debug_struct("TaskSnapshot").field("sections", &names).finish_non_exhaustive()
    }
}

/// How far a split had been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitProgress {
    /// The uid of its source.
    pub source: String,
    /// Its name.
    pub split: String,
    /// Its position, for people.
    pub position: String,
    /// Records read from it in all.
    pub records: u64,
    /// It has been read to its end.
    pub ended: bool,
}

/// What a task is acknowledged with: its durable runs.
#[derive(Debug)]
pub(crate) struct TaskState {
    pub(crate) written: Written,
    pub(crate) splits: Vec<SplitProgress>,
    pub(crate) ended: bool,
}

/// What the manifest says of the job, besides runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMetadata {
    /// The job's name.
    pub job_name: String,
    /// When the checkpoint was triggered, Unix milliseconds.
    pub triggered_ms: u64,
    /// From trigger until all tasks had acknowledged, milliseconds.
    pub duration_ms: u64,
    /// The job had read all its input: there is nothing to go on with.
    pub finished: bool,
    /// Key groups.
    pub max_parallelism: u16,
    /// Records read by all sources since the job's first start.
    pub records_read: u64,
    /// Operators with state or a name of their own, in the order of the graph.
    pub operators: Vec<OperatorMetadata>,
    /// All splits of all sources.
    pub splits: Vec<SplitProgress>,
}

/// One operator of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorMetadata {
    /// Its stable id.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its subtasks.
    pub parallelism: u32,
    /// How many of them had ended.
    pub ended: u32,
    /// Where a sink writes to, if that is a place.
    #[serde(default)]
    pub output: Option<String>,
}

/// Writes what a task has handed over; syncs what it has staged. Runs on a storage thread.
///
/// # Errors
/// A value can't be encoded, or storage fails.
pub(crate) fn write_snapshot(
    checkpoint: &Checkpoint,
    label: &str,
    snapshot: TaskSnapshot,
) -> Result<TaskState> {
    for make_durable in snapshot.durables {
        make_durable()?;
    }
    let mut pack = checkpoint.writer(label).map_err(storage)?;
    for (name, contents, frozen) in &snapshot.sections {
        write_section(&mut pack, name, *contents, &**frozen)?;
    }
    let written = pack.finish().map_err(storage)?;
    Ok(TaskState { written, splits: snapshot.splits, ended: snapshot.ended })
}

fn write_section(
    pack: &mut PackWriter,
    name: &str,
    contents: Contents,
    frozen: &dyn Frozen,
) -> Result<()> {
    let mut run = pack.section(name, contents, Vec::new()).map_err(storage)?;
    let mut failed = None;
    let mut note = |pushed: strandline_snapshot::Result<()>| match pushed {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    };
    let visited = match contents {
        Contents::All => frozen.visit(&mut |key, value| note(run.push(key, value))),
        Contents::Changed => frozen.visit_changes(&mut |key, value| {
            note(match value {
                Some(value) => run.push(key, value),
                None => run.delete(key),
            })
        }),
    };
    visited.map_err(|error| unencodable(name, error))?;
    failed.map_or(Ok(()), |error| Err(storage(error)))?;
    run.finish().map_err(storage)
}

/// A table of keyed state whose changes are handed over, and which checkpoints have them.
#[derive(Debug)]
pub(crate) struct Tracked<K, V> {
    pub(crate) table: Table<K, V>,
    /// The completed checkpoint that has everything last changed in the table's confirmed epoch or
    /// before.
    confirmed: Option<CheckpointId>,
    /// Freezes since, the oldest first: checkpoints that may be completed, or have failed.
    frozen: VecDeque<(CheckpointId, Epoch)>,
}

impl<K, V> Tracked<K, V> {
    pub(crate) fn new() -> Self {
        Self { table: Table::new(), confirmed: None, frozen: VecDeque::new() }
    }

    /// The table holds what a checkpoint of this job has.
    pub(crate) fn restored(&mut self, restored: &Restored) {
        self.confirmed = restored.checkpoint;
    }

    /// Freezes the table for a checkpoint: its changes since the checkpoint's base, or all of it where
    /// the base is none that the table knows.
    pub(crate) fn freeze<F: Frozen + 'static>(
        &mut self,
        barrier: &Barrier,
        section: &str,
        snapshot: &mut TaskSnapshot,
        frozen: impl FnOnce(View<K, V>) -> F,
    ) {
        let contents = self.confirm(barrier.base);
        let view = self.table.freeze();
        self.frozen.push_back((barrier.id, view.epoch()));
        snapshot.sections.push((section.to_owned(), contents, Box::new(frozen(view))));
    }

    fn confirm(&mut self, base: Option<CheckpointId>) -> Contents {
        let Some(base) = base else {
            return Contents::All;
        };
        if let Some(at) = self.frozen.iter().position(|(id, _)| *id == base) {
            // The views before it were of checkpoints that are completed and older, or have failed.
            if let Some((id, epoch)) = self.frozen.drain(..=at).next_back() {
                self.table.confirm(epoch);
                self.confirmed = Some(id);
            }
        }
        if self.confirmed == Some(base) { Contents::Changed } else { Contents::All }
    }
}

/// The checkpoint that a job goes on from, as one task sees it.
#[derive(Clone, Debug)]
pub(crate) struct Restored {
    /// Its number, if it is one of this job's that the next one can be based on.
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) subtask: u32,
    pub(crate) parallelism: u32,
    pub(crate) max: MaxParallelism,
}

impl Restored {
    /// Reads this subtask's slice of a section of keyed state. A section that the checkpoint
    /// doesn't have is empty: the operator is new.
    ///
    /// # Errors
    /// The checkpoint is damaged, or its keys or values are of other types.
    pub(crate) fn keyed<K, N, V>(
        &self,
        section: &str,
        mut take: impl FnMut(KeyHash, K, N, V),
    ) -> Result<()>
    where
        K: DeserializeOwned + Serialize,
        N: DeserializeOwned,
        V: DeserializeOwned,
    {
        let Some(range) = hash_range(self.subtask, self.parallelism, self.max) else {
            return Ok(());
        };
        let (first, last) = key_bounds(range);
        self.visit(section, &first, last.as_deref(), &mut |key, value| {
            let (hash, key, namespace, value) =
                decode_entry(key, value).map_err(|error| other_type(section, error))?;
            take(hash, key, namespace, value);
            Ok(())
        })
    }

    /// Reads a section of operator state, whole: every subtask sees every entry and takes its own.
    ///
    /// # Errors
    /// The checkpoint is damaged.
    pub(crate) fn entries(
        &self,
        section: &str,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.visit(section, &[], None, &mut take)
    }

    fn visit(
        &self,
        section: &str,
        first: &[u8],
        last: Option<&[u8]>,
        take: &mut TakeEntry<'_>,
    ) -> Result<()> {
        let mut failed = None;
        let visited = self.snapshot.visit_range(
            section,
            first,
            last,
            &mut |key, value| match take(key, value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            },
        );
        visited
            .map_err(|error| restore(&format!("state `{section}` can't be read")).because(error))?;
        failed.map_or(Ok(()), Err)
    }
}

/// Takes one entry of a section.
type TakeEntry<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// The first key of a hash range, and the first one after it (`None`: there is none).
#[expect(clippy::big_endian_bytes, reason = "entries sort by hash: big endian, as keys begin")]
fn key_bounds(range: HashRange) -> (Vec<u8>, Option<Vec<u8>>) {
    let after = range.last.0.checked_add(1).map(|hash| hash.to_be_bytes().to_vec());
    (range.first.0.to_be_bytes().to_vec(), after)
}

/// Encodes a value of operator state.
pub(crate) fn encode_value<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    rmp_serde::to_vec(value).map_err(|error| {
        Error::new(ErrorKind::Checkpoint, "a value can't be encoded").because(error)
    })
}

/// Decodes what [`encode_value`] has made.
pub(crate) fn decode_value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    rmp_serde::from_slice(bytes)
        .map_err(|error| restore("operator state of another type or build").because(error))
}

/// Encodes the job's part of a manifest.
pub(crate) fn encode_metadata(metadata: &JobMetadata) -> Result<Vec<u8>> {
    rmp_serde::to_vec_named(metadata).map_err(|error| {
        Error::new(ErrorKind::Checkpoint, "metadata can't be encoded").because(error)
    })
}

/// Decodes the job's part of a manifest.
///
/// # Errors
/// The bytes were not written by a job of this runtime.
pub fn decode_metadata(bytes: &[u8]) -> Result<JobMetadata> {
    rmp_serde::from_slice(bytes).map_err(|error| {
        restore("the checkpoint was not written by a job of this runtime").because(error)
    })
}

fn restore(text: &str) -> Error {
    Error::new(ErrorKind::Restore, text)
}

fn other_type(section: &str, error: strandline_state::Error) -> Error {
    restore(&format!("state `{section}` was written with other types or is damaged")).because(error)
}

fn unencodable(section: &str, error: strandline_state::Error) -> Error {
    Error::new(ErrorKind::Checkpoint, format!("state `{section}` can't be encoded")).because(error)
}

/// An error of the snapshot crate while a checkpoint is written.
pub(crate) fn storage(error: strandline_snapshot::Error) -> Error {
    use strandline_snapshot::ErrorKind as Kind;
    let kind = if error.kind() == Kind::Fenced {
        ErrorKind::Fenced
    } else if error.kind() == Kind::Unsettled {
        ErrorKind::Unsettled
    } else {
        ErrorKind::Checkpoint
    };
    Error::new(kind, "checkpoint storage").because(error)
}
