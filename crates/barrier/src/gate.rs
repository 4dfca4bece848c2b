//! The incoming side of a task: takes from the edges what may be taken, in turn, and does what the
//! [`Aligner`] says.
//!
//! ```text
//!  edge 0 ──── b ─ b ──►┐
//!  edge 1 ─ b ─┃▮       │ blocked: behind its barrier        ┌► Batch, Watermark, Barrier,
//!  edge 2 ──── ▮ ─ b ──►┼──► one envelope ──► gate, aligner ─┤  Aborted, Idle, Active, End
//!  edge 3 ─ b ─ b ─ b ─►┘    (round robin)                   └► block, unblock
//! ```
//!
//! A batch passes without a lock and without an allocation: a look at the (empty) list of events
//! that wait, one `try_recv`, and out.
//!
//! # Waiting
//!
//! `Pending` means that every open, unblocked edge was found empty, so each of them wakes the task
//! with its next envelope. A blocked edge wakes it too, to no effect. Edges are unblocked only
//! within [`InputGate::try_next`], which then goes on to look into them before it says `Pending`.

use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;

use crate::aligner::{AbortReason, Aligner, AlignmentStats, Step};
use crate::edge::{EdgeReceiver, RecvError};
use crate::{Barrier, CheckpointId, Envelope};

/// All inputs of a task.
#[derive(Debug)]
pub struct InputGate<B> {
    inputs: Vec<Input<B>>,
    aligner: Aligner,
    /// What follows from the last marker and has not been taken yet.
    events: VecDeque<GateEvent<B>>,
    /// Kept for its memory; empty between calls.
    steps: Vec<Step>,
    /// The input whose turn it is.
    turn: usize,
    /// Invariant: how many inputs have not ended.
    open: usize,
    /// The last watermark that was given; `i64::MIN` before the first. Invariant: the minimum over
    /// the active inputs is never above it, since a minimum that is gets given.
    watermark: i64,
    /// Whether the last word on it was that all inputs are idle.
    idle: bool,
}

/// What the task has to deal with next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateEvent<B> {
    /// Records.
    Batch {
        /// Where they come from.
        input: usize,
        /// The records.
        batch: B,
    },
    /// Event time, in milliseconds, has come this far on all inputs that are neither ended nor
    /// idle. Each is greater than the one before.
    Watermark(i64),
    /// Pass the barrier on and take the snapshot.
    Barrier {
        /// The barrier.
        barrier: Barrier,
        /// How it was waited for.
        alignment: AlignmentStats,
    },
    /// No snapshot of this checkpoint will be taken here: pass a cancel marker on.
    Aborted {
        /// The checkpoint.
        id: CheckpointId,
        /// Why.
        reason: AbortReason,
    },
    /// All inputs that have not ended are idle: pass it on.
    Idle,
    /// An input is active again after [`GateEvent::Idle`]: pass it on.
    Active,
    /// All inputs have ended. Comes once, and nothing comes after it.
    End,
    /// The sender of this input went away without an end. Its barriers will not come and the gate
    /// will not end. Comes once for an input, and only when the gate takes from it: a blocked input
    /// is not looked at.
    Disconnected {
        /// The input.
        input: usize,
    },
}

impl<B> InputGate<B> {
    /// A gate over these edges; an input's number is its place here. Without any it ends at once.
    #[must_use]
    pub fn new(receivers: Vec<EdgeReceiver<B>>) -> Self {
        let open = receivers.len();
        let mut gate = Self {
            inputs: receivers.into_iter().map(Input::new).collect(),
            aligner: Aligner::new(open),
            events: VecDeque::new(),
            steps: Vec::new(),
            turn: 0,
            open,
            watermark: i64::MIN,
            idle: false,
        };
        gate.end_if_all_have();
        gate
    }

