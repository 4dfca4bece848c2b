//! The job master: carries out what the coordinator decides.
//!
//! It owns no thread, reads no clock and waits for nothing: its host calls [`JobMaster::poll`]
//! with the time when a message has come or when the deadline is due. Storage work goes to an
//! executor and answers through the inbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender};
use parking_lot::Mutex;
use strandline_barrier::{Barrier, CheckpointId, CheckpointOptions};
use strandline_coordinator::{Action, Attempt, Event, Machine, Outcome, Purpose, TaskId};
use strandline_snapshot::{Checkpoint, JobId, Owner, Store, Written};

use crate::board::{Board, CompletedCheckpoint};
use crate::checkpointing::{
    JobMetadata, OperatorMetadata, TaskSnapshot, TaskState, encode_metadata, storage,
    write_snapshot,
};
use crate::job::JobOutcome;
use crate::messages::{Message, Request};
use crate::start::with_way_out;
use crate::task::{Command, Report};
use crate::{Error, ErrorKind, Result};

/// A piece of storage work.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Takes storage work and does it some time soon, elsewhere.
pub(crate) type Executor = Arc<dyn Fn(Work) + Send + Sync>;

/// How long tasks may take to stop once they have been told to.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How long they may take to commit first.
const COMMIT_LIMIT: Duration = Duration::from_secs(600);

/// The time, both kinds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Since the host's start.
    pub(crate) monotonic: Duration,
    /// Unix milliseconds.
    pub(crate) unix_ms: u64,
}

/// What the master needs of the world.
pub(crate) struct Parts {
    pub(crate) job_name: String,
    pub(crate) machine: Machine<TaskState>,
    pub(crate) attempt: Attempt,
    pub(crate) tasks: BTreeMap<TaskId, Desk>,
    pub(crate) operators: Vec<OperatorPlan>,
    pub(crate) max_parallelism: u16,
    pub(crate) owner: Arc<Owner>,
    pub(crate) retained_count: usize,
    pub(crate) inbox: Receiver<Message>,
    pub(crate) outbox: Sender<Message>,
    pub(crate) executor: Executor,
    pub(crate) board: Arc<Board>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) job: JobId,
    /// The checkpoint that the job went on from.
    pub(crate) restored: Option<u64>,
}

/// The master's side of a task.
pub(crate) struct Desk {
    pub(crate) name: String,
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Waker,
}

/// An operator, and the tasks that its subtasks run in.
pub(crate) struct OperatorPlan {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) tasks: Vec<TaskId>,
    pub(crate) output: Option<String>,
}

/// Carries out what the coordinator decides.
pub(crate) struct JobMaster {
    parts: Parts,
    making: BTreeMap<CheckpointId, Arc<Making>>,
    replies: BTreeMap<u64, Sender<Outcome>>,
    next_ticket: u64,
    not_running: usize,
    alive: usize,
    phase: Phase,
    /// A restore has failed; the job ends when it is known what would not fail.
    diagnosing: bool,
}

/// A checkpoint in the making.
struct Making {
    triggered: Duration,
    triggered_ms: u64,
    /// The completed checkpoint that it is based on.
    base: Option<u64>,
    opened: Mutex<Opened>,
    merge: Mutex<Merge>,
}

/// What has become of the runs of the base that were to be merged.
enum Merge {
    /// The first storage thread that comes does it.
    NotYet,
    Done(Written),
    /// It is part of the checkpoint, or has failed: the runs stay as they are.
    Over,
}

/// How far the storage side of a checkpoint has come.
enum Opened {
    NotYet,
    Open(Checkpoint),
    /// Nothing may be written for it any more.
    GivenUp,
}

/// Where the job is on its way.
enum Phase {
    Running,
    /// A last checkpoint is being taken; at this time the job ends without it.
    Suspending {
        until: Duration,
    },
    /// All tasks have been told to end; at this time those that have not are left alone.
    Leaving {
        until: Duration,
        outcome: Result<JobOutcome>,
    },
}

