//! How the operators of a chain touch: by batch, without a queue.
//!
//! A chain is a tree of [`Link`]s. The task at its head pushes a batch into the first link, which
//! drains it and pushes what it makes of it into the next: one virtual call for many records.
//! Everything else that flows with the records (watermarks, barriers, the end of the input) goes
//! the same way as a [`Signal`], so that their order is the order of the calls. A chain ends in
//! sinks and in outlets to other tasks.

use std::any::Any;
use std::marker::PhantomData;

use strandline_barrier::{Barrier, CheckpointId};

use crate::Result;
use crate::checkpointing::{Restored, TaskSnapshot};

/// One operator of a chain, with everything downstream of it.
pub(crate) trait Link<T>: Send {
    /// Takes all records out of `batch`; its memory stays with the caller.
    fn batch(&mut self, batch: &mut Vec<T>) -> Result<()>;

    /// Takes a signal and passes it on.
    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()>;

    /// Moves what waits in the outlets; what it says holds for the whole chain.
    fn flush(&mut self) -> Result<Flushed>;
}

/// Whether the outlets of a chain have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing waits.
    Empty,
    /// Something waits for room in a channel: the task takes no more input until it is gone.
    Waiting,
}

impl Flushed {
    /// Waiting if either waits.
    pub(crate) fn and(self, other: Self) -> Self {
        if self == Self::Waiting { self } else { other }
    }
}

/// What flows through a chain besides records.
#[derive(Debug)]
pub(crate) enum Signal<'a> {
    /// Before anything else, once: the state to go on from.
    Restore(&'a Restored),
    /// The source names the splits that it reads, before the first record.
    Splits(&'a [String]),
    /// The records that follow come from this split (index into the splits).
    Split(usize),
    /// This split has ended.
    SplitEnd(usize),
    /// No record at or before this event time follows (late ones aside).
    Watermark(i64),
    /// Nothing is expected from upstream for a while: its watermark holds nobody back.
    Idle,
    /// Records are expected from upstream again.
    Active,
    /// Freeze: hand over what is to be kept, then pass it on. The last link of the chain sends the
    /// barrier downstream.
    Barrier(Barrier, &'a mut TaskSnapshot),
    /// The same for a task that has ended: nothing is sent downstream.
    Snapshot(Barrier, &'a mut TaskSnapshot),
    /// This round and all before it have been decided: commit.
    Completed(CheckpointId),
    /// A round was given up upstream: downstream must not wait for it.
    Cancel(CheckpointId),
    /// No record follows at all.
    End,
}

/// A boxed [`Link`] of some record type.
pub(crate) type BoxLink<T> = Box<dyn Link<T>>;

/// A [`BoxLink`] whose record type has been forgotten; [`expect_link`] remembers it.
pub(crate) type AnyLink = Box<dyn Any>;

/// The link for one record type.
///
/// # Panics
/// The graph connected two record types: the typed builder makes that impossible.
pub(crate) fn expect_link<T: 'static>(link: AnyLink) -> BoxLink<T> {
    *link.downcast::<BoxLink<T>>().expect("the builder connects links of one record type")
}

/// The end of a stream that nobody reads.
pub(crate) struct Discard<T>(PhantomData<fn(T)>);

impl<T> Discard<T> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Link<T> for Discard<T> {
    fn batch(&mut self, batch: &mut Vec<T>) -> Result<()> {
        batch.clear();
        Ok(())
    }

    fn signal(&mut self, _signal: &mut Signal<'_>) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed> {
        Ok(Flushed::Empty)
    }
}
