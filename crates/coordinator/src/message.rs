//! The vocabulary of the round: what the coordinator is told, and what it asks for.

use std::fmt;

use serde::{Deserialize, Serialize};
use strandline_barrier::{CheckpointId, CheckpointOptions};

/// A subtask of the physical graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u32);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How often the job has been restarted. Messages of another attempt change nothing; the handles
/// that they bring are discarded.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Attempt(pub u32);

/// Who takes part in every checkpoint: all tasks of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The tasks, in any order, each once.
    pub tasks: Vec<PlannedTask>,
}

/// A task of a [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedTask {
    /// Its name in messages.
    pub id: TaskId,
    /// It has no input channel: barriers start here.
    pub source: bool,
}

/// What a checkpoint is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To recover from; the job goes on.
    Checkpoint,
    /// To stop the process: the last one before it. Sources read nothing behind its barrier.
    Suspend,
}

/// What a coordinator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<H> {
    /// Every task runs, and has finished its restore. Starts the periodic schedule.
    Running,
    /// A deadline may have come.
    Tick,
    /// Somebody asks for a checkpoint; there is exactly one [`Action::Reply`] for it.
    Request {
        /// The asker's own number, given back in the reply.
        ticket: u64,
        /// What it is for.
        purpose: Purpose,
    },
    /// A task's snapshot is durable.
    Acknowledged {
        /// The attempt that the task belongs to.
        attempt: Attempt,
        /// The checkpoint.
        id: CheckpointId,
        /// The task.
        task: TaskId,
        /// Where the snapshot is.
        handle: H,
    },
    /// A task can't take part in a checkpoint.
    Declined {
        /// The attempt that the task belongs to.
        attempt: Attempt,
        /// The checkpoint.
        id: CheckpointId,
        /// The task.
        task: TaskId,
        /// Why, for people.
        reason: String,
    },
    /// A task has had all its input and has said so downstream. It lives on until the job's last
    /// checkpoint, and snapshots when it is triggered directly.
    Ended {
        /// The attempt that the task belongs to.
        attempt: Attempt,
        /// The task.
        task: TaskId,
    },
    /// The answer to [`Action::Publish`].
    Published {
        /// The checkpoint.
        id: CheckpointId,
        /// `Err` only if it is certain that the manifest is not there and never will be: whatever
        /// may still turn up must not be called aborted.
        result: Result<(), String>,
    },
    /// The job is on its way out: pending checkpoints are aborted, nothing starts any more.
    Shutdown,
}

/// What a coordinator asks its host to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<H> {
    /// Inject the barrier at these tasks. Once when a checkpoint starts, and again for a single
    /// task that has ended meanwhile: a task that has snapshot this id, or a newer one, ignores it.
    Trigger {
        /// The checkpoint.
        id: CheckpointId,
        /// What the barrier says.
        options: CheckpointOptions,
        /// What it is for.
        purpose: Purpose,
        /// Sources that have not ended send the barrier downstream; tasks that have ended snapshot
        /// directly. Ascending.
        roots: Vec<TaskId>,
    },
    /// Every task has acknowledged: make the manifest durable and answer with
    /// [`Event::Published`], always, within a time of the host's choice. The handles are the
    /// host's from now on, whatever comes of it.
    Publish {
        /// The checkpoint.
        id: CheckpointId,
        /// One handle for each task, ascending.
        handles: Vec<(TaskId, H)>,
        /// All tasks had ended when it was triggered: nothing is left to do after it.
        last: bool,
    },
    /// The manifest is durable: tell all tasks (sinks commit everything up to this id); retention
    /// may run.
    Completed {
        /// The checkpoint.
        id: CheckpointId,
        /// What it was for.
        purpose: Purpose,
        /// The job is over with it.
        last: bool,
    },
    /// The checkpoint is given up. Tasks may be told, and need not be: what they still send for it is
    /// discarded.
    Aborted {
        /// The checkpoint.
        id: CheckpointId,
        /// Why.
        reason: Failure,
    },
    /// Delete what these handles name: nobody will use it. A handle must name only what no other
    /// handle names, or the second of two equal acknowledgements takes the first one's files along.
    Discard {
        /// The checkpoint they were made for.
        id: CheckpointId,
        /// Handles that came late, twice or from strangers, or belong to an aborted checkpoint.
        handles: Vec<H>,
    },
    /// The answer to [`Event::Request`].
    Reply {
        /// The asker's number.
        ticket: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// More failures in a row than tolerable. Once; no [`Completed`](Self::Completed) after it.
    FailJob {
        /// The failure that was one too many.
        reason: Failure,
    },
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The checkpoint is durable.
    Completed(CheckpointId),
    /// No checkpoint has been started for it.
    Refused(Refusal),
    /// A checkpoint has been started and given up.
    Failed(Failure),
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Not all tasks run yet.
    NotRunning,
    /// As many tickets wait as may.
    TooManyRequests,
    /// A suspend has been asked for: sources have stopped or are about to.
    Suspending,
    /// The checkpoint before the stop has been completed.
    Suspended,
    /// The last checkpoint has been completed.
    Finished,
    /// Too many checkpoints have failed.
    JobFailed,
    /// The coordinator has been shut down.
    ShutDown,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRunning => "not all tasks are running yet",
            Self::TooManyRequests => "too many requests are waiting",
            Self::Suspending => "the job is being suspended",
            Self::Suspended => "the job has been suspended",
            Self::Finished => "the job has taken its last checkpoint",
            Self::JobFailed => "the job has failed",
            Self::ShutDown => "the job is shutting down",
        })
    }
}

impl std::error::Error for Refusal {}

/// Why a checkpoint was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A task could not take part.
    Declined {
        /// The task.
        task: TaskId,
        /// What it said.
        reason: String,
    },
    /// The timeout came before the last acknowledgement.
    Expired,
    /// The manifest could not be made durable.
    PublishFailed {
        /// What storage said.
        reason: String,
    },
    /// A newer one was completed first.
    Subsumed {
        /// The newer one.
        by: CheckpointId,
    },
    /// Others have failed too often, and the job with them.
    JobFailed,
    /// The coordinator was shut down.
    ShutDown,
}

impl Failure {
    /// Whether it says that something is wrong with the job or its storage, and so counts against
    /// the tolerable failures.
    #[must_use]
    pub const fn counts(&self) -> bool {
        match self {
            Self::Declined { .. } | Self::Expired | Self::PublishFailed { .. } => true,
            Self::Subsumed { .. } | Self::JobFailed | Self::ShutDown => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declined { task, reason } => write!(f, "declined: {reason} task={task}"),
            Self::Expired => f.write_str("expired before all tasks had acknowledged"),
            Self::PublishFailed { reason } => write!(f, "publishing failed: {reason}"),
            Self::Subsumed { by } => write!(f, "a newer checkpoint was completed first by={by}"),
            Self::JobFailed => f.write_str("the job has failed"),
            Self::ShutDown => f.write_str("the job is shutting down"),
        }
    }
}

impl std::error::Error for Failure {}
