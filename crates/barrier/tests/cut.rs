//! Any interleaving of any inputs, against what the streams themselves say.

use std::collections::BTreeSet;
use std::task::{Poll, Waker};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use strandline_barrier::{
    Alignment, Barrier, CheckpointId, CheckpointKind, CheckpointOptions, Envelope, Flush,
    GateEvent, InputGate, Marker, Outlet, edge,
};

/// What one input sends, without the end. Batches are numbered from 0 on every input.
type Stream = Vec<Envelope<usize>>;

/// What an input does about a checkpoint.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Deliver,
    Cancel,
    Skip,
}

#[derive(Clone, Debug)]
struct Case {
    alignments: Vec<Alignment>,
    streams: Vec<Stream>,
    capacity: usize,
    /// Who moves next: an input's number, or, one above them, the gate.
    schedule: Vec<usize>,
}

/// What came out of the gate.
#[derive(Debug, Default)]
struct Outcome {
    /// How many batches of each input.
    delivered: Vec<usize>,
    /// Each snapshot, and how many batches of each input had been delivered before it.
    cuts: Vec<(CheckpointId, Vec<usize>)>,
    aborted: Vec<CheckpointId>,
    blocked_max: usize,
    ended: bool,
}

fn barrier(id: u64, alignment: Alignment) -> Barrier {
    Barrier {
        id: CheckpointId(id),
        triggered_ms: 0,
        base: None,
        options: CheckpointOptions::new(CheckpointKind::Checkpoint, alignment),
    }
}

/// The stream of an input that sends so many batches and then takes each turn.
fn stream(segments: &[(usize, Turn)], alignments: &[Alignment]) -> Stream {
    let mut stream = Vec::new();
    let mut batch = 0..;
    for ((id, &(batches, turn)), &alignment) in (1..).zip(segments).zip(alignments) {
        stream.extend(batch.by_ref().take(batches).map(Envelope::Batch));
        match turn {
            Turn::Deliver => stream.push(Envelope::Barrier(barrier(id, alignment))),
            Turn::Cancel => stream.push(Envelope::Cancel(CheckpointId(id))),
            Turn::Skip => {}
        }
    }
    stream
}

fn cases(
    turn: impl Strategy<Value = Turn> + Clone,
    alignment: impl Strategy<Value = Alignment> + Clone,
) -> impl Strategy<Value = Case> {
    (1_usize..=4, 0_usize..=5).prop_flat_map(move |(inputs, checkpoints)| {
        // An input with fewer segments than there are checkpoints ends before the others.
        let segments = vec((0_usize..=4, turn.clone()), 0..=checkpoints);
        let alignments = vec(alignment.clone(), checkpoints);
        (alignments, vec(segments, inputs), 1_usize..=8, vec(0..=inputs, 0..120)).prop_map(
            |(alignments, segments, capacity, schedule)| {
                let streams = segments.iter().map(|one| stream(one, &alignments)).collect();
                Case { alignments, streams, capacity, schedule }
            },
        )
    })
}

/// Plays the case: first by its schedule, then all in turn until nothing moves.
fn play(case: &Case) -> Outcome {
    let mut outlets = Vec::new();
    let mut receivers = Vec::new();
    for _ in &case.streams {
        let (sender, receiver) = edge(case.capacity, Waker::noop().clone(), Waker::noop().clone());
        outlets.push(Outlet::new(vec![sender]));
        receivers.push(receiver);
    }
    let mut gate = InputGate::new(receivers);
    let mut rest: Vec<_> =
        case.streams.iter().map(|stream| stream.iter().cloned().chain([Envelope::End])).collect();
    let mut outcome = Outcome { delivered: vec![0; rest.len()], ..Outcome::default() };

    let mut step = |choice: usize| match (outlets.get_mut(choice), rest.get_mut(choice)) {
        (Some(outlet), Some(rest)) => advance(outlet, rest),
        _ => take(&mut gate, &mut outcome),
    };
    for &choice in &case.schedule {
        step(choice);
    }
    // The gate goes first, so that room it makes without an event is used in the same turn.
    // Counted, since `any` would stop at the first that moves.
    while (0..=case.streams.len()).rev().map(&mut step).filter(|&moved| moved).count() > 0 {}
    outcome
}

