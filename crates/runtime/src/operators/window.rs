//! Tumbling windows of event time.
//!
//! State is one accumulator per (key, window). A window fires once, when the watermark has passed
//! its last millisecond; its state is then gone. A record whose window has fired is late: it is
//! counted and goes to the late output. The time that the operator has reached is part of its
//! state, so a restored job fires nothing twice and calls the same records late.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use strandline_barrier::Barrier;
use strandline_state::{Entries, KeyHash, keyed};

use crate::Result;
use crate::checkpointing::{Restored, TaskSnapshot, Tracked, decode_value, encode_value};
use crate::link::{BoxLink, Flushed, Link, Signal};
use crate::operator::name_operator;
use crate::operators::exchange::Keyed;
use crate::operators::keyed::{Key, StateValue};
use crate::operators::timestamps::Timed;

/// Results are handed on when there are at least this many, or no more are due.
const BATCH_RECORDS: usize = 1024;

/// A span of event time: from `start_ms` on, before `end_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Window {
    /// First millisecond, Unix time.
    pub start_ms: i64,
    /// First millisecond after it.
    pub end_ms: i64,
}

impl Window {
    /// The tumbling window of `size_ms` that holds `at_ms`; windows are aligned to the epoch.
    #[must_use]
    pub fn tumbling(at_ms: i64, size_ms: i64) -> Self {
        let start_ms = at_ms.saturating_sub(at_ms.rem_euclid(size_ms));
        Self { start_ms, end_ms: start_ms.saturating_add(size_ms) }
    }

    /// Whether a watermark has passed all of it.
    fn is_over(&self, watermark_ms: i64) -> bool {
        watermark_ms >= self.end_ms.saturating_sub(1)
    }
}

/// Folds the records of a window into one result.
pub trait Aggregate: Send + 'static {
    /// The records.
    type In: Send + 'static;
    /// The key of the stream.
    type Key;
    /// What is kept per key and window.
    type Accumulator: StateValue + Default;
    /// The result.
    type Out: Send + 'static;

    /// Takes one record in.
    fn add(&self, record: Self::In, accumulator: &mut Self::Accumulator);

    /// The result of a window that has ended.
    fn result(&self, key: &Self::Key, window: Window, accumulator: Self::Accumulator) -> Self::Out;
}

/// The window operator of one subtask.
pub(crate) struct TumblingWindows<K, A: Aggregate> {
    pub(crate) name: String,
    pub(crate) subtask: u32,
    pub(crate) size_ms: i64,
    pub(crate) aggregate: A,
    pub(crate) sections: Sections,
    pub(crate) late_count: Arc<AtomicU64>,
    pub(crate) next: BoxLink<A::Out>,
    pub(crate) late: BoxLink<A::In>,
    pub(crate) state: State<K, A>,
}

/// The names under which the state is kept.
pub(crate) struct Sections {
    pub(crate) windows: String,
    pub(crate) time: String,
}

/// What the operator remembers, and an index over it.
pub(crate) struct State<K, A: Aggregate> {
    tracked: Tracked<(K, Window), A::Accumulator>,
    /// Keys by the end of their window: what fires next. Made from the table at a restore.
    due: BTreeMap<i64, Vec<Due<K>>>,
    watermark_ms: i64,
    out: Vec<A::Out>,
    late: Vec<A::In>,
}

/// One accumulator that is due, as the table finds it.
type Due<K> = (KeyHash, (K, Window));

impl<K: Key, A: Aggregate> State<K, A> {
    pub(crate) fn new() -> Self {
        Self {
            tracked: Tracked::new(),
            due: BTreeMap::new(),
            watermark_ms: i64::MIN,
            out: Vec::new(),
            late: Vec::new(),
        }
    }
}

