//! The end of a chain: a two-phase sink.

use strandline_barrier::{Barrier, CheckpointId};
use strandline_state::Entries;

use crate::Result;
use crate::checkpointing::{TaskSnapshot, encode_value};
use crate::link::{Flushed, Link, Signal};
use crate::operator::name_operator;
use crate::sink::{Committable, SinkWriter};

/// Stages records, and commits them when their checkpoint has been completed.
pub(crate) struct SinkLink<W> {
    name: String,
    section: String,
    writer: W,
    /// Staged and not yet committed, by checkpoint.
    pending: Vec<Committable>,
}

impl<W> SinkLink<W> {
    pub(crate) fn new(name: &str, section: String, writer: W) -> Self {
        Self { name: name.to_owned(), section, writer, pending: Vec::new() }
    }
}

impl<W: SinkWriter> SinkLink<W> {
    fn freeze(&mut self, barrier: &Barrier, snapshot: &mut TaskSnapshot) -> Result<()> {
        let prepared = self.writer.prepare(barrier.id)?;
        self.pending.extend(prepared.committables);
        snapshot.durable(prepared.make_durable);
        let entries = self
            .pending
            .iter()
            .map(|pending| Ok((pending.name.clone().into_bytes(), encode_value(pending)?)))
            .collect::<Result<Entries>>()?;
        snapshot.section(&self.section, entries);
        Ok(())
    }

    /// A checkpoint covers all before it: notices may be missed.
    fn commit(&mut self, id: CheckpointId) -> Result<()> {
        let (now, later) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|pending| pending.checkpoint <= id);
        self.pending = later;
        let now: Vec<Committable> = now;
        if now.is_empty() { Ok(()) } else { self.writer.commit(&now) }
    }
}

impl<W: SinkWriter> Link<W::Record> for SinkLink<W> {
    fn batch(&mut self, batch: &mut Vec<W::Record>) -> Result<()> {
        self.writer.write(batch).map_err(|error| name_operator(error, &self.name))
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        let done = match signal {
            Signal::Barrier(barrier, snapshot) | Signal::Snapshot(barrier, snapshot) => {
                self.freeze(barrier, snapshot)
            }
            Signal::Completed(id) => self.commit(*id),
            // What a restored checkpoint names has been committed before any task ran.
            Signal::Restore(_)
            | Signal::Splits(_)
            | Signal::Split(_)
            | Signal::SplitEnd(_)
            | Signal::Watermark(_)
            | Signal::Idle
            | Signal::Active
            | Signal::Cancel(_)
            | Signal::End => Ok(()),
        };
        done.map_err(|error| name_operator(error, &self.name))
    }

    fn flush(&mut self) -> Result<Flushed> {
        Ok(Flushed::Empty)
    }
}