/// One envelope further on an input; `false` if there is no room or nothing left.
fn advance(outlet: &mut Outlet<usize>, rest: &mut impl Iterator<Item = Envelope<usize>>) -> bool {
    let queued = outlet.queued();
    if outlet.flush() != Flush::Done {
        return false;
    }
    match rest.next() {
        None => return queued > 0,
        Some(Envelope::Batch(batch)) => outlet.send(0, batch),
        Some(Envelope::Barrier(barrier)) => outlet.broadcast(Marker::Barrier(barrier)),
        Some(Envelope::Cancel(id)) => outlet.broadcast(Marker::Cancel(id)),
        Some(Envelope::Watermark(time_ms)) => outlet.broadcast(Marker::Watermark(time_ms)),
        Some(Envelope::Idle) => outlet.broadcast(Marker::Idle),
        Some(Envelope::Active) => outlet.broadcast(Marker::Active),
        Some(Envelope::End) => outlet.broadcast(Marker::End),
    }
    true
}

/// One event further at the gate; `false` if there is none.
fn take(gate: &mut InputGate<usize>, outcome: &mut Outcome) -> bool {
    let Poll::Ready(event) = gate.try_next(Duration::ZERO) else {
        outcome.blocked_max = outcome.blocked_max.max(gate.blocked_inputs());
        return false;
    };
    assert!(!outcome.ended, "nothing follows the end, but {event:?} did");
    match event {
        GateEvent::Batch { input, batch } => {
            let next = outcome.delivered.get_mut(input).expect("an input of the case");
            assert_eq!(batch, *next, "input {input} lost, repeated or reordered a batch");
            *next += 1;
        }
        GateEvent::Barrier { barrier, .. } => {
            outcome.cuts.push((barrier.id, outcome.delivered.clone()));
        }
        GateEvent::Aborted { id, .. } => outcome.aborted.push(id),
        GateEvent::End => outcome.ended = true,
        GateEvent::Watermark(_)
        | GateEvent::Idle
        | GateEvent::Active
        | GateEvent::Disconnected { .. } => panic!("nobody sent anything of {event:?}"),
    }
    true
}

fn is_barrier(envelope: &Envelope<usize>, id: CheckpointId) -> bool {
    matches!(envelope, Envelope::Barrier(barrier) if barrier.id == id)
}

fn delivers(stream: &Stream, id: CheckpointId) -> bool {
    stream.iter().any(|envelope| is_barrier(envelope, id))
}

/// How many batches the stream has before the barrier, or in all if it ends without it.
fn before(stream: &Stream, id: CheckpointId) -> usize {
    let before = stream.iter().take_while(|envelope| !is_barrier(envelope, id));
    before.filter(|envelope| matches!(envelope, Envelope::Batch(_))).count()
}

/// What holds for all cases, also for those in which inputs disagree about checkpoints.
fn check(case: &Case) -> Outcome {
    let outcome = play(case);
    assert!(outcome.ended, "stuck: {outcome:?}");
    let total = |stream: &Stream| before(stream, CheckpointId(u64::MAX));
    let totals: Vec<_> = case.streams.iter().map(total).collect();
    assert_eq!(outcome.delivered, totals);
    for (id, cut) in &outcome.cuts {
        check_cut(case, *id, cut);
    }
    let mut decided = BTreeSet::new();
    let ids = outcome.cuts.iter().map(|(id, _)| id).chain(&outcome.aborted);
    assert!(ids.into_iter().all(|id| decided.insert(*id)), "decided twice: {outcome:?}");
    assert!(outcome.cuts.is_sorted_by_key(|(id, _)| id), "out of order: {outcome:?}");
    outcome
}

fn check_cut(case: &Case, id: CheckpointId, cut: &[usize]) {
    let expected: Vec<_> = case.streams.iter().map(|stream| before(stream, id)).collect();
    let alignment = (1..).zip(&case.alignments).find(|&(number, _)| CheckpointId(number) == id);
    match alignment.expect("an id of the case").1 {
        Alignment::Aligned => assert_eq!(cut, expected, "the cut of {id}"),
        Alignment::AtLeastOnce => {
            let covered = cut.iter().zip(&expected).all(|(cut, expected)| cut >= expected);
            assert!(covered, "the cut of {id} is {cut:?}, before {expected:?}");
        }
    }
}