/// What a poll came to.
pub(crate) enum Polled {
    /// Poll again on the next message, or at this time.
    Until(Option<Duration>),
    /// The job has ended.
    Over(Result<JobOutcome>),
}

impl JobMaster {
    pub(crate) fn new(parts: Parts) -> Self {
        let count = parts.tasks.len();
        Self {
            parts,
            making: BTreeMap::new(),
            replies: BTreeMap::new(),
            next_ticket: 1,
            not_running: count,
            alive: count,
            phase: Phase::Running,
            diagnosing: false,
        }
    }

    /// Takes in all messages and does what is due.
    pub(crate) fn poll(&mut self, now: Now) -> Polled {
        while let Ok(message) = self.parts.inbox.try_recv() {
            self.take(message, now);
        }
        self.tell(Event::Tick, now);
        self.watch_deadline(now);
        self.verdict(now)
    }

    fn verdict(&mut self, now: Now) -> Polled {
        let machine = self.parts.machine.deadline();
        let own = match &self.phase {
            Phase::Running => None,
            Phase::Suspending { until } | Phase::Leaving { until, .. } => Some(*until),
        };
        let leaving = matches!(self.phase, Phase::Leaving { .. });
        if leaving && (self.alive == 0 || own.is_some_and(|until| until <= now.monotonic)) {
            return self.over();
        }
        let machine = machine.filter(|_| !leaving);
        Polled::Until([machine, own].into_iter().flatten().min())
    }

    fn over(&mut self) -> Polled {
        if self.alive > 0 {
            tracing::warn!("tasks did not stop in time and were left alone: count={}", self.alive);
        }
        self.replies.clear();
        match std::mem::replace(&mut self.phase, Phase::Running) {
            Phase::Leaving { outcome: Ok(outcome), .. } if self.alive > 0 => {
                Polled::Over(left_alone(outcome, self.alive))
            }
            Phase::Leaving { outcome, .. } => Polled::Over(outcome),
            Phase::Running | Phase::Suspending { .. } => Polled::Over(Ok(JobOutcome::Cancelled)),
        }
    }

    fn watch_deadline(&mut self, now: Now) {
        if let Phase::Suspending { until } = self.phase
            && until <= now.monotonic
        {
            tracing::warn!("the last checkpoint was not completed within the grace time");
            self.leave(Ok(JobOutcome::Suspended { checkpoint: None }), Command::Stop, now);
        }
    }
}

/// What comes in.
impl JobMaster {
    fn take(&mut self, message: Message, now: Now) {
        match message {
            Message::Task(task, report) => self.report(task, report, now),
            Message::Written { task, id, result } => self.written(task, id, result, now),
            Message::Published { id, result } => self.published(id, result, now),
            Message::Diagnosed(error) => self.fail(error, now),
            Message::OwnerLost(error) => self.fail(error, now),
            Message::StoragePanicked(text) => {
                let text = format!("a storage thread panicked: {text}");
                self.fail(Error::new(ErrorKind::Checkpoint, text), now);
            }
            Message::Request(request) => self.request(request, now),
        }
    }

    fn report(&mut self, task: TaskId, report: Report, now: Now) {
        let attempt = self.parts.attempt;
        match report {
            Report::Running => {
                self.not_running = self.not_running.saturating_sub(1);
                if self.not_running == 0 {
                    self.parts.board.running(now.monotonic);
                    self.tell(Event::Running, now);
                }
            }
            Report::Frozen { id, snapshot } => self.write(task, id, snapshot),
            Report::Declined { id, reason } => {
                self.tell(Event::Declined { attempt, id, task, reason }, now);
            }
            Report::Ended => self.tell(Event::Ended { attempt, task }, now),
            Report::Unrestored(error) => self.unrestored(task, error, now),
            Report::Failed(error) => self.fail(self.name_task(task, error), now),
            Report::Exited => {
                self.alive = self.alive.saturating_sub(1);
                if !self.diagnosing && !matches!(self.phase, Phase::Leaving { .. }) {
                    let gone = Error::new(ErrorKind::PeerGone, "a task ended on its own");
                    self.fail(gone, now);
                }
            }
        }
    }

