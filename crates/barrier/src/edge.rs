//! One edge: one sender, one receiver, and a bounded queue between them.
//!
//! Neither half ever waits. A half that cannot go on says so, and its task is woken when it can:
//!
//! ```text
//!  sender's task                                             receiver's task
//!    try_send ──────────► [ e3 ][ e2 ][ e1 ] ──────────► try_recv
//!       │  Full: turned_away = true                          │
//!       │◄─────────────── wake, if turned_away ──────────────┤ took one
//!       ├──────────────── wake ─────────────────────────────►│ Empty: nothing to note
//! ```
//!
//! # Why no wake-up is lost
//!
//! A waker keeps its promise for itself: a task that is woken while it runs, runs once more, and
//! sees what its waker saw before the wake. What is left is the order of our own steps.
//!
//! *Receiver.* The sender wakes after every envelope. A receiver that found the queue empty looked
//! before the envelope was in it, so the wake comes after that look, and its task looks again.
//!
//! *Sender.* It is woken only if it was turned away since the last wake, so that a receiver that
//! keeps up pays for no wake at all. Both sides write, fence and read:
//!
//! ```text
//!  try_send                                  try_recv
//!    queue full                                queue: take one     (write of the queue's head)
//!    turned_away = true                        fence  R
//!    fence  S                                  turned_away?  → clear it, wake the sender
//!    queue still full?  → Full
//! ```
//!
//! The two sequentially consistent fences have one order. If S is first, the receiver reads the
//! flag as set and wakes. If R is first, the sender's second look sees the freed place and the
//! envelope goes in; the flag stays set, and the worst of it is one wake too many. In no order
//! does the sender leave with `Full` and the receiver without a wake. The channel answers "full"
//! from its head alone, which the receiver has moved before R, so the second look cannot be misled
//! by an envelope that is still being copied out.
//!
//! *Ends.* A half that is dropped closes the queue first and wakes the other half second, flag or
//! no flag.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Waker;

use crossbeam::channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};

use crate::Envelope;

/// An edge that holds at most `capacity` envelopes. `sender` wakes the task that sends, `receiver`
/// the task that receives.
///
/// # Panics
/// If `capacity` is 0.
#[must_use]
pub fn edge<B>(
    capacity: usize,
    sender: Waker,
    receiver: Waker,
) -> (EdgeSender<B>, EdgeReceiver<B>) {
    assert!(capacity > 0, "an edge holds at least one envelope");
    let (queue_in, queue_out) = bounded(capacity);
    let turned_away = Arc::new(AtomicBool::new(false));
    (
        EdgeSender {
            queue: queue_in,
            receiver: WakeOnDrop(receiver),
            turned_away: Arc::clone(&turned_away),
        },
        EdgeReceiver { queue: queue_out, sender: WakeOnDrop(sender), turned_away },
    )
}

/// The sending half of an [`edge`]. Dropping it wakes the receiver, which still gets everything
/// that was sent.
#[derive(Debug)]
pub struct EdgeSender<B> {
    // Fields drop in this order: the queue closes before the other side is woken to see it.
    queue: Sender<Envelope<B>>,
    receiver: WakeOnDrop,
    /// Set by the sender when it leaves with `Full`, cleared by the receiver when it wakes it.
    turned_away: Arc<AtomicBool>,
}

impl<B> EdgeSender<B> {
    /// Appends an envelope and wakes the receiver.
    ///
    /// # Errors
    /// Gives the envelope back: [`SendError::Full`] if there is no room now, in which case the
    /// sender's waker is called once there is; [`SendError::Disconnected`] if the receiver is gone.
    pub fn try_send(&self, envelope: Envelope<B>) -> Result<(), SendError<B>> {
        self.try_once(envelope).or_else(|refused| self.try_again(refused))
    }

    fn try_once(&self, envelope: Envelope<B>) -> Result<(), SendError<B>> {
        self.queue.try_send(envelope)?;
        self.receiver.0.wake_by_ref();
        Ok(())
    }

