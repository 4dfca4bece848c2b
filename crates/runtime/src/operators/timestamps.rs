//! Event time: takes it from each record and makes watermarks of it.
//!
//! Disorder is bounded per split: the watermark of a split is its newest time less the bound, and
//! that of the subtask is the smallest of its splits that have not ended. The newest time of each
//! split is kept in the checkpoint, so that a restored job calls the same records late.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strandline_state::Entries;

use crate::Result;
use crate::checkpointing::{Restored, TaskSnapshot, decode_value, encode_value};
use crate::link::{BoxLink, Flushed, Link, Signal};

/// A record with its event time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed<T> {
    /// Event time, milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The record.
    pub value: T,
}

/// Gives each record its event time, and the stream its watermarks.
pub(crate) struct Timestamps<T, F> {
    section: String,
    time: F,
    max_lateness_ms: i64,
    /// Newest event time by split name; `None` before the first record.
    splits: Vec<Split>,
    restored: BTreeMap<Vec<u8>, i64>,
    current: usize,
    emitted_ms: i64,
    out: Vec<Timed<T>>,
    next: BoxLink<Timed<T>>,
}

struct Split {
    name: String,
    newest_ms: Option<i64>,
    ended: bool,
}

impl<T, F> Timestamps<T, F> {
    pub(crate) fn new(
        section: String,
        time: F,
        max_lateness_ms: i64,
        next: BoxLink<Timed<T>>,
    ) -> Self {
        Self {
            section,
            time,
            max_lateness_ms,
            splits: Vec::new(),
            restored: BTreeMap::new(),
            current: 0,
            emitted_ms: i64::MIN,
            out: Vec::new(),
            next,
        }
    }

    fn name_splits(&mut self, names: &[String]) {
        let split = |name: &String| Split {
            name: name.clone(),
            newest_ms: self.restored.get(name.as_bytes()).copied(),
            ended: false,
        };
        self.splits = names.iter().map(split).collect();
    }

    /// The subtask's watermark; `None` while a split has not said anything.
    fn watermark(&self) -> Option<i64> {
        let open = self.splits.iter().filter(|split| !split.ended);
        let oldest = open.map(|split| split.newest_ms).min().flatten()?;
        Some(oldest.saturating_sub(self.max_lateness_ms).saturating_sub(1))
    }

    fn emit(&mut self) -> Result<()> {
        match self.watermark() {
            Some(time) if time > self.emitted_ms => {
                self.emitted_ms = time;
                self.next.signal(&mut Signal::Watermark(time))
            }
            _ => Ok(()),
        }
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let newest = &mut self.restored;
        restored.entries(&self.section, |split, value| {
            newest.insert(split.to_vec(), decode_value(value)?);
            Ok(())
        })
    }

    fn freeze(&self, snapshot: &mut TaskSnapshot) -> Result<()> {
        let kept = self.splits.iter().filter_map(|split| {
            split
                .newest_ms
                .map(|newest| Ok((split.name.clone().into_bytes(), encode_value(&newest)?)))
        });
        snapshot.section(&self.section, kept.collect::<Result<Entries>>()?);
        Ok(())
    }
}

impl<T, F> Link<T> for Timestamps<T, F>
where
    T: Send,
    F: FnMut(&T) -> i64 + Send,
{
    fn batch(&mut self, batch: &mut Vec<T>) -> Result<()> {
        let Some(split) = self.splits.get_mut(self.current) else {
            return Ok(());
        };
        for value in batch.drain(..) {
            let at_ms = (self.time)(&value);
            split.newest_ms = split.newest_ms.max(Some(at_ms));
            self.out.push(Timed { at_ms, value });
        }
        self.next.batch(&mut self.out)?;
        self.emit()
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        match signal {
            Signal::Restore(restored) => self.restore(restored)?,
            Signal::Splits(names) => {
                self.name_splits(names);
                self.next.signal(signal)?;
                return self.emit();
            }
            Signal::Split(index) => self.current = *index,
            Signal::SplitEnd(index) => {
                if let Some(split) = self.splits.get_mut(*index) {
                    split.ended = true;
                }
                self.next.signal(signal)?;
                return self.emit();
            }
            Signal::Barrier(_, snapshot) | Signal::Snapshot(_, snapshot) => {
                self.freeze(snapshot)?;
            }
            // The watermarks of this operator replace those from upstream.
            Signal::Watermark(_) | Signal::Idle | Signal::Active => return Ok(()),
            Signal::Completed(_) | Signal::Cancel(_) | Signal::End => {}
        }
        self.next.signal(signal)
    }

    fn flush(&mut self) -> Result<Flushed> {
        self.next.flush()
    }
}
