//! The drivers: threads that step tasks, run the job master, and do storage work.
//!
//! Nothing else in the crate parks, sleeps or starts a thread. A task's thread steps it until it
//! is blocked and then parks; the wakers of its channels and of its commands unpark it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use crossbeam::sync::{Parker, Unparker};
use strandline_coordinator::TaskId;

use crate::board::Board;
use crate::checkpointing::Restored;
use crate::clock::SystemClock;
use crate::job::JobOutcome;
use crate::master::{Executor, JobMaster, Polled, Work};
use crate::messages::Message;
use crate::task::{Report, Step, Task};
use crate::{Error, ErrorKind, Result};

/// A blocked task looks around at least this often, so that a missed wake-up costs a moment.
const LONGEST_PARK: Duration = Duration::from_secs(1);

/// How long storage work may go on after the job has ended.
const STORAGE_LIMIT: Duration = Duration::from_secs(10);

/// Wakes a parked thread.
struct ThreadWaker(Unparker);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// A place for a thread to park, and the waker for it.
pub(crate) fn parking_place() -> (Parker, Waker) {
    let parker = Parker::new();
    let waker = Waker::from(Arc::new(ThreadWaker(parker.unparker().clone())));
    (parker, waker)
}

/// What a task's thread needs.
pub(crate) struct Drive {
    pub(crate) id: TaskId,
    pub(crate) name: String,
    pub(crate) task: Box<dyn Task>,
    pub(crate) restored: Option<Restored>,
    pub(crate) parker: Parker,
    pub(crate) clock: SystemClock,
    pub(crate) board: Arc<Board>,
    pub(crate) reports: Sender<Message>,
}

/// Starts a named thread.
#[expect(clippy::disallowed_methods, reason = "this is the one place that starts threads")]
fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(body).map_err(|error| {
        Error::new(ErrorKind::Operator, format!("thread `{name}` can't be started")).because(error)
    })
}

/// Runs a task to its end on a thread of its own.
pub(crate) fn start_task(drive: Drive) -> Result<()> {
    let name = drive.name.clone();
    start(&name, move || {
        let Drive { id, mut task, restored, parker, clock, board, reports, .. } = drive;
        let run = AssertUnwindSafe(|| run(&mut *task, restored.as_ref(), &parker, clock, &board));
        let ended = catch_unwind(run).unwrap_or_else(|panic| Err(failed(panicked(&*panic))));
        if let Err(report) = ended {
            drop(reports.send(Message::Task(id, report)));
        }
        // Before the last word: what the task held (channels, files) is gone when it is heard.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(task))) {
            drop(reports.send(Message::Task(id, Report::Failed(panicked(&*panic)))));
        }
        drop(reports.send(Message::Task(id, Report::Exited)));
    })
    .map(drop)
}

fn run(
    task: &mut dyn Task,
    restored: Option<&Restored>,
    parker: &Parker,
    clock: SystemClock,
    board: &Board,
) -> Result<(), Report> {
    if let Some(restored) = restored {
        task.restore(restored).map_err(Report::Unrestored)?;
    }
    task.start().map_err(failed)?;
    loop {
        let now = clock.monotonic();
        match task.step(now).map_err(failed)? {
            Step::Progress => {}
            Step::Frozen => board.pause(clock.monotonic().saturating_sub(now)),
            Step::Blocked(until) => {
                let wait = until.map_or(LONGEST_PARK, |until| until.saturating_sub(now));
                parker.park_timeout(wait.min(LONGEST_PARK));
            }
            Step::Exit => return Ok(()),
        }
    }
}

fn failed(error: Error) -> Report {
    Report::Failed(error)
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::new(ErrorKind::Operator, format!("panicked: {}", panic_text(panic)))
}

/// The message of a panic, if it has one.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Runs the job master to the end of the job.
pub(crate) fn start_master(
    mut master: JobMaster,
    inbox: Receiver<Message>,
    clock: SystemClock,
    storage: StorageThreads,
) -> Result<(JoinHandle<Result<JobOutcome>>, Receiver<()>)> {
    let (running, ended) = bounded::<()>(0);
    let thread = start("job-master", move || {
        let _running = running;
        loop {
            let now = clock.now();
            match master.poll(now) {
                Polled::Over(outcome) => {
                    drop(master);
                    storage.finish();
                    return outcome;
                }
                Polled::Until(until) => {
                    let wait =
                        until.map_or(LONGEST_PARK, |until| until.saturating_sub(now.monotonic));
                    wait_for_message(&inbox, wait.min(LONGEST_PARK));
                }
            }
        }
    })?;
    Ok((thread, ended))
}

/// Waits until the inbox has something or the time is over; takes nothing out.
fn wait_for_message(inbox: &Receiver<Message>, wait: Duration) {
    let mut select = crossbeam::channel::Select::new();
    select.recv(inbox);
    select.ready_timeout(wait).ok();
}

/// Threads that do storage work.
pub(crate) struct StorageThreads {
    /// Never carries anything: it is disconnected when the last thread has ended.
    ended: Receiver<()>,
}

impl StorageThreads {
    /// Starts `count` threads; their panics are told to the master.
    pub(crate) fn start(count: usize, reports: &Sender<Message>) -> Result<(Executor, Self)> {
        let (submit, work) = unbounded::<Work>();
        let (alive, ended) = bounded::<()>(0);
        for index in 0..count {
            let (work, alive, reports) = (work.clone(), alive.clone(), reports.clone());
            start(&format!("storage-{index}"), move || {
                serve(&work, &reports);
                drop(alive);
            })?;
        }
        let executor: Executor = Arc::new(move |work| drop(submit.send(work)));
        Ok((executor, Self { ended }))
    }

    /// Waits for the work that is left. The executor must have been dropped.
    fn finish(&self) {
        if self.ended.recv_timeout(STORAGE_LIMIT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("storage did not answer in time and was left alone");
        }
    }
}

fn serve(work: &Receiver<Work>, reports: &Sender<Message>) {
    for piece in work {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(piece)) {
            drop(reports.send(Message::StoragePanicked(panic_text(&*panic))));
        }
    }
}

/// Does nothing for a while.
pub(crate) fn pause(time: Duration) {
    std::thread::park_timeout(time);
}

/// Calls `tick` at this pace on a thread of its own until the returned guard is dropped.
pub(crate) fn start_ticker(
    name: &str,
    every: Duration,
    mut tick: impl FnMut() + Send + 'static,
) -> Result<Ticker> {
    let (stop, stopped) = bounded::<()>(0);
    let thread = start(name, move || {
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            tick();
        }
        tick();
    })?;
    Ok(Ticker { stop: Some(stop), thread: Some(thread) })
}

/// Stops its thread, after a last tick, when dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
