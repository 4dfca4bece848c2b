//! Outputs that are committed with the checkpoint.
//!
//! A two-phase sink *stages* what it writes. At a barrier it closes what it has staged since the
//! last one ([`SinkWriter::prepare`]); the names of what is staged (its *committables*) are kept in
//! the checkpoint; once the checkpoint is completed they are committed. A crash in between is
//! mended at the restore: [`Sink::recover`] commits what the restored checkpoint names, and
//! removes what it doesn't. Committing twice must be the same as committing once.

use serde::{Deserialize, Serialize};
use strandline_barrier::CheckpointId;

use crate::Result;

/// Names one staged piece of output: unique in the job, meaningful to its sink alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Committable {
    /// The checkpoint that it is committed with.
    pub checkpoint: CheckpointId,
    /// What the sink needs to commit it (a file name, say).
    pub name: String,
}

/// Who writes: part of every staged and committed name, so that no two attempts ever collide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkOwner {
    /// The job's id, 32 hex digits.
    pub job: String,
    /// The fence token of this run; grows with every start.
    pub token: u64,
}

/// An output that commits with the checkpoint. One value serves all subtasks.
pub trait Sink: Send + Sync + 'static {
    /// What it takes.
    type Record: Send + 'static;
    /// Writes for one subtask.
    type Writer: SinkWriter<Record = Self::Record>;

    /// What no other sink of the job may write to as well (a folder, say); a job that has it twice
    /// is refused. `None`: nothing that could be shared.
    fn output(&self) -> Option<String> {
        None
    }

    /// Called once before a start without a checkpoint; changes nothing that is there: refuses an
    /// output that can't be written, or that has committed pieces, unless it was told to
    /// overwrite them.
    ///
    /// # Errors
    /// The output is taken or can't be written; the message says the way out.
    fn check_fresh(&self) -> Result<()>;

    /// Called once before a restore; changes nothing: refuses if pieces of this job were committed
    /// *after* checkpoint `restored`, unless it was told to withdraw them.
    ///
    /// # Errors
    /// Later pieces are there; the message names them.
    fn check_recover(&self, _job: &str, _restored: CheckpointId) -> Result<()> {
        Ok(())
    }

    /// Called once at a start without a checkpoint, after [`Sink::check_fresh`] and before any
    /// task runs: makes the output ready and removes what is to be overwritten.
    ///
    /// # Errors
    /// The output can't be written.
    fn start_fresh(&self, owner: &SinkOwner) -> Result<()>;

    /// Called once at a restore, before any task runs: commits `pending` (whatever was committed
    /// already counts as done), removes staged pieces of this job that are not among them, and
    /// refuses if pieces were committed *after* checkpoint `restored`.
    ///
    /// # Errors
    /// A pending piece is neither staged nor committed, or later pieces are there.
    fn recover(
        &self,
        owner: &SinkOwner,
        restored: CheckpointId,
        pending: Vec<Committable>,
    ) -> Result<()>;

    /// The writer of one subtask.
    ///
    /// # Errors
    /// The output can't be opened.
    fn writer(&self, owner: &SinkOwner, subtask: u32) -> Result<Self::Writer>;
}

/// Makes staged output durable; runs once, on a storage thread, before the first checkpoint that
/// names the output is acknowledged. If it fails, no checkpoint with that output ever completes.
pub type MakeDurable = Box<dyn FnOnce() -> Result<()> + Send>;

/// What a subtask has staged for one checkpoint.
pub struct Prepared {
    /// What is to be committed with this checkpoint. Empty where nothing was written.
    pub committables: Vec<Committable>,
    /// Syncs it.
    pub make_durable: MakeDurable,
}

/// Writes for one subtask.
pub trait SinkWriter: Send {
    /// What it takes.
    type Record;

    /// Stages records; drains the batch.
    ///
    /// # Errors
    /// The output can't be written.
    fn write(&mut self, batch: &mut Vec<Self::Record>) -> Result<()>;

    /// Closes what has been staged since the last call, for checkpoint `id`. Must be quick: the
    /// sync belongs into [`Prepared::make_durable`].
    ///
    /// # Errors
    /// The output can't be written.
    fn prepare(&mut self, id: CheckpointId) -> Result<Prepared>;

    /// Commits these, in this order. Whatever was committed already counts as done.
    ///
    /// # Errors
    /// A piece can't be committed; the job fails and the restore commits it.
    fn commit(&mut self, committables: &[Committable]) -> Result<()>;
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("committables", &self.committables).finish_non_exhaustive()
    }
}
