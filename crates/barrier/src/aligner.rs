//! The decision when a task has seen a barrier on all of its inputs. Pure: it is told what an input
//! delivered and answers with [`Step`]s.
//!
//! # Rules
//!
//! Every edge delivers ids in growing order. An input is *open* until its end has come.
//!
//! 1. *Aligned:* an input is blocked from its barrier until all open inputs have delivered theirs.
//!    Then comes the snapshot, then all inputs are released.
//! 2. A barrier with a newer id shows that an older, aligned one cannot become complete: the input
//!    that delivered it has moved on. The older is aborted, its inputs are released, and the newer
//!    begins with that one input blocked.
//! 3. A barrier whose id has been decided, or passed over by a newer one, is swallowed. It never
//!    blocks.
//! 4. A cancel marker aborts its checkpoint, known or not yet known, and releases the inputs. Later
//!    barriers and markers of that id are swallowed; the abort is reported once. A marker of a newer
//!    id ends an older alignment for the reason of rule 2.
//! 5. An end counts as the barrier of every pending and every future checkpoint, once, and an ended
//!    input never blocks.
//! 6. *At-least-once:* no input is blocked and several checkpoints may be pending. When one is
//!    complete, every older pending one is aborted. At most 50 are pending; the oldest gives way.
//! 7. With a single open input the alignment takes no time.
//! 8. When all inputs have ended nothing is pending and nothing new begins.
//!
//! An idle input is open like any other: alignment waits for its barrier.
//!
//! The alignment of a checkpoint is that of the first of its barriers to arrive. Aligned and
//! at-least-once checkpoints may follow each other in any order; each keeps to its own rules.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Alignment, Barrier, CheckpointId};

/// How many checkpoints may be pending at once. More are pending only if some input is that many
/// barriers behind another, and then the oldest is of no use to anybody.
const PENDING_MAX: usize = 50;

/// The alignment of one task's inputs.
#[derive(Debug)]
pub struct Aligner {
    /// Per input, whether its end has come.
    ended: Vec<bool>,
    /// Invariant: how many inputs have not ended.
    open: usize,
    /// Invariant: ascending ids, and only the last may be aligned.
    pending: VecDeque<Pending>,
    /// Invariant: every id at or below this one that is not pending has been decided here.
    newest: Option<CheckpointId>,
}

/// What the owner of the inputs has to do, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take nothing more from this input until [`Step::Unblock`].
    Block(usize),
    /// Take from all inputs again.
    Unblock,
    /// Take the snapshot: everything before the barrier has been delivered.
    Snapshot {
        /// The barrier, to be passed on.
        barrier: Barrier,
        /// How it was waited for.
        alignment: AlignmentStats,
    },
    /// No snapshot of this checkpoint will be taken here.
    Abort {
        /// The checkpoint.
        id: CheckpointId,
        /// Why.
        reason: AbortReason,
    },
}

/// Why an alignment came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortReason {
    /// A newer checkpoint took its place.
    Subsumed {
        /// The newer one.
        by: CheckpointId,
    },
    /// A cancel marker came.
    Cancelled,
}

/// How a checkpoint's barriers were waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlignmentStats {
    /// When the first barrier came; monotonic time, on the clock of the `now` that was passed in.
    pub started: Duration,
    /// From the first barrier to the last.
    pub alignment: Duration,
    /// The input that was waited for last.
    pub last_input: usize,
}

impl AlignmentStats {
    /// From the trigger to the first barrier: how long the barrier was under way. `now` and
    /// `now_ms` (Unix milliseconds) are one moment on both clocks; a wall clock that stands before
    /// the trigger gives zero.
    #[must_use]
    pub const fn start_delay(&self, barrier: Barrier, now: Duration, now_ms: u64) -> Duration {
        let since_trigger = Duration::from_millis(now_ms.saturating_sub(barrier.triggered_ms));
        since_trigger.saturating_sub(now.saturating_sub(self.started))
    }
}

impl Aligner {
    /// An aligner of this many inputs, all open.
    #[must_use]
    pub fn new(inputs: usize) -> Self {
        Self { ended: vec![false; inputs], open: inputs, pending: VecDeque::new(), newest: None }
    }