    /// The next event, if there is one. `Pending`: nothing can be had from an open, unblocked input
    /// now, and a receiver's waker is called when that may have changed.
    ///
    /// `now` is monotonic time, used for [`AlignmentStats`] alone.
    pub fn try_next(&mut self, now: Duration) -> Poll<GateEvent<B>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            let Some((input, received)) = self.receive() else { return Poll::Pending };
            let event = match received {
                Received::Envelope(envelope) => self.take(input, envelope, now),
                Received::Disconnected => Some(GateEvent::Disconnected { input }),
            };
            if let Some(event) = event {
                return Poll::Ready(event);
            }
        }
    }

    /// How many inputs are blocked by an alignment.
    #[must_use]
    pub fn blocked_inputs(&self) -> usize {
        self.inputs.iter().filter(|input| input.blocked).count()
    }

    /// Whether [`GateEvent::End`] has been given.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.open == 0 && self.events.is_empty()
    }

    /// One envelope from the first input, beginning with the one whose turn it is, that has any.
    fn receive(&mut self) -> Option<(usize, Received<B>)> {
        for _ in 0..self.inputs.len() {
            let index = self.turn;
            self.turn = if index + 1 == self.inputs.len() { 0 } else { index + 1 };
            if let Some(received) = self.input(index).receive() {
                return Some((index, received));
            }
        }
        None
    }

    /// A batch goes straight through; a marker leaves its events in the list.
    fn take(&mut self, input: usize, envelope: Envelope<B>, now: Duration) -> Option<GateEvent<B>> {
        match envelope {
            Envelope::Batch(batch) => return Some(GateEvent::Batch { input, batch }),
            Envelope::Watermark(time_ms) => self.raise(input, time_ms),
            Envelope::Barrier(barrier) => {
                self.aligner.barrier(input, barrier, now, &mut self.steps);
                self.obey();
            }
            Envelope::Cancel(id) => {
                self.aligner.cancel(input, id, &mut self.steps);
                self.obey();
            }
            Envelope::Idle => self.become_state(input, State::Idle),
            Envelope::Active => self.become_state(input, State::Active),
            Envelope::End => self.end(input, now),
        }
        None
    }

    fn end(&mut self, input: usize, now: Duration) {
        self.aligner.end(input, now, &mut self.steps);
        self.obey();
        self.open -= 1;
        self.become_state(input, State::Ended);
        self.end_if_all_have();
    }

    fn end_if_all_have(&mut self) {
        if self.open == 0 {
            self.events.push_back(GateEvent::End);
        }
    }

    fn obey(&mut self) {
        for step in self.steps.drain(..) {
            match step {
                Step::Block(index) => {
                    let input =
                        self.inputs.get_mut(index).expect("one input for every aligned one");
                    input.blocked = true;
                }
                Step::Unblock => self.inputs.iter_mut().for_each(|input| input.blocked = false),
                Step::Snapshot { barrier, alignment } => {
                    self.events.push_back(GateEvent::Barrier { barrier, alignment });
                }
                Step::Abort { id, reason } => {
                    self.events.push_back(GateEvent::Aborted { id, reason });
                }
            }
        }
    }

    fn raise(&mut self, input: usize, time_ms: i64) {
        let input = self.input(input);
        let before = input.watermark;
        input.watermark = before.max(time_ms);
        // An input that was ahead of what was given is not the one that holds the minimum back.
        if before <= self.watermark {
            self.announce();
        }
    }

    fn become_state(&mut self, input: usize, state: State) {
        self.input(input).state = state;
        self.announce();
    }

    /// Compares what the inputs say together with what was last given.
    fn announce(&mut self) {
        if self.open == 0 {
            return;
        }
        let holding = self.inputs.iter().filter(|input| input.holds_watermark());
        let minimum = holding.map(|input| input.watermark).min();
        if self.idle && minimum.is_some() {
            self.events.push_back(GateEvent::Active);
        }
        if let Some(minimum) = minimum.filter(|&minimum| minimum > self.watermark) {
            self.watermark = minimum;
            self.events.push_back(GateEvent::Watermark(minimum));
        }
        if !self.idle && minimum.is_none() {
            self.events.push_back(GateEvent::Idle);
        }
        self.idle = minimum.is_none();
    }

    fn input(&mut self, index: usize) -> &mut Input<B> {
        self.inputs.get_mut(index).expect("the input is one of this gate's")
    }
}

#[derive(Debug)]
struct Input<B> {
    receiver: EdgeReceiver<B>,
    state: State,
    blocked: bool,
    /// The greatest it has delivered; `i64::MIN` before the first.
    watermark: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    Idle,
    Ended,
    /// The sender went away without an end.
    Lost,
}

enum Received<B> {
    Envelope(Envelope<B>),
    Disconnected,
}

