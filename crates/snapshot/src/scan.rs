//! Many runs as one table: at every key the newest run that speaks for it decides.
//!
//! The slices of runs are opened when the scan comes to where they begin. Those that are open are
//! kept in the order of the keys at hand, the newer first among equals, so that most of a table,
//! where only its base has something to say, is read without a comparison.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::Result;
use crate::chunk::{Stop, Value, VisitValue, leading};
use crate::ranges::KeyRange;
use crate::run::{OpenRun, RunCursor};

/// A run within one of its ranges.
pub(crate) struct Slice {
    /// Place of the run in its section: the newer, the higher.
    pub(crate) age: usize,
    pub(crate) range: KeyRange,
    /// Its index is read when the scan comes to it.
    pub(crate) run: Arc<OpenRun>,
}

/// Goes through slices in the order of keys.
pub(crate) struct Scan {
    /// Not begun; the next one is the last.
    waiting: Vec<Slice>,
    /// In the order of their keys, the newer first among equals.
    open: Vec<Open>,
}

struct Open {
    age: usize,
    /// The beginning of the key at hand, for quick comparisons.
    leading: u64,
    cursor: RunCursor,
}

impl Open {
    fn order(&self, other: &Self) -> Ordering {
        let keys = || self.cursor.key().cmp(other.cursor.key());
        self.leading.cmp(&other.leading).then_with(keys).then(other.age.cmp(&self.age))
    }
}

impl Scan {
    pub(crate) fn new(mut slices: Vec<Slice>) -> Self {
        slices.sort_by(|a, b| b.range.first().cmp(a.range.first()));
        Self { waiting: slices, open: Vec::new() }
    }

    /// Visits what is left.
    pub(crate) fn visit(&mut self, visit: &mut VisitValue<'_>) -> Result<ControlFlow<()>> {
        while self.begin_slices()? {
            let ended = match &self.open[..] {
                [_] => self.visit_one(visit)?,
                _ => self.visit_smallest(visit)?,
            };
            if ended.is_break() {
                return Ok(ended);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Opens the slices that begin at or below the smallest key; false if nothing is left.
    fn begin_slices(&mut self) -> Result<bool> {
        while let Some(next) = self.waiting.last() {
            let reached =
                self.open.first().is_none_or(|open| next.range.first() <= open.cursor.key());
            if !reached {
                break;
            }
            let Some(slice) = self.waiting.pop() else { break };
            let mut cursor = slice.run.cursor(slice.range)?;
            if cursor.first()? {
                let leading = leading(cursor.key());
                self.insert(Open { age: slice.age, leading, cursor });
            }
        }
        Ok(!self.open.is_empty())
    }

    /// While one slice is alone: its entries up to where the next one begins.
    fn visit_one(&mut self, visit: &mut VisitValue<'_>) -> Result<ControlFlow<()>> {
        let next = self.waiting.last().map(|slice| slice.range.first());
        let Some(open) = self.open.first_mut() else {
            return Ok(ControlFlow::Continue(()));
        };
        match open.cursor.visit(next, visit)? {
            ControlFlow::Continue(()) => self.open.clear(),
            ControlFlow::Break(Stop::Visitor) => return Ok(ControlFlow::Break(())),
            ControlFlow::Break(Stop::Key) => open.leading = leading(open.cursor.key()),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The smallest key of all that are open; older entries of it are skipped.
    fn visit_smallest(&mut self, visit: &mut VisitValue<'_>) -> Result<ControlFlow<()>> {
        let ended = match self.entry() {
            Some((key, value)) => visit(key, value),
            None => ControlFlow::Break(()),
        };
        self.pass_smallest()?;
        Ok(ended)
    }

    /// Goes to the first entry, for those who take one after the other; false if there is none.
    pub(crate) fn first(&mut self) -> Result<bool> {
        self.begin_slices()
    }

    /// Goes to the next entry; false at the end.
    pub(crate) fn next(&mut self) -> Result<bool> {
        self.pass_smallest()?;
        self.begin_slices()
    }

    /// The entry at hand.
    pub(crate) fn entry(&self) -> Option<(&[u8], Value<'_>)> {
        self.open.first().map(|open| (open.cursor.key(), open.cursor.value()))
    }

    /// Leaves the smallest key, and older entries of it.
    fn pass_smallest(&mut self) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let mut newest = self.open.remove(0);
        while let Some(older) = self.open.first()
            && older.leading == newest.leading
            && older.cursor.key() == newest.cursor.key()
        {
            let older = self.open.remove(0);
            self.advance(older)?;
        }
        if newest.cursor.next()? {
            newest.leading = leading(newest.cursor.key());
            self.insert(newest);
        }
        Ok(())
    }

    fn advance(&mut self, mut open: Open) -> Result<()> {
        if open.cursor.next()? {
            open.leading = leading(open.cursor.key());
            self.insert(open);
        }
        Ok(())
    }

    fn insert(&mut self, new: Open) {
        let at = self.open.partition_point(|open| open.order(&new) == Ordering::Less);
        self.open.insert(at, new);
    }
}