    fn name_task(&self, task: TaskId, error: Error) -> Error {
        let name = self.parts.tasks.get(&task).map_or("?", |desk| desk.name.as_str());
        error.within(&format!("task `{name}`"))
    }

    fn unrestored(&mut self, task: TaskId, error: Error, now: Now) {
        let error = self.name_task(task, error);
        match self.parts.restored {
            Some(damaged) if error.kind() == ErrorKind::Restore => self.diagnose(error, damaged),
            _ => self.fail(error, now),
        }
    }

    /// Stops all tasks and has storage look for an older checkpoint that is whole.
    fn diagnose(&mut self, error: Error, damaged: u64) {
        if std::mem::replace(&mut self.diagnosing, true) {
            return;
        }
        self.command_all(Command::Stop);
        let (store, job) = (Arc::clone(&self.parts.store), self.parts.job);
        let outbox = self.parts.outbox.clone();
        (self.parts.executor)(Box::new(move || {
            let error = with_way_out(error, &store, job, damaged);
            drop(outbox.send(Message::Diagnosed(error)));
        }));
    }

    /// Hands a frozen task to a storage thread.
    fn write(&mut self, task: TaskId, id: CheckpointId, snapshot: TaskSnapshot) {
        // A round that was given up meanwhile: the views are let go here.
        let Some(making) = self.making.get(&id).map(Arc::clone) else {
            return;
        };
        let owner = Arc::clone(&self.parts.owner);
        let outbox = self.parts.outbox.clone();
        (self.parts.executor)(Box::new(move || {
            let label = format!("task-{:05}", task.0);
            let result = making
                .open(&owner, id)
                .and_then(|checkpoint| write_snapshot(&checkpoint, &label, snapshot));
            drop(outbox.send(Message::Written { task, id, result }));
        }));
    }

    fn written(&mut self, task: TaskId, id: CheckpointId, result: Result<TaskState>, now: Now) {
        let attempt = self.parts.attempt;
        let event = match result {
            Ok(handle) => Event::Acknowledged { attempt, id, task, handle },
            Err(error) if error.kind() == ErrorKind::Fenced => return self.fail(error, now),
            Err(error) => Event::Declined { attempt, id, task, reason: error.full() },
        };
        self.tell(event, now);
    }

    fn published(
        &mut self,
        id: CheckpointId,
        result: Result<strandline_snapshot::Published>,
        now: Now,
    ) {
        let result = match result {
            Ok(published) => {
                self.post(id, &published, now);
                Ok(())
            }
            // The coordinator must hear of neither success nor failure: nobody knows.
            Err(error) if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Unsettled) => {
                self.fail(error, now);
                return;
            }
            Err(error) => Err(error.full()),
        };
        self.tell(Event::Published { id, result }, now);
    }

    fn post(&self, id: CheckpointId, published: &strandline_snapshot::Published, now: Now) {
        if let Some(making) = self.making.get(&id) {
            self.parts.board.completed(CompletedCheckpoint {
                id,
                completed_ms: now.unix_ms,
                duration: now.monotonic.saturating_sub(making.triggered),
                full_bytes: published.full_bytes,
                written_bytes: published.written_bytes,
            });
        }
    }

    fn request(&mut self, request: Request, now: Now) {
        match request {
            Request::Checkpoint { reply } => {
                let ticket = self.ticket(reply);
                self.tell(Event::Request { ticket, purpose: Purpose::Checkpoint }, now);
            }
            Request::Suspend { grace } => self.suspend(grace, now),
            Request::Cancel => self.leave(Ok(JobOutcome::Cancelled), Command::Stop, now),
        }
    }

    fn suspend(&mut self, grace: Duration, now: Now) {
        match self.phase {
            Phase::Running if self.not_running == 0 => {
                self.phase = Phase::Suspending { until: now.monotonic.saturating_add(grace) };
                let ticket = self.next_ticket;
                self.next_ticket += 1;
                self.tell(Event::Request { ticket, purpose: Purpose::Suspend }, now);
            }
            // The restore has failed: the job ends as soon as it is known how.
            Phase::Running if self.diagnosing => {}
            // Not yet running, or asked a second time: there is nothing to wait for.
            Phase::Running | Phase::Suspending { .. } => {
                self.leave(Ok(JobOutcome::Suspended { checkpoint: None }), Command::Stop, now);
            }
            Phase::Leaving { .. } => {}
        }
    }

    fn ticket(&mut self, reply: Sender<Outcome>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.replies.insert(ticket, reply);
        ticket
    }
}