impl<K: Key, A: Aggregate<Key = K>> TumblingWindows<K, A> {
    fn add(&mut self, hash: KeyHash, key: K, timed: Timed<A::In>) {
        let window = Window::tumbling(timed.at_ms, self.size_ms);
        let state = &mut self.state;
        if window.is_over(state.watermark_ms) {
            state.late.push(timed.value);
            return;
        }
        let entry = (key, window);
        let due = &mut state.due;
        let accumulator = state.tracked.table.get_or_insert_with(hash, &entry, || {
            due.entry(window.end_ms).or_default().push((hash, entry.clone()));
            A::Accumulator::default()
        });
        self.aggregate.add(timed.value, accumulator);
    }

    fn send_late(&mut self) -> Result<()> {
        if self.state.late.is_empty() {
            return Ok(());
        }
        // Relaxed: a count that is only read, with no other memory depending on it.
        self.late_count.fetch_add(self.state.late.len() as u64, Ordering::Relaxed);
        self.late.batch(&mut self.state.late)
    }

    fn fire(&mut self, watermark_ms: i64) -> Result<()> {
        let state = &mut self.state;
        state.watermark_ms = state.watermark_ms.max(watermark_ms);
        while let Some(first) = state.due.first_entry() {
            if state.watermark_ms < first.key().saturating_sub(1) {
                break;
            }
            let due = first.remove();
            state.out.extend(due.into_iter().filter_map(|(hash, entry)| {
                let accumulator = state.tracked.table.remove(hash, &entry)?;
                Some(self.aggregate.result(&entry.0, entry.1, accumulator))
            }));
            if state.out.len() >= BATCH_RECORDS {
                self.next.batch(&mut state.out)?;
            }
        }
        if state.out.is_empty() { Ok(()) } else { self.next.batch(&mut state.out) }
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let State { tracked, due, watermark_ms, .. } = &mut self.state;
        tracked.restored(restored);
        restored.keyed(&self.sections.windows, |hash, key: K, window: Window, value| {
            due.entry(window.end_ms).or_default().push((hash, (key.clone(), window)));
            tracked.table.restore(hash, (key, window), value);
        })?;
        // Each subtask kept the time that it had reached. At an aligned cut these are equal, since
        // every subtask has had the same watermarks from the same inputs by then; where inputs
        // were not held back the earliest is the safe one.
        let mut reached: Option<i64> = None;
        restored.entries(&self.sections.time, |_, value| {
            let time: i64 = decode_value(value)?;
            reached = Some(reached.map_or(time, |earlier| earlier.min(time)));
            Ok(())
        })?;
        *watermark_ms = reached.unwrap_or(i64::MIN);
        Ok(())
    }

    fn freeze(&mut self, barrier: &Barrier, snapshot: &mut TaskSnapshot) -> Result<()> {
        self.state.tracked.freeze(barrier, &self.sections.windows, snapshot, keyed);
        let subtask = self.subtask.to_le_bytes().to_vec();
        let time = encode_value(&self.state.watermark_ms)?;
        snapshot.section(&self.sections.time, [(subtask, time)].into_iter().collect::<Entries>());
        Ok(())
    }
}

impl<K: Key, A: Aggregate<Key = K>> Link<Keyed<K, Timed<A::In>>> for TumblingWindows<K, A> {
    fn batch(&mut self, batch: &mut Vec<Keyed<K, Timed<A::In>>>) -> Result<()> {
        for Keyed { hash, key, value } in batch.drain(..) {
            self.add(hash, key, value);
        }
        self.send_late()
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        let done = match signal {
            Signal::Restore(restored) => self.restore(restored),
            Signal::Watermark(time) => self.fire(*time),
            Signal::End => self.fire(i64::MAX),
            Signal::Barrier(barrier, snapshot) | Signal::Snapshot(barrier, snapshot) => {
                self.freeze(barrier, snapshot)
            }
            Signal::Splits(_)
            | Signal::Split(_)
            | Signal::SplitEnd(_)
            | Signal::Completed(_)
            | Signal::Idle
            | Signal::Active
            | Signal::Cancel(_) => Ok(()),
        };
        done.map_err(|error| name_operator(error, &self.name))?;
        self.next.signal(signal)?;
        self.late.signal(signal)
    }

    fn flush(&mut self) -> Result<Flushed> {
        Ok(self.next.flush()?.and(self.late.flush()?))
    }
}