/// Every checkpoint that reached the gate through any input, in order, is a snapshot.
fn check_all_complete(case: &Case, outcome: &Outcome) {
    let sent = (1..=case.alignments.len() as u64)
        .map(CheckpointId)
        .filter(|&id| case.streams.iter().any(|stream| delivers(stream, id)));
    let cuts = outcome.cuts.iter().map(|(id, _)| *id);
    assert_eq!(cuts.collect::<Vec<_>>(), sent.collect::<Vec<_>>());
    assert!(outcome.aborted.is_empty(), "{outcome:?}");
}

fn any_turn() -> impl Strategy<Value = Turn> + Clone {
    prop_oneof![4 => Just(Turn::Deliver), 1 => Just(Turn::Cancel), 1 => Just(Turn::Skip)]
}

fn any_alignment() -> impl Strategy<Value = Alignment> + Clone {
    prop_oneof![Just(Alignment::Aligned), Just(Alignment::AtLeastOnce)]
}

proptest! {
    #[test]
    fn aligned_cuts_every_input_at_its_barrier(
        case in cases(Just(Turn::Deliver), Just(Alignment::Aligned))
    ) {
        check_all_complete(&case, &check(&case));
    }

    #[test]
    fn at_least_once_loses_nothing_and_never_blocks(
        case in cases(Just(Turn::Deliver), Just(Alignment::AtLeastOnce))
    ) {
        let outcome = check(&case);
        check_all_complete(&case, &outcome);
        prop_assert_eq!(outcome.blocked_max, 0);
    }

    #[test]
    fn both_kinds_may_follow_each_other(case in cases(Just(Turn::Deliver), any_alignment())) {
        check_all_complete(&case, &check(&case));
    }

    #[test]
    fn cancelled_and_skipped_checkpoints_hold_nothing_up(
        case in cases(any_turn(), any_alignment())
    ) {
        check(&case);
    }
}

/// The inputs as the naive model knows them.
#[derive(Clone, Copy)]
struct Known {
    watermark: Option<i64>,
    idle: bool,
    ended: bool,
}

/// The minimum over the inputs that are neither ended nor idle, if all of those have one.
fn minimum(inputs: &[Known]) -> Option<i64> {
    let active = inputs.iter().filter(|input| !input.idle && !input.ended);
    active.map(|input| input.watermark).min().flatten()
}

fn note(input: &mut Known, envelope: &Envelope<u32>) {
    match envelope {
        Envelope::Watermark(time_ms) => input.watermark = input.watermark.max(Some(*time_ms)),
        Envelope::Idle => input.idle = true,
        Envelope::Active => input.idle = false,
        Envelope::End => input.ended = true,
        Envelope::Batch(_) | Envelope::Barrier(_) | Envelope::Cancel(_) => {}
    }
}

fn any_status() -> impl Strategy<Value = Envelope<u32>> {
    prop_oneof![
        8 => (0_i64..30).prop_map(Envelope::Watermark),
        2 => Just(Envelope::Idle),
        2 => Just(Envelope::Active),
        1 => Just(Envelope::End),
    ]
}

proptest! {
    #[test]
    fn the_watermark_is_the_naive_minimum(
        inputs in 1_usize..=4,
        sent in vec((0_usize..4, any_status()), 0..60),
    ) {
        let halves = (0..inputs).map(|_| edge(1, Waker::noop().clone(), Waker::noop().clone()));
        let (senders, receivers): (Vec<_>, _) = halves.unzip();
        let mut gate = InputGate::new(receivers);
        let mut known = vec![Known { watermark: None, idle: false, ended: false }; inputs];
        let (mut last, mut idle) = (None, false);
        for (input, envelope) in sent {
            let input = input % inputs;
            if known[input].ended {
                continue;
            }
            note(&mut known[input], &envelope);
            senders[input].try_send(envelope).unwrap();

            let mut expected = Vec::new();
            let open = known.iter().filter(|input| !input.ended).count();
            let idle_now =
                if open == 0 { idle } else { known.iter().all(|one| one.idle || one.ended) };
            expected.extend((idle && !idle_now).then_some(GateEvent::Active));
            if let Some(grown) = minimum(&known).filter(|&now| Some(now) > last) {
                last = Some(grown);
                expected.push(GateEvent::Watermark(grown));
            }
            expected.extend((!idle && idle_now).then_some(GateEvent::Idle));
            expected.extend((open == 0).then_some(GateEvent::End));
            idle = idle_now;

            let next = || match gate.try_next(Duration::ZERO) {
                Poll::Ready(event) => Some(event),
                Poll::Pending => None,
            };
            prop_assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), expected);
        }
    }
}