/// What goes out.
impl JobMaster {
    fn tell(&mut self, event: Event<TaskState>, now: Now) {
        let mut actions = Vec::new();
        self.parts.machine.handle(event, now.monotonic, &mut actions);
        for action in actions {
            self.act(action, now);
        }
    }

    fn act(&mut self, action: Action<TaskState>, now: Now) {
        match action {
            Action::Trigger { id, options, purpose, roots } => {
                let barrier = self.begin(id, options, now);
                let hold = purpose == Purpose::Suspend;
                for root in roots {
                    self.command(root, Command::Trigger { barrier, hold });
                }
            }
            Action::Publish { id, handles, last } => self.publish(id, handles, last, now),
            Action::Completed { id, purpose, last } => self.completed(id, purpose, last, now),
            Action::Aborted { id, reason } => {
                tracing::info!("checkpoint {id} given up: {reason}");
                self.abandon(id);
            }
            // What their packs hold goes with the checkpoint, or with the next sweep.
            Action::Discard { id, handles } => {
                drop(handles);
                if !self.making.contains_key(&id) {
                    tracing::debug!("late snapshot of checkpoint {id} discarded");
                }
            }
            Action::Reply { ticket, outcome } => self.reply(ticket, outcome, now),
            Action::FailJob { reason } => {
                let text =
                    format!("a checkpoint failed, and no more failures are tolerated: {reason}");
                self.fail(Error::new(ErrorKind::Checkpoint, text), now);
            }
        }
    }

    /// Begins a checkpoint on top of the newest completed one, and has runs of that merged meanwhile.
    fn begin(&mut self, id: CheckpointId, options: CheckpointOptions, now: Now) -> Barrier {
        let making = match self.making.get(&id) {
            // Tasks that have ended meanwhile are told by themselves.
            Some(making) => Arc::clone(making),
            None => self.open(id, now),
        };
        let base = making.base.map(CheckpointId);
        Barrier { id, triggered_ms: making.triggered_ms, base, options }
    }

    fn open(&mut self, id: CheckpointId, now: Now) -> Arc<Making> {
        let owner = Arc::clone(&self.parts.owner);
        let making = Arc::new(Making::new(now, owner.newest()));
        self.making.insert(id, Arc::clone(&making));
        // Now, since numbers are begun in their order, whichever checkpoint's tasks write first, and
        // since the base must be kept whatever is completed until then. It takes no storage, and an
        // error is found again by whoever writes.
        making.open(&owner, id).ok();
        if making.base.is_some() {
            let merging = Arc::clone(&making);
            (self.parts.executor)(Box::new(move || merging.merge(&owner, id)));
        }
        making
    }

    fn command(&self, task: TaskId, command: Command) {
        if let Some(desk) = self.parts.tasks.get(&task) {
            // A task that has gone needs no command; its report is in the inbox.
            desk.commands.send(command).ok();
            desk.waker.wake_by_ref();
        }
    }

