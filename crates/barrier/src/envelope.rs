//! What travels through an edge: batches, and the markers that keep their place among them.

use serde::{Deserialize, Serialize};

use crate::CheckpointId;

/// What a checkpoint is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// Taken for recovery; owned, and in time deleted, by the job.
    Checkpoint,
    /// Asked for by a user, who owns it.
    Savepoint,
}

/// How a task with several inputs waits for a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alignment {
    /// An input that has delivered the barrier is held back until all the others have it too. The
    /// snapshot covers exactly what came before the barrier.
    Aligned,
    /// No input is ever held back. The snapshot may already contain records from behind the
    /// barrier, which a recovery then sees a second time.
    AtLeastOnce,
}

/// What a barrier asks of every task it passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckpointOptions {
    /// What the checkpoint is for.
    pub kind: CheckpointKind,
    /// How tasks with several inputs wait for it.
    pub alignment: Alignment,
}

impl CheckpointOptions {
    /// Options of the given kind and alignment.
    #[must_use]
    pub const fn new(kind: CheckpointKind, alignment: Alignment) -> Self {
        Self { kind, alignment }
    }
}

/// The marker that divides a stream into what a checkpoint covers and what it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Barrier {
    /// The checkpoint it belongs to.
    pub id: CheckpointId,
    /// When the checkpoint was triggered, in Unix milliseconds.
    pub triggered_ms: u64,
    /// The completed checkpoint that this one is based on: a task may hand over what it has changed
    /// since, instead of everything. It is told with the barrier so that all tasks go by the same one,
    /// whenever they hear of completed checkpoints.
    pub base: Option<CheckpointId>,
    /// What it asks of every task.
    pub options: CheckpointOptions,
}

/// One element of an edge. Its order is the order in which it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Envelope<B> {
    /// Records.
    Batch(B),
    /// No record with a smaller event time follows; event time in milliseconds.
    Watermark(i64),
    /// The cut of a checkpoint.
    Barrier(Barrier),
    /// The checkpoint has been given up: whoever waits for its barriers stops waiting.
    Cancel(CheckpointId),
    /// Nothing is expected for a while: the watermark of this edge holds nobody back.
    Idle,
    /// Records are expected again.
    Active,
    /// Nothing follows, ever.
    End,
}

/// An [`Envelope`] without a batch, to be sent to every output alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// See [`Envelope::Watermark`].
    Watermark(i64),
    /// See [`Envelope::Barrier`].
    Barrier(Barrier),
    /// See [`Envelope::Cancel`].
    Cancel(CheckpointId),
    /// See [`Envelope::Idle`].
    Idle,
    /// See [`Envelope::Active`].
    Active,
    /// See [`Envelope::End`].
    End,
}

impl<B> From<Marker> for Envelope<B> {
    fn from(marker: Marker) -> Self {
        match marker {
            Marker::Watermark(time_ms) => Self::Watermark(time_ms),
            Marker::Barrier(barrier) => Self::Barrier(barrier),
            Marker::Cancel(id) => Self::Cancel(id),
            Marker::Idle => Self::Idle,
            Marker::Active => Self::Active,
            Marker::End => Self::End,
        }
    }
}