    /// The input has delivered a barrier. Appends what follows from it to `steps`.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn barrier(
        &mut self,
        input: usize,
        barrier: Barrier,
        now: Duration,
        steps: &mut Vec<Step>,
    ) {
        if *self.ended(input) {
            return;
        }
        if let Some(position) = self.position(barrier.id) {
            self.arrive(position, input, now, steps);
        } else if self.is_new(barrier.id) {
            self.begin(barrier, now, steps);
            self.arrive(self.pending.len() - 1, input, now, steps);
        }
    }

    /// The input has delivered a cancel marker. Appends what follows from it to `steps`.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn cancel(&mut self, input: usize, id: CheckpointId, steps: &mut Vec<Step>) {
        if *self.ended(input) {
            return;
        }
        if let Some(cancelled) =
            self.position(id).and_then(|position| self.pending.remove(position))
        {
            cancelled.abort(AbortReason::Cancelled, steps);
        } else if self.is_new(id) {
            self.pass_over(id, steps);
            steps.push(Step::Abort { id, reason: AbortReason::Cancelled });
        }
    }

    /// The input has ended. Appends what follows from it to `steps`. A second end changes nothing.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn end(&mut self, input: usize, now: Duration, steps: &mut Vec<Step>) {
        if std::mem::replace(self.ended(input), true) {
            return;
        }
        self.open -= 1;
        for pending in &mut self.pending {
            pending.mark(input);
        }
        while let Some(position) = self.pending.iter().position(|pending| pending.missing == 0) {
            self.complete(position, input, now, steps);
        }
    }

    fn ended(&mut self, input: usize) -> &mut bool {
        self.ended.get_mut(input).expect("the input is one of this aligner's")
    }

    fn position(&self, id: CheckpointId) -> Option<usize> {
        self.pending.iter().position(|pending| pending.barrier.id == id)
    }

    fn is_new(&self, id: CheckpointId) -> bool {
        self.newest.is_none_or(|newest| newest < id)
    }

    fn begin(&mut self, barrier: Barrier, now: Duration, steps: &mut Vec<Step>) {
        self.pass_over(barrier.id, steps);
        if self.pending.len() == PENDING_MAX {
            self.subsume_oldest(1, barrier.id, steps);
        }
        self.pending.push_back(Pending {
            barrier,
            delivered: vec![false; self.ended.len()],
            missing: self.open,
            blocking: false,
            started: now,
        });
    }

    /// Some input has gone on to `newer`: an older alignment cannot become complete.
    fn pass_over(&mut self, newer: CheckpointId, steps: &mut Vec<Step>) {
        self.newest = Some(newer);
        if self.pending.back().is_some_and(Pending::is_aligned) {
            let older = self.pending.pop_back().expect("it was just looked at");
            older.abort(AbortReason::Subsumed { by: newer }, steps);
        }
    }

    fn arrive(&mut self, position: usize, input: usize, now: Duration, steps: &mut Vec<Step>) {
        let pending = self.pending.get_mut(position).expect("the position was just found");
        if !pending.mark(input) {
            return;
        }
        if pending.missing == 0 {
            self.complete(position, input, now, steps);
        } else if pending.is_aligned() {
            pending.blocking = true;
            steps.push(Step::Block(input));
        }
    }

    fn complete(&mut self, position: usize, input: usize, now: Duration, steps: &mut Vec<Step>) {
        let id = self.pending.get(position).expect("the position was just found").barrier.id;
        self.subsume_oldest(position, id, steps);
        let complete = self.pending.pop_front().expect("the older ones are gone, this one is left");
        steps.push(complete.snapshot(input, now));
        complete.release(steps);
    }

    fn subsume_oldest(&mut self, count: usize, by: CheckpointId, steps: &mut Vec<Step>) {
        for older in self.pending.drain(..count) {
            older.abort(AbortReason::Subsumed { by }, steps);
        }
    }
}

/// A checkpoint some but not all of whose barriers have come.
#[derive(Debug)]
struct Pending {
    barrier: Barrier,
    /// Per input, whether its barrier, or its end after the first barrier, has come.
    delivered: Vec<bool>,
    /// Invariant: how many open inputs have not delivered.
    missing: usize,
    /// Whether an input was blocked for it.
    blocking: bool,
    started: Duration,
}

impl Pending {
    fn is_aligned(&self) -> bool {
        self.barrier.options.alignment == Alignment::Aligned
    }

    /// Notes the barrier or the end of an open input; `false` if it was counted before.
    fn mark(&mut self, input: usize) -> bool {
        let delivered = self.delivered.get_mut(input).expect("one flag for every input");
        let first = !std::mem::replace(delivered, true);
        self.missing -= usize::from(first);
        first
    }

    const fn snapshot(&self, last_input: usize, now: Duration) -> Step {
        let alignment = AlignmentStats {
            started: self.started,
            alignment: now.saturating_sub(self.started),
            last_input,
        };
        Step::Snapshot { barrier: self.barrier, alignment }
    }