    fn command_all(&self, command: Command) {
        for task in self.parts.tasks.keys() {
            self.command(*task, command);
        }
    }

    fn publish(&self, id: CheckpointId, handles: Vec<(TaskId, TaskState)>, last: bool, now: Now) {
        let Some(making) = self.making.get(&id) else {
            return;
        };
        let metadata = self.metadata(making, &handles, last, now);
        let mut written: Vec<_> = handles.into_iter().map(|(_, state)| state.written).collect();
        let making = Arc::clone(making);
        let owner = Arc::clone(&self.parts.owner);
        let outbox = self.parts.outbox.clone();
        (self.parts.executor)(Box::new(move || {
            written.extend(making.take_merged(&owner, id));
            let result = encode_metadata(&metadata).and_then(|bytes| {
                owner.publish(id.0, written, bytes, now.unix_ms).map_err(storage)
            });
            drop(outbox.send(Message::Published { id, result }));
        }));
    }

    fn metadata(
        &self,
        making: &Making,
        handles: &[(TaskId, TaskState)],
        last: bool,
        now: Now,
    ) -> JobMetadata {
        let splits: Vec<_> = handles.iter().flat_map(|(_, state)| state.splits.clone()).collect();
        let ended: Vec<TaskId> =
            handles.iter().filter(|(_, state)| state.ended).map(|(task, _)| *task).collect();
        let operator = |plan: &OperatorPlan| OperatorMetadata {
            uid: plan.uid.clone(),
            name: plan.name.clone(),
            parallelism: count(plan.tasks.len()),
            ended: count(plan.tasks.iter().filter(|task| ended.contains(task)).count()),
            output: plan.output.clone(),
        };
        JobMetadata {
            job_name: self.parts.job_name.clone(),
            triggered_ms: making.triggered_ms,
            duration_ms: millis(now.monotonic.saturating_sub(making.triggered)),
            finished: last,
            max_parallelism: self.parts.max_parallelism,
            records_read: splits.iter().map(|split| split.records).sum(),
            operators: self.parts.operators.iter().map(operator).collect(),
            splits,
        }
    }

    fn completed(&mut self, id: CheckpointId, purpose: Purpose, last: bool, now: Now) {
        self.making.remove(&id);
        let owner = Arc::clone(&self.parts.owner);
        let count = self.parts.retained_count;
        (self.parts.executor)(Box::new(move || {
            if let Err(error) = owner.retain(count, now.unix_ms) {
                tracing::warn!("old checkpoints could not be deleted: {error}");
            }
        }));
        let outcome = match (last, purpose) {
            (true, _) => JobOutcome::Finished { checkpoint: id },
            (false, Purpose::Suspend) => JobOutcome::Suspended { checkpoint: Some(id) },
            (false, Purpose::Checkpoint) => {
                self.command_all(Command::Completed { id, exit: false });
                return;
            }
        };
        self.leave(Ok(outcome), Command::Completed { id, exit: true }, now);
    }

    fn abandon(&mut self, id: CheckpointId) {
        let Some(making) = self.making.remove(&id) else {
            return;
        };
        let owner = Arc::clone(&self.parts.owner);
        (self.parts.executor)(Box::new(move || {
            if making.give_up()
                && let Err(error) = owner.abandon(id.0)
            {
                tracing::warn!("what checkpoint {id} left could not be deleted: {error}");
            }
        }));
    }

    fn reply(&mut self, ticket: u64, outcome: Outcome, now: Now) {
        match self.replies.remove(&ticket) {
            Some(reply) => drop(reply.send(outcome)),
            // Nobody waits for a suspension's reply but this master.
            None => self.suspension_over(&outcome, now),
        }
    }

    fn suspension_over(&mut self, outcome: &Outcome, now: Now) {
        if matches!(self.phase, Phase::Suspending { .. })
            && !matches!(outcome, Outcome::Completed(_))
        {
            tracing::warn!("the last checkpoint failed: {outcome:?}");
            self.leave(Ok(JobOutcome::Suspended { checkpoint: None }), Command::Stop, now);
        }
    }