    /// The second look, after the receiver has been told to wake this side.
    fn try_again(&self, refused: SendError<B>) -> Result<(), SendError<B>> {
        let SendError::Full(envelope) = refused else { return Err(refused) };
        self.turned_away.store(true, Ordering::Relaxed);
        // Fence S of the module page; its partner is R in `EdgeReceiver::wake_sender`.
        fence(Ordering::SeqCst);
        self.try_once(envelope)
    }
}

/// The receiving half of an [`edge`]. Dropping it wakes the sender; envelopes still in the edge are
/// dropped with it.
#[derive(Debug)]
pub struct EdgeReceiver<B> {
    // Fields drop in this order: the queue closes before the other side is woken to see it.
    queue: Receiver<Envelope<B>>,
    sender: WakeOnDrop,
    turned_away: Arc<AtomicBool>,
}

impl<B> EdgeReceiver<B> {
    /// Takes the oldest envelope, and wakes the sender if it was turned away since it was last
    /// woken.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if there is none now, in which case the receiver's waker is called once
    /// there is; [`RecvError::Disconnected`] if there is none and the sender is gone.
    pub fn try_recv(&self) -> Result<Envelope<B>, RecvError> {
        let envelope = self.queue.try_recv()?;
        self.wake_sender();
        Ok(envelope)
    }

    fn wake_sender(&self) {
        // Fence R of the module page; its partner is S in `EdgeSender::try_again`.
        fence(Ordering::SeqCst);
        if self.turned_away.load(Ordering::Relaxed) {
            // Relaxed: only this side clears the flag, and it clears before it wakes. Whoever was
            // turned away before the clear is woken by the wake below; whoever is turned away after
            // that wake sets the flag anew.
            self.turned_away.store(false, Ordering::Relaxed);
            self.sender.0.wake_by_ref();
        }
    }
}

/// Why an envelope was not taken; it comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum SendError<B> {
    /// There is no room now.
    Full(Envelope<B>),
    /// The receiver is gone.
    Disconnected(Envelope<B>),
}

impl<B> SendError<B> {
    /// The envelope that was not taken.
    #[must_use]
    pub fn into_envelope(self) -> Envelope<B> {
        match self {
            Self::Full(envelope) | Self::Disconnected(envelope) => envelope,
        }
    }
}

impl<B> From<TrySendError<Envelope<B>>> for SendError<B> {
    fn from(error: TrySendError<Envelope<B>>) -> Self {
        match error {
            TrySendError::Full(envelope) => Self::Full(envelope),
            TrySendError::Disconnected(envelope) => Self::Disconnected(envelope),
        }
    }
}

impl<B> fmt::Display for SendError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the edge is full",
            Self::Disconnected(_) => "the receiver of the edge is gone",
        })
    }
}

impl<B: fmt::Debug> Error for SendError<B> {}

/// Why there was no envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// There is none now.
    Empty,
    /// There is none, and the sender is gone.
    Disconnected,
}

impl From<TryRecvError> for RecvError {
    fn from(error: TryRecvError) -> Self {
        match error {
            TryRecvError::Empty => Self::Empty,
            TryRecvError::Disconnected => Self::Disconnected,
        }
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the edge is empty",
            Self::Disconnected => "the sender of the edge is gone",
        })
    }
}

impl Error for RecvError {}

