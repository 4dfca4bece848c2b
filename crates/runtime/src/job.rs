//! A running job, as its starter sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use strandline_barrier::CheckpointId;
use strandline_coordinator::Outcome;
use strandline_snapshot::JobId;

use crate::board::{Board, CompletedCheckpoint};
use crate::checkpointing::SplitProgress;
use crate::clock::SystemClock;
use crate::messages::{Message, Request};
use crate::task::TaskCounters;
use crate::threads::Ticker;
use crate::{Error, ErrorKind, Result};

/// How a job ended, if it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobOutcome {
    /// All input has been read and everything is committed with this checkpoint.
    Finished {
        /// The job's last checkpoint.
        checkpoint: CheckpointId,
    },
    /// An earlier run had finished: nothing was done.
    AlreadyFinished {
        /// The job's last checkpoint.
        checkpoint: CheckpointId,
    },
    /// It was asked to stop and goes on from here when it is started again: from this last
    /// checkpoint, or, where that could not be taken in time (`None`), from the one before.
    Suspended {
        /// The checkpoint that was taken for it.
        checkpoint: Option<CheckpointId>,
    },
    /// It was told to stop at once.
    Cancelled,
}

/// What a job has come to.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// How it ended.
    pub outcome: JobOutcome,
    /// Records read by all sources in this run, those read again among them.
    pub records_read: u64,
    /// Records left out as bad in this run.
    pub skipped: u64,
    /// Records that came too late for their window in this run.
    pub late: u64,
    /// Checkpoints completed in this run (the newest 10,000).
    pub checkpoints: Vec<CompletedCheckpoint>,
    /// How long tasks were held up by barriers (the newest 10,000).
    pub pauses: Vec<Duration>,
    /// From the moment all tasks ran until the end.
    pub runtime: Duration,
}

/// The checkpoint that a job went on from.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// Its number.
    pub checkpoint: CheckpointId,
    /// Its age at the start.
    pub age: Duration,
    /// Where each split stood.
    pub splits: Vec<SplitProgress>,
    /// Records that had been read by then.
    pub records_read: u64,
    /// Records that an earlier run had read after it, and that are read again. `None` where nothing
    /// tells.
    pub read_again: Option<u64>,
}

/// A moment of a running job.
#[derive(Clone, Copy, Debug)]
pub struct JobProgress {
    /// Records read since the job's first start.
    pub records_read: u64,
    /// The newest checkpoint of this run.
    pub last_checkpoint: Option<CompletedCheckpoint>,
    /// Since all tasks run.
    pub running: Duration,
}

/// A running job. Dropping the handle leaves the job running, and nobody to wait for it.
pub struct JobHandle {
    pub(crate) id: JobId,
    pub(crate) resumed: Option<Resumed>,
    pub(crate) run: Run,
}

/// What there is to a started job.
pub(crate) enum Run {
    /// An earlier run had finished.
    Over(CheckpointId),
    Live(Live),
}

/// The lines to a job that runs.
pub(crate) struct Live {
    pub(crate) inbox: Sender<Message>,
    pub(crate) board: Arc<Board>,
    pub(crate) clock: SystemClock,
    pub(crate) sources: Vec<Arc<TaskCounters>>,
    pub(crate) counts: Vec<(&'static str, Arc<AtomicU64>)>,
    pub(crate) master: JoinHandle<Result<JobOutcome>>,
    pub(crate) ticker: Option<Ticker>,
    /// Gives signs of life.
    pub(crate) lease: Ticker,
    /// Disconnected when the master's thread has ended.
    pub(crate) ended: Receiver<()>,
}

impl std::fmt::Debug for JobHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

impl JobHandle {
    /// The job's id.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The checkpoint that the job went on from.
    #[must_use]
    pub fn resumed(&self) -> Option<&Resumed> {
        self.resumed.as_ref()
    }

    /// Whether an earlier run had finished, so that there was nothing to start.
    #[must_use]
    pub fn was_finished(&self) -> bool {
        matches!(self.run, Run::Over(_))
    }

    /// How far the job is.
    #[must_use]
    pub fn progress(&self) -> JobProgress {
        match &self.run {
            Run::Over(_) => JobProgress {
                records_read: self.resumed.as_ref().map_or(0, |resumed| resumed.records_read),
                last_checkpoint: None,
                running: Duration::ZERO,
            },
            Run::Live(live) => live.progress(),
        }
    }

