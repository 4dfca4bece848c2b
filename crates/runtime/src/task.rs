//! Tasks as step functions.
//!
//! A [`Task`] is one subtask of a chain. `step(now)` does a bounded piece of work and says how it
//! went; it reads no clock, starts no thread, never parks. Whoever drives it (a thread, a
//! simulator) calls it again after progress, after a wake-up, or when the time it named has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use strandline_barrier::{Barrier, CheckpointId};
use strandline_coordinator::TaskId;

use crate::checkpointing::{Restored, TaskSnapshot};
use crate::link::{BoxLink, Flushed, Signal};
use crate::messages::Message;
use crate::{Error, Result};

/// One subtask of a chain.
pub(crate) trait Task: Send {
    /// Takes its state back; before the first step, and only where there is a checkpoint.
    fn restore(&mut self, restored: &Restored) -> Result<()>;

    /// Once, after the restore: what must flow before the first record.
    fn start(&mut self) -> Result<()>;

    /// Does a bounded piece of work.
    fn step(&mut self, now: Duration) -> Result<Step>;
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something was done; there may be more.
    Progress,
    /// A barrier was met and state was frozen.
    Frozen,
    /// Nothing to do until a wake-up, or until this time.
    Blocked(Option<Duration>),
    /// All is done: the task is never called again.
    Exit,
}

/// What the job master tells a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Inject this barrier (a source), or snapshot at once (a task that has ended). With `hold` a
    /// source reads nothing more after it.
    Trigger { barrier: Barrier, hold: bool },
    /// The round has been completed: commit. With `exit` the task is done.
    Completed { id: CheckpointId, exit: bool },
    /// Stop at once, without a word downstream.
    Stop,
}

/// What a task tells the job master.
#[derive(Debug)]
pub(crate) enum Report {
    /// It has its state and takes input.
    Running,
    /// It has frozen its state for this round.
    Frozen { id: CheckpointId, snapshot: TaskSnapshot },
    /// It can't take part in this round.
    Declined { id: CheckpointId, reason: String },
    /// It has had all its input and has said so downstream.
    Ended,
    /// It can't take its state back.
    Unrestored(Error),
    /// It has failed.
    Failed(Error),
    /// Its thread is about to end.
    Exited,
}

/// A task's line to the job master.
pub(crate) struct Line {
    pub(crate) task: TaskId,
    pub(crate) commands: Receiver<Command>,
    pub(crate) reports: Sender<Message>,
}

impl Line {
    /// Tells the master. A master that has gone needs no telling: its end stops the task.
    pub(crate) fn report(&self, report: Report) {
        drop(self.reports.send(Message::Task(self.task, report)));
    }
}

/// What a task counts; read by others at any time.
#[derive(Debug, Default)]
pub(crate) struct TaskCounters {
    /// Records taken in.
    pub(crate) records: AtomicU64,
    /// Records that were already in the restored checkpoint.
    pub(crate) restored_records: AtomicU64,
}

/// What every task has: a chain, a line to the master, and what it knows of rounds.
pub(crate) struct Chain<T> {
    pub(crate) line: Line,
    pub(crate) head: BoxLink<T>,
    pub(crate) counters: Arc<TaskCounters>,
    /// Every round at or below this one has been snapshot here.
    last: CheckpointId,
    pub(crate) ended: bool,
}

impl<T> Chain<T> {
    pub(crate) fn new(line: Line, head: BoxLink<T>, counters: Arc<TaskCounters>) -> Self {
        Self { line, head, counters, last: CheckpointId(0), ended: false }
    }

    /// Freezes the chain for a round, sends the barrier on, and hands the snapshot over.
    pub(crate) fn freeze(&mut self, barrier: Barrier, mut snapshot: TaskSnapshot) -> Result<bool> {
        if barrier.id <= self.last {
            return Ok(false);
        }
        self.last = barrier.id;
        snapshot.ended = self.ended;
        let mut signal = if self.ended {
            Signal::Snapshot(barrier, &mut snapshot)
        } else {
            Signal::Barrier(barrier, &mut snapshot)
        };
        self.head.signal(&mut signal)?;
        self.line.report(Report::Frozen { id: barrier.id, snapshot });
        Ok(true)
    }

    /// All input has been had: says so downstream and to the master.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.head.signal(&mut Signal::End)?;
        self.ended = true;
        self.line.report(Report::Ended);
        Ok(())
    }

    pub(crate) fn batch(&mut self, batch: &mut Vec<T>) -> Result<()> {
        // Relaxed: a count that is only read, with no other memory depending on it.
        self.counters.records.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.head.batch(batch)
    }

    /// Whether the chain's outlets have room for more.
    pub(crate) fn has_room(&mut self) -> Result<bool> {
        Ok(self.head.flush()? == Flushed::Empty)
    }
}

/// What a command asks of the task itself, once the chain has had its part.
pub(crate) enum Asked {
    /// Nothing more.
    Done,
    /// Freeze for this barrier.
    Freeze { barrier: Barrier, hold: bool },
    /// End now.
    Exit,
}

impl<T> Chain<T> {
    /// The next command, after the chain has had its part of it.
    pub(crate) fn command(&mut self) -> Result<Option<Asked>> {
        match self.line.commands.try_recv() {
            Err(TryRecvError::Empty) => Ok(None),
            Ok(Command::Trigger { barrier, hold }) => Ok(Some(Asked::Freeze { barrier, hold })),
            Ok(Command::Completed { id, exit }) => {
                self.head.signal(&mut Signal::Completed(id))?;
                Ok(Some(if exit { Asked::Exit } else { Asked::Done }))
            }
            // A master that has gone has nothing more to say.
            Ok(Command::Stop) | Err(TryRecvError::Disconnected) => Ok(Some(Asked::Exit)),
        }
    }
}
