//! The round: a checkpoint coordinator as a pure state machine.
//!
//! # Idea
//!
//! A checkpoint of a running job is a round between one coordinator and many tasks: trigger,
//! acknowledge, publish, complete; or decline, expire, abort. All the difficulty is in what comes
//! late, twice, in another order, or from a task that died before. So the coordinator here is a
//! function: [`Machine::handle`] takes an [`Event`] and the time, and answers with [`Action`]s. It
//! reads no clock, starts no thread, waits for nothing, and does no I/O, and the same events give
//! the same actions, always. What a task acknowledges with (a handle: names of files, a buffer) is
//! the type parameter `H`; the machine only carries it to one of two places, a
//! [`Publish`](Action::Publish) or a [`Discard`](Action::Discard), never to both.
//!
//! ```text
//!    host: threads, clock, storage                       Machine (pure)
//!
//!    Running, Request, Tick ────────────────► slot free? ──► Trigger ──► sources inject barriers
//!    Acknowledged(task, handle) ────────────► all tasks? ──► Publish ──► storage writes manifest
//!    Published(Ok) ─────────────────────────► Completed ───────────────► sinks commit
//!                                             Aborted(Subsumed), Discard for whatever is older
//!    Declined, Published(Err), Tick too late ► Aborted, Discard, and maybe FailJob
//!    Ended(task) ───────────────────────────► Trigger that task directly; all: the last checkpoint
//! ```
//!
//! [`Driver`] puts an inbox in front of a machine, so that one thread of the host can run it and
//! all the others can talk to it. The rules of the round are listed, each with its test, on the
//! page of [`Machine`].
//!
//! # Costs
//!
//! For `t` tasks and `p` pending checkpoints: a trigger is O(t log t), an acknowledgement or a
//! decline O(log t + p), a tick O(p). Memory is O(t · p) plus a history of
//! [`HISTORY_LIMIT`] records and at most [`TICKETS_LIMIT`] tickets.
//!
//! # One checkpoint
//!
//! ```
//! use std::time::Duration;
//! use strandline_coordinator::{
//!     Action, Attempt, CheckpointConfig, CheckpointId, Driver, Event, Machine, Outcome, Plan, PlannedTask,
//!     Purpose, TaskId,
//! };
//!
//! let source = TaskId(0);
//! let sink = TaskId(1);
//! let plan = Plan {
//!     tasks: vec![
//!         PlannedTask { id: source, source: true },
//!         PlannedTask { id: sink, source: false },
//!     ],
//! };
//! let attempt = Attempt(0);
//! let machine = Machine::new(CheckpointConfig::default(), plan, attempt, CheckpointId(1));
//! let mut driver = Driver::new(machine);
//! let inbox = driver.sender();
//! let mut completed = None;
//!
//! inbox.send(Event::Running)?;
//! inbox.send(Event::Request { ticket: 7, purpose: Purpose::Checkpoint })?;
//! for second in 0..3 {
//!     for action in driver.poll(Duration::from_secs(second)) {
//!         match action {
//!             Action::Trigger { id, roots, .. } => {
//!                 assert_eq!(roots, [source]);
//!                 // The barrier travels from the source to the sink; both snapshot and say so.
//!                 for (task, handle) in [(source, "offsets"), (sink, "counts")] {
//!                     inbox.send(Event::Acknowledged { attempt, id, task, handle })?;
//!                 }
//!             }
//!             Action::Publish { id, handles, .. } => {
//!                 assert_eq!(handles, [(source, "offsets"), (sink, "counts")]);
//!                 inbox.send(Event::Published { id, result: Ok(()) })?;
//!             }
//!             Action::Reply { outcome: Outcome::Completed(id), .. } => completed = Some(id),
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!(completed, Some(CheckpointId(1)));
//! # Ok::<(), strandline_coordinator::Closed<&str>>(())
//! ```
//!
//! MSRV: 1.89.

mod config;
mod driver;
mod history;
mod machine;
mod message;
mod pending;
mod schedule;

pub use config::{CheckpointConfig, ConfigError, SHORTEST};
pub use driver::{Closed, Driver, Inbox};
pub use history::{CheckpointRecord, CheckpointState, HISTORY_LIMIT, Status};
pub use machine::{LAST_RETRY, Machine, TICKETS_LIMIT};
pub use message::{
    Action, Attempt, Event, Failure, Outcome, Plan, PlannedTask, Purpose, Refusal, TaskId,
};
pub use strandline_barrier::{Alignment, CheckpointId, CheckpointKind, CheckpointOptions};
