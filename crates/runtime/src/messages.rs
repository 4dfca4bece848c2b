//! What reaches the job master: one inbox for tasks, storage and callers.

use std::time::Duration;

use crossbeam::channel::Sender;
use strandline_barrier::CheckpointId;
use strandline_coordinator::{Outcome, TaskId};
use strandline_snapshot::Published;

use crate::checkpointing::TaskState;
use crate::task::Report;
use crate::{Error, Result};

/// One message to the job master.
#[derive(Debug)]
pub(crate) enum Message {
    /// A task says something.
    Task(TaskId, Report),
    /// A task's snapshot has been written, or not.
    Written { task: TaskId, id: CheckpointId, result: Result<TaskState> },
    /// A manifest has been published, or not.
    Published { id: CheckpointId, result: Result<Published> },
    /// Why a restore failed, and what would not fail.
    Diagnosed(Error),
    /// Another process has taken over.
    OwnerLost(Error),
    /// A piece of storage work panicked.
    StoragePanicked(String),
    /// Somebody asks for something.
    Request(Request),
}

/// What a caller may ask of a running job.
#[derive(Debug)]
pub(crate) enum Request {
    /// A checkpoint now.
    Checkpoint { reply: Sender<Outcome> },
    /// A last checkpoint within the grace time, then the end. A second one ends at once.
    Suspend { grace: Duration },
    /// The end, at once.
    Cancel,
}