    /// The checkpoints completed so far in this run (the newest 10,000).
    #[must_use]
    pub fn checkpoints(&self) -> Vec<CompletedCheckpoint> {
        match &self.run {
            Run::Over(_) => Vec::new(),
            Run::Live(live) => live.board.checkpoints(),
        }
    }

    /// How long tasks were held up by barriers so far in this run (the newest 10,000).
    #[must_use]
    pub fn pauses(&self) -> Vec<Duration> {
        match &self.run {
            Run::Over(_) => Vec::new(),
            Run::Live(live) => live.board.pauses(),
        }
    }

    /// Takes a checkpoint now and waits for it.
    ///
    /// # Errors
    /// The job has ended, or the checkpoint was refused or failed: the text says why.
    pub fn checkpoint(&self) -> Result<CheckpointId> {
        let failed = |text: String| Error::new(ErrorKind::Checkpoint, text);
        let over = || failed("the job has ended".to_owned());
        let Run::Live(live) = &self.run else {
            return Err(over());
        };
        let (reply, answer) = bounded(1);
        live.ask(Request::Checkpoint { reply });
        match answer.recv().map_err(|_| over())? {
            Outcome::Completed(id) => Ok(id),
            Outcome::Refused(refusal) => Err(failed(format!("refused: {refusal}"))),
            Outcome::Failed(failure) => Err(failed(format!("failed: {failure}"))),
        }
    }

    /// Asks for a last checkpoint within `grace` and then the end; asked a second time, the job
    /// ends at once. Nothing is deleted: the job goes on from there when it is started again.
    pub fn suspend(&self, grace: Duration) {
        if let Run::Live(live) = &self.run {
            live.ask(Request::Suspend { grace });
        }
    }

    /// Ends the job at once. Checkpoints are kept.
    pub fn cancel(&self) {
        if let Run::Live(live) = &self.run {
            live.ask(Request::Cancel);
        }
    }

    /// Waits for the job's end, but no longer than this. Whether the job has ended, so that
    /// [`JobHandle::wait`] returns at once.
    #[must_use]
    pub fn wait_for(&self, limit: Duration) -> bool {
        match &self.run {
            Run::Over(_) => true,
            Run::Live(live) => {
                live.ended.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
            }
        }
    }

    /// Waits for the job's end.
    ///
    /// # Errors
    /// Whatever made the job fail.
    pub fn wait(self) -> Result<JobResult> {
        match self.run {
            Run::Over(checkpoint) => Ok(JobResult {
                outcome: JobOutcome::AlreadyFinished { checkpoint },
                records_read: 0,
                skipped: 0,
                late: 0,
                checkpoints: Vec::new(),
                pauses: Vec::new(),
                runtime: Duration::ZERO,
            }),
            Run::Live(live) => live.wait(),
        }
    }
}

impl Live {
    /// A master that has gone has no use for it.
    fn ask(&self, request: Request) {
        drop(self.inbox.send(Message::Request(request)));
    }

    fn progress(&self) -> JobProgress {
        let since = self.board.running_since();
        JobProgress {
            records_read: total(&self.sources),
            last_checkpoint: self.board.last(),
            running: since.map_or(Duration::ZERO, |at| self.clock.monotonic().saturating_sub(at)),
        }
    }

    fn wait(self) -> Result<JobResult> {
        let ended = self.master.join();
        drop(self.ticker);
        drop(self.lease);
        let outcome = ended.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Operator, "the job master panicked: a broken invariant"))
        })?;
        let since = self.board.running_since();
        let restored: u64 = self.sources.iter().map(|of| load(&of.restored_records)).sum();
        Ok(JobResult {
            outcome,
            records_read: total(&self.sources).saturating_sub(restored),
            skipped: sum(&self.counts, "skipped"),
            late: sum(&self.counts, "late"),
            checkpoints: self.board.checkpoints(),
            pauses: self.board.pauses(),
            runtime: since.map_or(Duration::ZERO, |at| self.clock.monotonic().saturating_sub(at)),
        })
    }
}

/// Records read by all sources, restored ones among them.
pub(crate) fn total(sources: &[Arc<TaskCounters>]) -> u64 {
    sources.iter().map(|of| load(&of.records)).sum()
}

fn sum(counts: &[(&'static str, Arc<AtomicU64>)], name: &str) -> u64 {
    counts.iter().filter(|(of, _)| *of == name).map(|(_, count)| load(count)).sum()
}

/// Relaxed: a count that is only read, with no other memory depending on it.
fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