/// The waker of the other side, called for the last time when this side goes.
#[derive(Debug)]
struct WakeOnDrop(Waker);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        /// Wakes since the last question.
        fn take(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    struct Fixture {
        sender: EdgeSender<u32>,
        receiver: EdgeReceiver<u32>,
        sender_wakes: Arc<Count>,
        receiver_wakes: Arc<Count>,
    }

    fn fixture(capacity: usize) -> Fixture {
        let (sender_wakes, receiver_wakes) = (Arc::<Count>::default(), Arc::<Count>::default());
        let (sender, receiver) =
            edge(capacity, Arc::clone(&sender_wakes).into(), Arc::clone(&receiver_wakes).into());
        Fixture { sender, receiver, sender_wakes, receiver_wakes }
    }

    #[test]
    fn every_envelope_wakes_the_receiver() {
        let edge = fixture(2);
        edge.sender.try_send(Envelope::Batch(1)).unwrap();
        assert_eq!(edge.receiver_wakes.take(), 1);
        edge.sender.try_send(Envelope::Idle).unwrap();
        assert_eq!(edge.receiver_wakes.take(), 1);
    }

    #[test]
    fn a_full_edge_gives_the_envelope_back() {
        let edge = fixture(1);
        edge.sender.try_send(Envelope::Batch(1)).unwrap();
        let refused = edge.sender.try_send(Envelope::Batch(2));
        assert_eq!(refused, Err(SendError::Full(Envelope::Batch(2))));
        assert_eq!(edge.receiver_wakes.take(), 1);
    }

    #[test]
    fn the_sender_is_woken_once_and_only_if_turned_away() {
        let edge = fixture(2);
        edge.sender.try_send(Envelope::Batch(1)).unwrap();
        edge.sender.try_send(Envelope::Batch(2)).unwrap();
        assert_eq!(edge.receiver.try_recv(), Ok(Envelope::Batch(1)));
        assert_eq!(edge.sender_wakes.take(), 0);

        edge.sender.try_send(Envelope::Batch(3)).unwrap();
        edge.sender.try_send(Envelope::Batch(4)).unwrap_err();
        edge.sender.try_send(Envelope::Batch(4)).unwrap_err();
        assert_eq!(edge.receiver.try_recv(), Ok(Envelope::Batch(2)));
        assert_eq!(edge.sender_wakes.take(), 1);
        assert_eq!(edge.receiver.try_recv(), Ok(Envelope::Batch(3)));
        assert_eq!(edge.sender_wakes.take(), 0);
        assert_eq!(edge.receiver.try_recv(), Err(RecvError::Empty));
    }

    #[test]
    fn a_sender_that_goes_leaves_its_envelopes_and_a_wake() {
        let edge = fixture(2);
        edge.sender.try_send(Envelope::Batch(1)).unwrap();
        edge.receiver_wakes.take();
        drop(edge.sender);
        assert_eq!(edge.receiver_wakes.take(), 1);
        assert_eq!(edge.receiver.try_recv(), Ok(Envelope::Batch(1)));
        assert_eq!(edge.receiver.try_recv(), Err(RecvError::Disconnected));
    }

    #[test]
    fn a_receiver_that_goes_leaves_a_wake() {
        let edge = fixture(1);
        drop(edge.receiver);
        assert_eq!(edge.sender_wakes.take(), 1);
        let refused = edge.sender.try_send(Envelope::End);
        assert_eq!(refused, Err(SendError::Disconnected(Envelope::End)));
    }

    /// Asks, when woken, whether the other half can already be seen to be gone.
    struct Probe(std::sync::Mutex<Option<EdgeSender<u32>>>, AtomicBool);

    impl Wake for Probe {
        fn wake(self: Arc<Self>) {
            let sender = self.0.lock().unwrap();
            let gone = sender
                .as_ref()
                .map(|sender| sender.try_send(Envelope::Idle))
                .is_some_and(|sent| matches!(sent, Err(SendError::Disconnected(_))));
            self.1.store(gone, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_queue_is_closed_before_the_last_wake() {
        let probe = Arc::new(Probe(std::sync::Mutex::new(None), AtomicBool::new(false)));
        let (sender, receiver) = edge(1, Arc::clone(&probe).into(), Waker::noop().clone());
        *probe.0.lock().unwrap() = Some(sender);
        drop(receiver);
        assert!(probe.1.load(Ordering::Relaxed));
        probe.0.lock().unwrap().take();
    }

    #[test]
    #[should_panic(expected = "at least one envelope")]
    fn an_edge_without_room_is_refused() {
        drop(edge::<u32>(0, Waker::noop().clone(), Waker::noop().clone()));
    }
}
