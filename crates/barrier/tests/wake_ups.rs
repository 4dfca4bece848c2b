//! Real threads that park whenever they can do nothing: a lost wake-up would leave them parked.

use std::hint;
use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use crossbeam::sync::{Parker, Unparker};
use strandline_barrier::{
    Alignment, Barrier, CheckpointId, CheckpointKind, CheckpointOptions, EdgeReceiver, EdgeSender,
    Envelope, Flush, GateEvent, InputGate, Marker, Outlet, RecvError, SendError, edge,
};

struct Unpark(Unparker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a thread waits with, and what wakes it.
fn parking() -> (Parker, Waker) {
    let parker = Parker::new();
    let waker = Arc::new(Unpark(parker.unparker().clone())).into();
    (parker, waker)
}

/// Runs each on a thread of its own and returns what they return, in any order. A thread that is
/// not done within a minute is taken for one that waits for a wake-up that was lost.
#[expect(clippy::disallowed_methods, reason = "the test is about threads")]
fn run_all<T: Send + 'static>(threads: Vec<Box<dyn FnOnce() -> T + Send>>) -> Vec<T> {
    let (done, results) = mpsc::channel();
    let count = threads.len();
    for thread in threads {
        let done = done.clone();
        let spawned = thread::Builder::new().spawn(move || done.send(thread()));
        drop(spawned.expect("a thread can be started"));
    }
    drop(done);
    let wait = || results.recv_timeout(Duration::from_secs(60));
    (0..count).map(|_| wait().expect("a wake-up was lost, or a thread has failed")).collect()
}

const BATCHES: u32 = 100_000;

/// Sends all batches and the end, receives the other side's; returns how many it received.
fn exchange(parker: &Parker, sender: &EdgeSender<u32>, receiver: &EdgeReceiver<u32>) -> u32 {
    let mut outgoing = (0..BATCHES).map(Envelope::Batch).chain([Envelope::End]);
    let mut next = outgoing.next();
    let mut received = 0;
    let mut ended = false;
    while next.is_some() || !ended {
        let came = !ended && receive(receiver, &mut received, &mut ended);
        let went = match next.take().map(|envelope| sender.try_send(envelope)) {
            Some(Ok(())) => {
                next = outgoing.next();
                true
            }
            Some(Err(SendError::Full(envelope))) => {
                next = Some(envelope);
                false
            }
            Some(Err(SendError::Disconnected(_))) => panic!("the other side left too early"),
            None => false,
        };
        if !came && !went {
            parker.park();
        }
    }
    received
}

/// Whether an envelope came.
fn receive(receiver: &EdgeReceiver<u32>, received: &mut u32, ended: &mut bool) -> bool {
    match receiver.try_recv() {
        Ok(Envelope::Batch(batch)) => {
            assert_eq!(batch, *received, "lost, repeated or reordered");
            *received += 1;
        }
        Ok(Envelope::End) => *ended = true,
        Ok(other) => panic!("nobody sent {other:?}"),
        Err(RecvError::Empty) => return false,
        Err(RecvError::Disconnected) => panic!("the other side left without an end"),
    }
    true
}

#[test]
fn two_threads_exchange_batches_through_edges_of_one() {
    let ((here, wake_here), (there, wake_there)) = (parking(), parking());
    let (to_there, from_here) = edge(1, wake_here.clone(), wake_there.clone());
    let (to_here, from_there) = edge(1, wake_there, wake_here);
    let received = run_all(vec![
        Box::new(move || exchange(&here, &to_there, &from_there)),
        Box::new(move || exchange(&there, &to_here, &from_here)),
    ]);
    assert_eq!(received, [BATCHES, BATCHES]);
}

const CHECKPOINTS: u64 = 300;
const BATCHES_PER_CHECKPOINT: u64 = 20;

