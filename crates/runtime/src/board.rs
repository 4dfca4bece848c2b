//! What can be seen of a running job: written by its master and tasks, read by anybody.

use std::time::Duration;

use parking_lot::Mutex;
use strandline_barrier::CheckpointId;

/// Figures kept, at most, of each kind: enough for percentiles, bounded for jobs that run for ever.
const KEPT: usize = 10_000;

/// A completed checkpoint's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedCheckpoint {
    /// Its number.
    pub id: CheckpointId,
    /// When it was completed, Unix milliseconds.
    pub completed_ms: u64,
    /// From its trigger until its manifest was durable.
    pub duration: Duration,
    /// Bytes that a restore reads.
    pub full_bytes: u64,
    /// Bytes that it added to storage.
    pub written_bytes: u64,
}

/// The board of one job.
#[derive(Debug, Default)]
pub(crate) struct Board {
    posted: Mutex<Posted>,
}

#[derive(Debug, Default)]
struct Posted {
    running_since: Option<Duration>,
    completed: Vec<CompletedCheckpoint>,
    pauses: Vec<Duration>,
}

impl Board {
    pub(crate) fn running(&self, now: Duration) {
        self.posted.lock().running_since.get_or_insert(now);
    }

    pub(crate) fn completed(&self, checkpoint: CompletedCheckpoint) {
        push(&mut self.posted.lock().completed, checkpoint);
    }

    /// How long a task was held up by a barrier.
    pub(crate) fn pause(&self, pause: Duration) {
        push(&mut self.posted.lock().pauses, pause);
    }

    pub(crate) fn checkpoints(&self) -> Vec<CompletedCheckpoint> {
        self.posted.lock().completed.clone()
    }

    pub(crate) fn last(&self) -> Option<CompletedCheckpoint> {
        self.posted.lock().completed.last().copied()
    }

    pub(crate) fn pauses(&self) -> Vec<Duration> {
        self.posted.lock().pauses.clone()
    }

    pub(crate) fn running_since(&self) -> Option<Duration> {
        self.posted.lock().running_since
    }
}

fn push<T>(kept: &mut Vec<T>, value: T) {
    if kept.len() >= KEPT {
        kept.remove(0);
    }
    kept.push(value);
}