    /// The first reason to leave is the one that counts, but for a failure on the way out.
    fn fail(&mut self, error: Error, now: Now) {
        match &mut self.phase {
            Phase::Running | Phase::Suspending { .. } => {
                self.leave(Err(error), Command::Stop, now);
            }
            Phase::Leaving { outcome, .. } => {
                if outcome.is_ok() && error.kind() != ErrorKind::PeerGone {
                    *outcome = Err(error);
                }
            }
        }
    }

    fn leave(&mut self, outcome: Result<JobOutcome>, command: Command, now: Now) {
        if matches!(self.phase, Phase::Leaving { .. }) {
            return;
        }
        let commits = matches!(command, Command::Completed { .. });
        let limit = if commits { COMMIT_LIMIT } else { STOP_LIMIT };
        let until = now.monotonic.saturating_add(limit);
        self.phase = Phase::Leaving { until, outcome };
        self.command_all(command);
        self.tell(Event::Shutdown, now);
    }
}

impl Making {
    fn new(now: Now, base: Option<u64>) -> Self {
        Self {
            triggered: now.monotonic,
            triggered_ms: now.unix_ms,
            base,
            opened: Mutex::new(Opened::NotYet),
            merge: Mutex::new(if base.is_some() { Merge::NotYet } else { Merge::Over }),
        }
    }

    /// Merges runs of the base, unless that has been done.
    fn merge(&self, owner: &Owner, id: CheckpointId) {
        let mut merge = self.merge.lock();
        if !matches!(*merge, Merge::NotYet) {
            return;
        }
        let merged =
            self.open(owner, id).and_then(|checkpoint| checkpoint.merge().map_err(storage));
        *merge = match merged {
            Ok(written) => Merge::Done(written),
            Err(error) => {
                tracing::warn!("runs are left as they are by checkpoint {id}: {}", error.full());
                Merge::Over
            }
        };
    }

    /// What merging has come to; waits for it.
    fn take_merged(&self, owner: &Owner, id: CheckpointId) -> Option<Written> {
        self.merge(owner, id);
        match std::mem::replace(&mut *self.merge.lock(), Merge::Over) {
            Merge::Done(written) => Some(written),
            Merge::NotYet | Merge::Over => None,
        }
    }

    fn open(&self, owner: &Owner, id: CheckpointId) -> Result<Checkpoint> {
        let mut opened = self.opened.lock();
        match &*opened {
            Opened::Open(checkpoint) => Ok(checkpoint.clone()),
            Opened::NotYet => {
                let checkpoint = owner.begin(id.0, self.base).map_err(storage)?;
                *opened = Opened::Open(checkpoint.clone());
                Ok(checkpoint)
            }
            Opened::GivenUp => {
                Err(Error::new(ErrorKind::Checkpoint, "the checkpoint has been given up"))
            }
        }
    }

    /// Whether there is anything to delete.
    fn give_up(&self) -> bool {
        matches!(std::mem::replace(&mut *self.opened.lock(), Opened::GivenUp), Opened::Open(_))
    }
}

/// The outcome of a job some of whose tasks would not end.
fn left_alone(outcome: JobOutcome, alive: usize) -> Result<JobOutcome> {
    let completed = match outcome {
        JobOutcome::Finished { checkpoint } | JobOutcome::AlreadyFinished { checkpoint } => {
            Some(checkpoint)
        }
        JobOutcome::Suspended { checkpoint } => checkpoint,
        JobOutcome::Cancelled => None,
    };
    let Some(id) = completed else {
        return Ok(outcome);
    };
    let text = format!(
        "checkpoint {id} is completed, but its output has not been committed in time: start the \
         job again to commit it: tasks={alive}"
    );
    Err(Error::new(ErrorKind::Sink, text))
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