/// Sends batches numbered by the checkpoint that covers them, each checkpoint's barrier behind
/// them, and the end.
fn produce(parker: &Parker, mut outlet: Outlet<u64>) {
    for id in 1..=CHECKPOINTS {
        for _ in 0..BATCHES_PER_CHECKPOINT {
            outlet.send(0, id);
            flush(parker, &mut outlet);
        }
        outlet.broadcast(Marker::Barrier(Barrier {
            id: CheckpointId(id),
            triggered_ms: 0,
            base: None,
            options: CheckpointOptions::new(CheckpointKind::Checkpoint, Alignment::Aligned),
        }));
        flush(parker, &mut outlet);
    }
    outlet.broadcast(Marker::End);
    flush(parker, &mut outlet);
}

fn flush(parker: &Parker, outlet: &mut Outlet<u64>) {
    loop {
        match outlet.flush() {
            Flush::Done => return,
            Flush::Blocked => parker.park(),
            Flush::Disconnected(output) => panic!("output {output} is gone"),
        }
    }
}

/// Takes everything; returns how many batches came.
fn consume(parker: &Parker, mut gate: InputGate<u64>) -> u64 {
    let (mut batches, mut completed) = (0, 0);
    loop {
        match gate.try_next(Duration::ZERO) {
            Poll::Pending => parker.park(),
            Poll::Ready(event) => {
                if count(&event, &mut batches, &mut completed).is_break() {
                    assert_eq!(completed, CHECKPOINTS);
                    return batches;
                }
            }
        }
    }
}

fn count(event: &GateEvent<u64>, batches: &mut u64, completed: &mut u64) -> ControlFlow<()> {
    match event {
        GateEvent::Batch { batch, .. } => {
            assert_eq!(*batch, *completed + 1, "a batch on the wrong side of its cut");
            *batches += 1;
        }
        GateEvent::Barrier { barrier, .. } => *completed = barrier.id.0,
        GateEvent::End => return ControlFlow::Break(()),
        GateEvent::Watermark(_)
        | GateEvent::Aborted { .. }
        | GateEvent::Idle
        | GateEvent::Active
        | GateEvent::Disconnected { .. } => panic!("nobody caused {event:?}"),
    }
    ControlFlow::Continue(())
}

#[test]
fn three_threads_align_barriers_into_one_gate() {
    let (consumer, wake_consumer) = parking();
    let mut threads: Vec<Box<dyn FnOnce() -> u64 + Send>> = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..3 {
        let (producer, wake_producer) = parking();
        let (sender, receiver) = edge(1, wake_producer, wake_consumer.clone());
        receivers.push(receiver);
        threads.push(Box::new(move || {
            produce(&producer, Outlet::new(vec![sender]));
            0
        }));
    }
    threads.push(Box::new(move || consume(&consumer, InputGate::new(receivers))));
    let batches: u64 = run_all(threads).into_iter().sum();
    assert_eq!(batches, 3 * CHECKPOINTS * BATCHES_PER_CHECKPOINT);
}

/// The receiver never parks, so it often takes an envelope just while the sender is turned away.
#[test]
fn a_sender_that_parks_keeps_up_with_a_receiver_that_spins() {
    let (parker, wake_sender) = parking();
    let (sender, receiver) = edge(1, wake_sender, Waker::noop().clone());
    let send = move || {
        for envelope in (0..BATCHES).map(Envelope::Batch).chain([Envelope::End]) {
            let mut refused = sender.try_send(envelope);
            while let Err(SendError::Full(envelope)) = refused {
                // No further try before parking: the edge alone answers for the wake.
                parker.park();
                refused = sender.try_send(envelope);
            }
        }
        BATCHES
    };
    let spin = move || {
        let (mut received, mut ended) = (0, false);
        while !ended {
            if !receive(&receiver, &mut received, &mut ended) {
                hint::spin_loop();
            }
        }
        received
    };
    assert_eq!(run_all(vec![Box::new(send), Box::new(spin)]), [BATCHES, BATCHES]);
}
