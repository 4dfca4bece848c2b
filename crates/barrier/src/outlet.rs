//! The outgoing side of a task: every output gets its envelopes in the order they were produced.
//!
//! ```text
//!             ┌ queue (empty: straight through) ─► edge 0
//!  send ──────┤
//!  broadcast ─┼ [b7][▮2][b6] ────────────────────► edge 1 (full)
//!             └ ─────────────────────────────────► edge 2
//! ```
//!
//! An envelope goes into its edge at once when nothing is queued before it and there is room;
//! otherwise it waits here. So nothing overtakes on an output, in particular no batch a barrier
//! and no barrier a batch, while outputs go on independently of each other.

use std::collections::VecDeque;

use crate::edge::{EdgeSender, SendError};
use crate::{Envelope, Marker};

/// All outputs of a task.
///
/// The outlet itself never refuses an envelope. It is the caller who keeps it bounded, by taking no
/// further input while [`queued`](Self::queued) is not 0: then the outlet holds at most what the
/// task produces from one slice of input.
#[derive(Debug)]
pub struct Outlet<B> {
    outputs: Vec<Output<B>>,
    /// Invariant: the sum of the lengths of all queues.
    queued: usize,
}

/// How far a flush got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing is queued any more.
    Done,
    /// At least one output has no room; its edge wakes this task when it has.
    Blocked,
    /// The receiver of this output is gone, and with it what was queued for it can never arrive.
    Disconnected(usize),
}

impl<B> Outlet<B> {
    /// An outlet over these edges; an output's number is its place here.
    #[must_use]
    pub fn new(senders: Vec<EdgeSender<B>>) -> Self {
        let outputs = senders.into_iter().map(Output::new).collect();
        Self { outputs, queued: 0 }
    }

    /// How many outputs there are.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// How many envelopes wait here. Take no further input while this is not 0.
    #[must_use]
    pub const fn queued(&self) -> usize {
        self.queued
    }

    /// Sends a batch to one output. That its receiver is gone shows at the next
    /// [`flush`](Self::flush).
    ///
    /// # Panics
    /// If there is no such output.
    pub fn send(&mut self, output: usize, batch: B) {
        let output = self.outputs.get_mut(output).expect("the output is one of this outlet's");
        self.queued += output.push(Envelope::Batch(batch));
    }

    /// Sends a marker to every output.
    pub fn broadcast(&mut self, marker: Marker) {
        for output in &mut self.outputs {
            self.queued += output.push(marker.into());
        }
    }

    /// Moves as much of the queues into the edges as fits. A full or lost output does not keep the
    /// others from moving. With several lost ones the first is named.
    pub fn flush(&mut self) -> Flush {
        if self.queued == 0 {
            return Flush::Done;
        }
        let mut progress = Flush::Done;
        for (index, output) in self.outputs.iter_mut().enumerate() {
            progress = progress.and(output.flush(index));
        }
        self.queued = self.outputs.iter().map(|output| output.queue.len()).sum();
        progress
    }
}

impl Flush {
    /// The state of two outputs together: lost before blocked before done, earlier before later.
    const fn and(self, later: Self) -> Self {
        match (self, later) {
            (Self::Done, _) | (Self::Blocked, Self::Disconnected(_)) => later,
            (Self::Blocked | Self::Disconnected(_), _) => self,
        }
    }
}

#[derive(Debug)]
struct Output<B> {
    sender: EdgeSender<B>,
    /// What the edge had no room for, oldest first.
    queue: VecDeque<Envelope<B>>,
}

impl<B> Output<B> {
    const fn new(sender: EdgeSender<B>) -> Self {
        Self { sender, queue: VecDeque::new() }
    }

    /// Sends or queues; returns how many envelopes (0 or 1) this has added to the queue.
    fn push(&mut self, envelope: Envelope<B>) -> usize {
        if !self.queue.is_empty() {
            self.queue.push_back(envelope);
            return 1;
        }
        let Err(refused) = self.sender.try_send(envelope) else { return 0 };
        self.queue.push_back(refused.into_envelope());
        1
    }

    fn flush(&mut self, index: usize) -> Flush {
        while let Some(envelope) = self.queue.pop_front() {
            match self.sender.try_send(envelope) {
                Ok(()) => {}
                Err(SendError::Full(envelope)) => {
                    self.queue.push_front(envelope);
                    return Flush::Blocked;
                }
                Err(SendError::Disconnected(envelope)) => {
                    self.queue.push_front(envelope);
                    return Flush::Disconnected(index);
                }
            }
        }
        Flush::Done
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::edge::{EdgeReceiver, edge};

    fn outlet(capacities: &[usize]) -> (Outlet<u32>, Vec<EdgeReceiver<u32>>) {
        let halves = capacities
            .iter()
            .map(|&capacity| edge(capacity, Waker::noop().clone(), Waker::noop().clone()));
        let (senders, receivers) = halves.unzip();
        (Outlet::new(senders), receivers)
    }

    fn drain(receiver: &EdgeReceiver<u32>) -> Vec<Envelope<u32>> {
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[test]
    fn with_room_nothing_is_queued() {
        let (mut outlet, receivers) = outlet(&[2, 2]);
        outlet.send(1, 7);
        outlet.broadcast(Marker::End);
        assert_eq!(outlet.queued(), 0);
        assert_eq!(outlet.flush(), Flush::Done);
        assert_eq!(drain(&receivers[0]), [Envelope::End]);
        assert_eq!(drain(&receivers[1]), [Envelope::Batch(7), Envelope::End]);
    }

    #[test]
    fn nothing_overtakes_what_is_queued() {
        let (mut outlet, receivers) = outlet(&[1]);
        for batch in 1..=2 {
            outlet.send(0, batch);
        }
        outlet.broadcast(Marker::Watermark(5));
        let mut taken = drain(&receivers[0]);
        // There is room again, but the older ones are not through yet.
        outlet.send(0, 3);
        while outlet.queued() > 0 {
            assert_ne!(outlet.flush(), Flush::Disconnected(0));
            taken.extend(drain(&receivers[0]));
        }
        taken.extend(drain(&receivers[0]));
        let expected =
            [Envelope::Batch(1), Envelope::Batch(2), Envelope::Watermark(5), Envelope::Batch(3)];
        assert_eq!(taken, expected);
    }

    #[test]
    fn a_full_output_does_not_hold_up_the_others() {
        let (mut outlet, receivers) = outlet(&[1, 1]);
        for batch in 1..=2 {
            outlet.send(0, batch);
            outlet.send(1, batch);
        }
        assert_eq!(outlet.queued(), 2);
        assert_eq!(drain(&receivers[1]), [Envelope::Batch(1)]);
        assert_eq!(outlet.flush(), Flush::Blocked);
        assert_eq!(outlet.queued(), 1);
        assert_eq!(drain(&receivers[1]), [Envelope::Batch(2)]);
    }

    #[test]
    fn a_lost_output_is_named_at_every_flush_and_the_others_go_on() {
        let (mut outlet, mut receivers) = outlet(&[1, 1, 1]);
        drop(receivers.remove(1));
        for batch in 1..=2 {
            outlet.send(0, batch);
            outlet.send(2, batch);
        }
        assert_eq!(outlet.flush(), Flush::Blocked);
        outlet.send(1, 9);
        assert_eq!(drain(&receivers[1]), [Envelope::Batch(1)]);
        assert_eq!(outlet.flush(), Flush::Disconnected(1));
        assert_eq!(outlet.flush(), Flush::Disconnected(1));
        assert_eq!(drain(&receivers[1]), [Envelope::Batch(2)]);
    }
}
