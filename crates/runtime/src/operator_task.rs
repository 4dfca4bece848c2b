//! The task behind an exchange: an input gate and a chain.

use std::task::Poll;
use std::time::Duration;

use strandline_barrier::{GateEvent, InputGate};

use crate::Result;
use crate::checkpointing::{Restored, TaskSnapshot};
use crate::link::Signal;
use crate::task::{Asked, Chain, Report, Step, Task};

/// Takes batches from its input gate through its chain.
pub(crate) struct OperatorTask<T> {
    chain: Chain<T>,
    gate: InputGate<Vec<T>>,
    /// The task upstream is gone without a word: its own report says why, and the master's command
    /// ends this one.
    orphaned: bool,
}

impl<T> OperatorTask<T> {
    pub(crate) fn new(chain: Chain<T>, gate: InputGate<Vec<T>>) -> Self {
        Self { chain, gate, orphaned: false }
    }

    fn commands(&mut self) -> Result<Option<Step>> {
        let mut frozen = None;
        while let Some(asked) = self.chain.command()? {
            match asked {
                Asked::Done => {}
                // Before the end of its input a task meets its barriers in the gate only.
                Asked::Freeze { .. } if !self.chain.ended => {}
                Asked::Freeze { barrier, .. } => {
                    let did = self.chain.freeze(barrier, TaskSnapshot::default())?;
                    frozen = did.then_some(Step::Frozen).or(frozen);
                }
                Asked::Exit => return Ok(Some(Step::Exit)),
            }
        }
        Ok(frozen)
    }

    fn take(&mut self, event: GateEvent<Vec<T>>) -> Result<Step> {
        match event {
            GateEvent::Batch { mut batch, .. } => self.chain.batch(&mut batch)?,
            GateEvent::Watermark(time) => self.chain.head.signal(&mut Signal::Watermark(time))?,
            GateEvent::Idle => self.chain.head.signal(&mut Signal::Idle)?,
            GateEvent::Active => self.chain.head.signal(&mut Signal::Active)?,
            GateEvent::Barrier { barrier, .. } => {
                self.chain.freeze(barrier, TaskSnapshot::default())?;
                return Ok(Step::Frozen);
            }
            GateEvent::Aborted { id, reason } => {
                self.chain.head.signal(&mut Signal::Cancel(id))?;
                self.chain.line.report(Report::Declined { id, reason: format!("{reason:?}") });
            }
            GateEvent::End => self.chain.end()?,
            GateEvent::Disconnected { .. } => self.orphaned = true,
        }
        Ok(Step::Progress)
    }
}

impl<T: Send> Task for OperatorTask<T> {
    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.chain.head.signal(&mut Signal::Restore(restored))
    }

    fn start(&mut self) -> Result<()> {
        self.chain.line.report(Report::Running);
        Ok(())
    }

    fn step(&mut self, now: Duration) -> Result<Step> {
        if let Some(step) = self.commands()? {
            return Ok(step);
        }
        if !self.chain.has_room()? || self.chain.ended || self.orphaned {
            return Ok(Step::Blocked(None));
        }
        match self.gate.try_next(now) {
            Poll::Ready(event) => self.take(event),
            Poll::Pending => Ok(Step::Blocked(None)),
        }
    }
}
