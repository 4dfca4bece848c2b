//! The cut: barriers that travel with the records, and their alignment.
//!
//! # Idea
//!
//! A consistent snapshot of a running stream needs no standstill. The sources put a *barrier* into
//! every stream; it keeps its place among the records. A task that has seen the barrier on all of
//! its inputs has processed exactly what came before it, so it passes the barrier on and keeps what
//! it knows at that moment. The states of all tasks together are one cut through the streams. (The
//! idea is Chandy and Lamport's, in the form of Carbone et al., "Lightweight Asynchronous Snapshots
//! for Distributed Dataflows", 2015.)
//!
//! Between the first barrier and the last, an input that is ahead has to wait, or its later records
//! would get into the snapshot. That wait is the *alignment*:
//!
//! ```text
//!   behind the barrier      before it
//!   ─ b5 ─ b4 ─▮───────── b3 ─►┐                        ▮ barrier
//!                              ├─ gate ─► task ─► outlet ─► …
//!   ───────── ▮ ─ b2 ─ b1 ────►┘
//!
//!   upper input: blocked once ▮ is there, until the lower one has delivered its own
//! ```
//!
//! - [`Envelope`] is what travels: batches, watermarks, barriers, cancel markers, ends.
//! - [`edge`] joins two tasks: bounded, without a lock, and with a waker for each side.
//! - [`Aligner`] decides. It is a pure function of what came on which input.
//! - [`InputGate`] takes from the edges in turn and does what the aligner says.
//! - [`Outlet`] keeps order on every output while an edge is full.
//!
//! Nothing here waits, starts a thread or reads a clock. How records are batched, where snapshots
//! go and who triggers them is not known here.
//!
//! # Costs
//!
//! - A batch costs one push and one pop of a bounded queue, the wake of its receiver, and a fence.
//!   No lock, no allocation.
//! - A barrier costs an allocation of one byte for each input. An aligned one holds back the inputs
//!   that are ahead, for as long as the slowest barrier takes; they fill up and slow their senders.
//! - An at-least-once barrier holds nobody back, and after a recovery some records count twice.
//! - Memory: an edge holds at most `capacity` envelopes; an outlet what one slice of input produced;
//!   a gate what one marker brought about.
//!
//! # A program
//!
//! ```
//! use std::task::{Poll, Waker};
//! use std::time::Duration;
//!
//! use strandline_barrier::{
//!     Alignment, Barrier, CheckpointId, CheckpointKind, CheckpointOptions, Envelope, GateEvent,
//!     InputGate, edge,
//! };
//!
//! // A host with nothing else to do passes a waker that wakes its thread or task.
//! let waker = || Waker::noop().clone();
//! let (left, left_end) = edge(8, waker(), waker());
//! let (right, right_end) = edge(8, waker(), waker());
//! let mut gate = InputGate::new(vec![left_end, right_end]);
//!
//! let barrier = Barrier {
//!     id: CheckpointId(1),
//!     triggered_ms: 1_700_000_000_000,
//!     base: None,
//!     options: CheckpointOptions::new(CheckpointKind::Checkpoint, Alignment::Aligned),
//! };
//! left.try_send(Envelope::Batch("before"))?;
//! left.try_send(Envelope::Barrier(barrier))?;
//! left.try_send(Envelope::Batch("after"))?;
//!
//! // The left input is held at its barrier: "after" is not to be had yet.
//! let now = Duration::from_millis(10);
//! assert_eq!(gate.try_next(now), Poll::Ready(GateEvent::Batch { input: 0, batch: "before" }));
//! assert_eq!(gate.try_next(now), Poll::Pending);
//! assert_eq!(gate.blocked_inputs(), 1);
//!
//! right.try_send(Envelope::Batch("late"))?;
//! right.try_send(Envelope::Barrier(barrier))?;
//! let now = Duration::from_millis(15);
//! assert_eq!(gate.try_next(now), Poll::Ready(GateEvent::Batch { input: 1, batch: "late" }));
//! let Poll::Ready(GateEvent::Barrier { barrier, alignment }) = gate.try_next(now) else {
//!     panic!("both barriers have come");
//! };
//! assert_eq!(barrier.id, CheckpointId(1));
//! assert_eq!(alignment.alignment, Duration::from_millis(5));
//! assert_eq!(alignment.last_input, 1);
//! assert_eq!(gate.try_next(now), Poll::Ready(GateEvent::Batch { input: 0, batch: "after" }));
//! # Ok::<(), strandline_barrier::SendError<&str>>(())
//! ```
//!
//! MSRV: 1.89.

mod aligner;
mod edge;
mod envelope;
mod gate;
mod id;
mod outlet;

pub use aligner::{AbortReason, Aligner, AlignmentStats, Step};
pub use edge::{EdgeReceiver, EdgeSender, RecvError, SendError, edge};
pub use envelope::{Alignment, Barrier, CheckpointKind, CheckpointOptions, Envelope, Marker};
pub use gate::{GateEvent, InputGate};
pub use id::CheckpointId;
pub use outlet::{Flush, Outlet};
