//! Operators with one input and one output, and the link that runs them in a chain.

use strandline_barrier::{Barrier, CheckpointId};

use crate::checkpointing::{Restored, TaskSnapshot};
use crate::link::{BoxLink, Flushed, Link, Signal};
use crate::{Error, Result};

/// An operator: a function of batches, with state if it likes.
pub(crate) trait Operator: Send {
    type In: 'static;
    type Out: Send + 'static;

    /// Takes all records out of `batch`, appends what it makes of them to `out`.
    fn batch(&mut self, batch: &mut Vec<Self::In>, out: &mut Vec<Self::Out>) -> Result<()>;

    /// Event time has reached `time`.
    fn watermark(&mut self, _time: i64, _out: &mut Vec<Self::Out>) -> Result<()> {
        Ok(())
    }

    /// Takes its state back.
    fn restore(&mut self, _restored: &Restored) -> Result<()> {
        Ok(())
    }

    /// Freezes its state into `snapshot`. Must not depend on how much state there is.
    fn freeze(&mut self, _barrier: &Barrier, _snapshot: &mut TaskSnapshot) -> Result<()> {
        Ok(())
    }

    /// Checkpoint `id` and all before it have been completed.
    fn completed(&mut self, _id: CheckpointId) -> Result<()> {
        Ok(())
    }
}

/// Runs an [`Operator`] and hands its output to the next link.
pub(crate) struct OperatorLink<O: Operator> {
    name: String,
    operator: O,
    out: Vec<O::Out>,
    next: BoxLink<O::Out>,
}

impl<O: Operator> OperatorLink<O> {
    pub(crate) fn new(name: &str, operator: O, next: BoxLink<O::Out>) -> Self {
        Self { name: name.to_owned(), operator, out: Vec::new(), next }
    }

    fn apply(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        match signal {
            Signal::Restore(restored) => self.operator.restore(restored),
            Signal::Watermark(time) => self.operator.watermark(*time, &mut self.out),
            Signal::Barrier(barrier, snapshot) | Signal::Snapshot(barrier, snapshot) => {
                self.operator.freeze(barrier, snapshot)
            }
            Signal::Completed(id) => self.operator.completed(*id),
            Signal::Splits(_)
            | Signal::Split(_)
            | Signal::SplitEnd(_)
            | Signal::Idle
            | Signal::Active
            | Signal::Cancel(_)
            | Signal::End => Ok(()),
        }
    }

    fn push(&mut self) -> Result<()> {
        if self.out.is_empty() { Ok(()) } else { self.next.batch(&mut self.out) }
    }
}

impl<O: Operator> Link<O::In> for OperatorLink<O> {
    fn batch(&mut self, batch: &mut Vec<O::In>) -> Result<()> {
        let done = self.operator.batch(batch, &mut self.out);
        done.map_err(|error| name_operator(error, &self.name))?;
        self.push()
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        let done = self.apply(signal);
        done.map_err(|error| name_operator(error, &self.name))?;
        self.push()?;
        self.next.signal(signal)
    }

    fn flush(&mut self) -> Result<Flushed> {
        self.next.flush()
    }
}

/// Puts the operator's name in front of its error.
pub(crate) fn name_operator(error: Error, name: &str) -> Error {
    error.within(&format!("operator `{name}`"))
}
