//! An inbox in front of a machine, for a host that has a thread to spare.
//!
//! Everybody who has something to say holds an [`Inbox`]; one thread owns the [`Driver`] and does
//! what its actions ask for:
//!
//! ```text
//!   task ──┐
//!   task ──┼─ Inbox ─► Driver::poll(now) ─► actions
//!   user ──┘           Driver::wait(deadline − now)
//! ```
//!
//! Sending never blocks and never loses an event, so the queue has no limit of its own: a full one
//! would have to stop a task, or lose a handle. It stays short because of what is sent: a task
//! answers each checkpoint once, and ends once. Requests are the host's to limit; those that wait
//! in the machine are at most [`TICKETS_LIMIT`](crate::TICKETS_LIMIT).

use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::{Action, Event, Machine};

/// Events that one poll takes: a flood of them must not hold up the actions of the first.
const EVENTS_PER_POLL: usize = 1024;

/// A machine and its inbox.
#[derive(Debug)]
pub struct Driver<H> {
    machine: Machine<H>,
    events: Receiver<Event<H>>,
    /// Kept to make inboxes of; so the channel is open as long as the driver is there.
    sender: Sender<Event<H>>,
    /// The event that [`Driver::wait`] was woken by.
    woken_by: Option<Event<H>>,
    /// The last poll has left events behind, perhaps.
    more: bool,
}

impl<H> Driver<H> {
    /// A driver with an empty inbox.
    #[must_use]
    pub fn new(machine: Machine<H>) -> Self {
        let (sender, events) = mpsc::channel();
        Self { machine, events, sender, woken_by: None, more: false }
    }

    /// Another end to send events to this driver.
    #[must_use]
    pub fn sender(&self) -> Inbox<H> {
        Inbox { sender: self.sender.clone() }
    }

    /// Takes what has been sent, lets time pass to `now`, and says what to do, in order. Never
    /// blocks.
    pub fn poll(&mut self, now: Duration) -> Vec<Action<H>> {
        let mut actions = Vec::new();
        let mut taken = 0;
        let sent = self.woken_by.take().into_iter().chain(self.events.try_iter());
        for event in sent.take(EVENTS_PER_POLL) {
            self.machine.handle(event, now, &mut actions);
            taken += 1;
        }
        self.more = taken == EVENTS_PER_POLL;
        self.machine.handle(Event::Tick, now, &mut actions);
        actions
    }

    /// When to poll even if nothing has been sent; a time that has passed means at once, `None`
    /// means that time alone changes nothing.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        if self.more || self.woken_by.is_some() {
            return Some(Duration::ZERO);
        }
        self.machine.deadline()
    }

    /// Blocks until something has been sent, or this long. Says whether something was there.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        if self.woken_by.is_none() {
            self.woken_by = self.events.recv_timeout(at_most).ok();
        }
        self.woken_by.is_some()
    }

    /// The machine, to look at.
    #[must_use]
    pub fn machine(&self) -> &Machine<H> {
        &self.machine
    }
}

/// Where events for a [`Driver`] are sent to.
#[derive(Debug)]
pub struct Inbox<H> {
    sender: Sender<Event<H>>,
}

impl<H> Inbox<H> {
    /// Hands an event over; never blocks.
    ///
    /// # Errors
    /// The driver is gone. The event comes back, and with it the handle that nobody will use.
    pub fn send(&self, event: Event<H>) -> Result<(), Closed<H>> {
        self.sender.send(event).map_err(|mpsc::SendError(event)| Closed(event))
    }
}

impl<H> Clone for Inbox<H> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone() }
    }
}

/// The driver is gone; this is what could not be sent.
pub struct Closed<H>(pub Event<H>);

impl<H> fmt::Debug for Closed<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").finish_non_exhaustive()
    }
}

impl<H> fmt::Display for Closed<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the coordinator is gone")
    }
}

impl<H> std::error::Error for Closed<H> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attempt, CheckpointConfig, Outcome, Plan, Purpose, Refusal};
    use strandline_barrier::CheckpointId;

    const REQUEST: Event<u8> = Event::Request { ticket: 1, purpose: Purpose::Checkpoint };
    const REFUSED: Action<u8> =
        Action::Reply { ticket: 1, outcome: Outcome::Refused(Refusal::NotRunning) };

    fn driver() -> Driver<u8> {
        let config = CheckpointConfig::default();
        Driver::new(Machine::new(config, Plan::default(), Attempt(0), CheckpointId(1)))
    }

    #[test]
    fn what_wakes_a_wait_is_taken_by_the_next_poll() {
        let mut driver = driver();
        assert!(!driver.wait(Duration::ZERO));
        driver.sender().send(REQUEST).unwrap();
        assert!(driver.wait(Duration::MAX));
        assert!(driver.wait(Duration::MAX));
        assert_eq!(driver.deadline(), Some(Duration::ZERO));
        assert_eq!(driver.poll(Duration::ZERO), [REFUSED]);
        assert_eq!(driver.poll(Duration::ZERO), []);
        assert_eq!(driver.deadline(), None);
    }

    #[test]
    fn a_flood_is_taken_in_portions() {
        let mut driver = driver();
        for _ in 0..=EVENTS_PER_POLL {
            driver.sender().send(REQUEST).unwrap();
        }
        assert_eq!(driver.poll(Duration::ZERO).len(), EVENTS_PER_POLL);
        assert_eq!(driver.deadline(), Some(Duration::ZERO));
        assert_eq!(driver.poll(Duration::ZERO), [REFUSED]);
        assert_eq!(driver.deadline(), None);
    }

    #[test]
    fn a_closed_inbox_gives_the_event_back() {
        let inbox = driver().sender();
        let Err(Closed(event)) = inbox.send(REQUEST) else { panic!("the driver is gone") };
        assert_eq!(event, REQUEST);
    }
}