impl<B> Input<B> {
    const fn new(receiver: EdgeReceiver<B>) -> Self {
        Self { receiver, state: State::Active, blocked: false, watermark: i64::MIN }
    }

    fn receive(&mut self) -> Option<Received<B>> {
        if self.blocked || matches!(self.state, State::Ended | State::Lost) {
            return None;
        }
        match self.receiver.try_recv() {
            Ok(envelope) => Some(Received::Envelope(envelope)),
            Err(RecvError::Empty) => None,
            Err(RecvError::Disconnected) => {
                self.state = State::Lost;
                Some(Received::Disconnected)
            }
        }
    }

    /// A lost input holds the watermark where it is: nobody knows what it would have sent.
    const fn holds_watermark(&self) -> bool {
        matches!(self.state, State::Active | State::Lost)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::edge::{EdgeSender, edge};
    use crate::{Alignment, CheckpointKind, CheckpointOptions};

    fn fixture(inputs: usize) -> (Vec<EdgeSender<u32>>, InputGate<u32>) {
        let halves = (0..inputs).map(|_| edge(16, Waker::noop().clone(), Waker::noop().clone()));
        let (senders, receivers) = halves.unzip();
        (senders, InputGate::new(receivers))
    }

    /// Feeds a script to a gate of `inputs` inputs, takes all events after each `|` and at the end,
    /// and compares them. `a:7` a batch, `a:w5` a watermark, `a:b1` an aligned barrier, `a:~1` an
    /// at-least-once one, `a:x1` a cancel marker, `a:idle`, `a:active`, `a:end`, `a:gone` drops the
    /// sender.
    #[track_caller]
    fn check(inputs: usize, script: &str, expected: &str) {
        let (senders, mut gate) = fixture(inputs);
        let mut senders: Vec<_> = senders.into_iter().map(Some).collect();
        let mut given = Vec::new();
        for step in script.split('|') {
            for word in step.split_whitespace() {
                feed(&mut senders, word);
            }
            while let Poll::Ready(event) = gate.try_next(Duration::ZERO) {
                given.push(describe(&event));
            }
        }
        assert_eq!(given.join(" "), expected, "script: {script}");
    }

    fn feed(senders: &mut [Option<EdgeSender<u32>>], word: &str) {
        let (input, word) = word.split_once(':').unwrap();
        let sender = &mut senders[usize::from(input.as_bytes()[0] - b'a')];
        match envelope(word) {
            Some(envelope) => sender.as_ref().unwrap().try_send(envelope).unwrap(),
            None => *sender = None,
        }
    }

    fn envelope(word: &str) -> Option<Envelope<u32>> {
        Some(match (word, word.split_at(1)) {
            ("idle", _) => Envelope::Idle,
            ("active", _) => Envelope::Active,
            ("end", _) => Envelope::End,
            ("gone", _) => return None,
            (_, ("w", time_ms)) => Envelope::Watermark(time_ms.parse().unwrap()),
            (_, ("b", id)) => Envelope::Barrier(barrier(id, Alignment::Aligned)),
            (_, ("~", id)) => Envelope::Barrier(barrier(id, Alignment::AtLeastOnce)),
            (_, ("x", id)) => Envelope::Cancel(CheckpointId(id.parse().unwrap())),
            (batch, _) => Envelope::Batch(batch.parse().unwrap()),
        })
    }

    fn barrier(id: &str, alignment: Alignment) -> Barrier {
        Barrier {
            id: CheckpointId(id.parse().unwrap()),
            triggered_ms: 0,
            base: None,
            options: CheckpointOptions::new(CheckpointKind::Checkpoint, alignment),
        }
    }

    fn describe(event: &GateEvent<u32>) -> String {
        let letter = |input: &usize| char::from(b'a' + u8::try_from(*input).unwrap());
        match event {
            GateEvent::Batch { input, batch } => format!("{}:{batch}", letter(input)),
            GateEvent::Watermark(time_ms) => format!("w{time_ms}"),
            GateEvent::Barrier { barrier, .. } => format!("b{}", barrier.id),
            GateEvent::Aborted { id, .. } => format!("x{id}"),
            GateEvent::Idle => "idle".into(),
            GateEvent::Active => "active".into(),
            GateEvent::End => "end".into(),
            GateEvent::Disconnected { input } => format!("{}:gone", letter(input)),
        }
    }

    #[test]
    fn inputs_take_turns() {
        check(2, "a:1 a:2 a:3 b:4 b:5", "a:1 b:4 a:2 b:5 a:3");
        check(3, "c:1 c:2 b:3", "b:3 c:1 c:2");
    }

    #[test]
    fn what_is_behind_a_barrier_waits_for_the_snapshot() {
        check(2, "a:1 a:b1 a:2 b:3 | b:4 | b:b1 b:5", "a:1 b:3 b:4 b1 a:2 b:5");
        check(2, "a:~1 a:2 b:3 b:~1", "b:3 a:2 b1");
    }

    #[test]
    fn a_cancelled_alignment_lets_go() {
        check(2, "a:b1 a:2 | b:x1", "x1 a:2");
        check(2, "a:b1 a:2 | b:b2 b:3 | a:b2", "x1 a:2 b2 b:3");
    }

    #[test]
    fn an_end_completes_the_alignment_and_comes_last() {
        check(2, "a:b1 a:2 a:end | b:1 b:end", "b:1 b1 a:2 end");
        check(1, "a:end", "end");
        check(0, "", "end");
    }

    #[test]
    fn the_watermark_is_the_minimum_and_only_grows() {
        check(2, "a:w5 | b:w3 | b:w9 | a:w4 | a:w7", "w3 w5 w7");
        check(1, "a:w5 a:w5 a:w4 a:w6", "w5 w6");
    }

    #[test]
    fn idle_and_ended_inputs_do_not_hold_the_watermark_back() {
        check(2, "a:w5 b:w3 | b:idle | a:w6", "w3 w5 w6");
        check(2, "a:w5 b:w3 | b:end | a:w6", "w3 w5 w6");
        check(2, "a:w5 b:w3 | b:idle | b:active | b:w4 | a:w8 | b:w7", "w3 w5 w7");
    }

    #[test]
    fn idleness_is_passed_on_when_it_is_everybodys() {
        check(2, "a:w5 b:w3 | a:idle | b:idle | b:active b:w6", "w3 idle active w6");
        check(2, "a:idle | b:end", "idle");
        check(2, "a:idle | b:idle | a:end | b:end", "idle end");
        check(2, "a:w5 b:w3 | b:idle | a:idle | b:active", "w3 w5 idle active");
    }

    #[test]
    fn an_idle_input_is_waited_for() {
        check(2, "a:idle b:b1 b:2", "");
        check(2, "a:idle b:b1 b:2 | a:b1", "b1 b:2");
    }

    #[test]
    fn a_lost_input_is_reported_once_and_never_counts_as_ended() {
        check(2, "a:1 a:gone b:b1 b:end", "a:1 a:gone");
        check(2, "a:1 a:end | a:gone b:2 b:end", "a:1 b:2 end");
        check(2, "a:w1 b:w1 | b:gone | a:w9", "w1 b:gone");
        check(2, "b:b1 b:gone | a:b1", "b1 b:gone");
    }

    #[test]
    fn metrics_follow_the_alignment_and_the_end() {
        let (senders, mut gate) = fixture(2);
        let marker = || Envelope::Barrier(barrier("1", Alignment::Aligned));
        senders[0].try_send(marker()).unwrap();
        assert_eq!(gate.try_next(Duration::ZERO), Poll::Pending);
        assert_eq!(gate.blocked_inputs(), 1);
        senders[1].try_send(Envelope::End).unwrap();
        senders[0].try_send(Envelope::End).unwrap();
        let stats = AlignmentStats {
            started: Duration::ZERO,
            alignment: Duration::from_secs(1),
            last_input: 1,
        };
        let barrier =
            GateEvent::Barrier { barrier: barrier("1", Alignment::Aligned), alignment: stats };
        assert_eq!(gate.try_next(Duration::from_secs(1)), Poll::Ready(barrier));
        assert_eq!((gate.blocked_inputs(), gate.is_ended()), (0, false));
        assert_eq!(gate.try_next(Duration::ZERO), Poll::Ready(GateEvent::End));
        assert!(gate.is_ended());
        assert_eq!(gate.try_next(Duration::ZERO), Poll::Pending);
    }
}