    fn abort(self, reason: AbortReason, steps: &mut Vec<Step>) {
        steps.push(Step::Abort { id: self.barrier.id, reason });
        self.release(steps);
    }

    fn release(self, steps: &mut Vec<Step>) {
        if self.blocking {
            steps.push(Step::Unblock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CheckpointKind, CheckpointOptions};

    /// Feeds a script to an aligner of `inputs` inputs and compares the steps. One event per word,
    /// one millisecond apart: `a:3` an aligned barrier, `a:~3` an at-least-once one, `a:x3` a cancel
    /// marker, `a:end`. In what follows, `snapshot 3 b+2` was completed by input b after 2 ms.
    #[track_caller]
    fn check(inputs: usize, script: &str, expected: &str) {
        let mut aligner = Aligner::new(inputs);
        let mut steps = Vec::new();
        for (now_ms, event) in (0..).zip(script.split_whitespace()) {
            feed(&mut aligner, event, Duration::from_millis(now_ms), &mut steps);
        }
        let steps: Vec<_> = steps.into_iter().map(describe).collect();
        assert_eq!(steps.join(", "), expected, "script: {script}");
    }

    fn feed(aligner: &mut Aligner, event: &str, now: Duration, steps: &mut Vec<Step>) {
        let (input, event) = event.split_once(':').unwrap();
        let input = usize::from(input.as_bytes()[0] - b'a');
        if event == "end" {
            aligner.end(input, now, steps);
        } else if let Some(id) = event.strip_prefix('x') {
            aligner.cancel(input, CheckpointId(id.parse().unwrap()), steps);
        } else if let Some(id) = event.strip_prefix('~') {
            aligner.barrier(input, barrier(id, Alignment::AtLeastOnce), now, steps);
        } else {
            aligner.barrier(input, barrier(event, Alignment::Aligned), now, steps);
        }
    }

    fn barrier(id: &str, alignment: Alignment) -> Barrier {
        Barrier {
            id: CheckpointId(id.parse().unwrap()),
            triggered_ms: 0,
            base: None,
            options: CheckpointOptions::new(CheckpointKind::Checkpoint, alignment),
        }
    }

    fn letter(input: usize) -> char {
        char::from(b'a' + u8::try_from(input).unwrap())
    }

    fn describe(step: Step) -> String {
        match step {
            Step::Block(input) => format!("block {}", letter(input)),
            Step::Unblock => "unblock".into(),
            Step::Snapshot { barrier, alignment } => format!(
                "snapshot {} {}+{}",
                barrier.id,
                letter(alignment.last_input),
                alignment.alignment.as_millis()
            ),
            Step::Abort { id, reason: AbortReason::Cancelled } => format!("cancelled {id}"),
            Step::Abort { id, reason: AbortReason::Subsumed { by } } => {
                format!("{id} gives way to {by}")
            }
        }
    }

    #[test]
    fn rule_1_an_input_is_blocked_until_all_have_the_barrier() {
        check(2, "a:1 b:1", "block a, snapshot 1 b+1, unblock");
        check(3, "c:1 a:1 b:1", "block c, block a, snapshot 1 b+2, unblock");
        check(
            2,
            "a:1 b:1 b:2 a:2",
            "block a, snapshot 1 b+1, unblock, block b, snapshot 2 a+1, unblock",
        );
        check(2, "a:1 a:1", "block a");
    }

    #[test]
    fn rule_2_a_newer_barrier_ends_an_older_alignment() {
        check(2, "a:1 b:2", "block a, 1 gives way to 2, unblock, block b");
        check(
            2,
            "a:1 b:2 a:2",
            "block a, 1 gives way to 2, unblock, block b, snapshot 2 a+1, unblock",
        );
        check(3, "a:1 b:1 c:5", "block a, block b, 1 gives way to 5, unblock, block c");
        check(2, "a:1 b:~2", "block a, 1 gives way to 2, unblock");
    }

    #[test]
    fn rule_3_decided_and_passed_over_barriers_are_swallowed() {
        check(2, "a:2 b:2 a:2 b:1 a:1", "block a, snapshot 2 b+1, unblock");
        check(2, "a:3 b:2", "block a");
        check(2, "a:1 b:2 a:1", "block a, 1 gives way to 2, unblock, block b");
        check(1, "a:2 a:1 a:2", "snapshot 2 a+0");
    }

    #[test]
    fn rule_4_a_cancel_marker_releases_and_is_reported_once() {
        check(2, "a:1 b:x1", "block a, cancelled 1, unblock");
        check(2, "a:x1 b:1 b:x1 a:x1", "cancelled 1");
        check(2, "a:1 b:x1 a:x1 a:1 b:2", "block a, cancelled 1, unblock, block b");
        check(2, "a:1 b:x2", "block a, 1 gives way to 2, unblock, cancelled 2");
        check(2, "a:1 b:x2 b:2 a:2", "block a, 1 gives way to 2, unblock, cancelled 2");
        check(2, "a:2 b:x1", "block a");
        check(2, "a:~1 b:~2 b:x2 a:~2", "cancelled 2");
        check(2, "a:~1 a:x2 b:~1", "cancelled 2, snapshot 1 b+2");
    }

    #[test]
    fn rule_5_an_end_counts_as_the_barrier_of_pending_and_future_checkpoints() {
        check(2, "a:1 b:end", "block a, snapshot 1 b+1, unblock");
        check(2, "b:end a:1 a:2", "snapshot 1 a+0, snapshot 2 a+0");
        check(3, "a:1 a:end b:1", "block a, block b");
        check(3, "a:1 a:end b:1 c:1", "block a, block b, snapshot 1 c+3, unblock");
        check(3, "a:1 b:end b:end b:1", "block a");
        check(2, "a:~1 a:~2 b:end", "snapshot 1 b+2, snapshot 2 b+1");
        check(3, "a:~1 b:~2 c:~2 a:end", "1 gives way to 2, snapshot 2 a+2");
    }

    #[test]
    fn rule_6_at_least_once_never_blocks_and_the_newest_complete_one_wins() {
        check(2, "a:~1 b:~1", "snapshot 1 b+1");
        check(2, "a:~1 a:~2 b:~1 b:~2", "snapshot 1 b+2, snapshot 2 b+2");
        check(2, "a:~1 a:~2 b:~2 b:~1", "1 gives way to 2, snapshot 2 b+1");
        check(3, "a:~1 a:~2 a:~3 b:~3 c:~3", "1 gives way to 3, 2 gives way to 3, snapshot 3 c+2");
        check(2, "a:~1 a:~1", "");
        check(2, "a:~1 a:~2 b:~2 a:~1 b:~1", "1 gives way to 2, snapshot 2 b+1");
    }

    #[test]
    fn rule_6_the_fifty_first_pending_one_drives_out_the_oldest() {
        let fifty: Vec<_> = (1..=50).map(|id| format!("a:~{id}")).collect();
        let fifty = fifty.join(" ");
        check(2, &fifty, "");
        check(2, &format!("{fifty} a:~51"), "1 gives way to 51");
        check(2, &format!("{fifty} a:~51 b:~1 b:~2"), "1 gives way to 51, snapshot 2 b+51");
    }

    #[test]
    fn rule_7_a_single_open_input_aligns_at_once() {
        check(1, "a:1 a:~2", "snapshot 1 a+0, snapshot 2 a+0");
        check(3, "a:end c:end b:7", "snapshot 7 b+0");
    }

    #[test]
    fn rule_8_nothing_begins_after_the_last_end() {
        check(2, "a:1 b:end a:end a:2 b:x3", "block a, snapshot 1 b+1, unblock");
        check(1, "a:end a:1", "");
    }

    #[test]
    fn the_first_barrier_decides_how_to_align() {
        check(2, "a:1 b:~1", "block a, snapshot 1 b+1, unblock");
        check(3, "a:~1 b:1 c:1", "snapshot 1 c+2");
    }

    #[test]
    fn an_aligned_one_may_follow_pending_at_least_once_ones() {
        check(2, "a:~1 a:2 b:~1 b:2", "block a, snapshot 1 b+2, snapshot 2 b+2, unblock");
        check(2, "a:~1 a:2 b:2", "block a, 1 gives way to 2, snapshot 2 b+1, unblock");
        check(2, "a:~1 a:2 b:x1 b:2", "block a, cancelled 1, snapshot 2 b+2, unblock");
    }

    #[test]
    fn the_start_delay_ends_with_the_first_barrier() {
        let stats = AlignmentStats {
            started: Duration::from_millis(70),
            alignment: Duration::from_millis(20),
            last_input: 0,
        };
        let barrier = Barrier { triggered_ms: 1_000, ..barrier("1", Alignment::Aligned) };
        let delay = |now_ms| stats.start_delay(barrier, Duration::from_millis(90), now_ms);
        assert_eq!(delay(1_050), Duration::from_millis(30));
        assert_eq!(delay(900), Duration::ZERO);
    }
}
