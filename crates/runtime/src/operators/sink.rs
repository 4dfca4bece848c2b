//! The end of a chain: a two-phase sink.

use std::sync::Arc;

use parking_lot::Mutex;
use strandline_barrier::{Barrier, CheckpointId};
use strandline_state::Entries;

use crate::checkpointing::{TaskSnapshot, encode_value};
use crate::link::{Flushed, Link, Signal};
use crate::operator::name_operator;
use crate::sink::{Committable, MakeDurable, Prepared, SinkWriter};
use crate::{Error, ErrorKind, Result};

/// Stages records, and commits them when their checkpoint has been completed.
pub(crate) struct SinkLink<W> {
    name: String,
    section: String,
    subtask: u32,
    writer: W,
    /// Staged and not yet committed, by checkpoint.
    pending: Vec<Staged>,
}

/// What was staged for one checkpoint. It outlives a checkpoint that fails: the next one names it
/// too, and must not complete before it is durable.
struct Staged {
    checkpoint: CheckpointId,
    committables: Vec<Committable>,
    durability: Arc<Mutex<Durability>>,
}

/// Whether staged output has been synced.
enum Durability {
    NotYet(MakeDurable),
    Durable,
    /// A sync that has failed is not tried again: a second one may succeed without the bytes.
    Never(String),
}

impl Staged {
    fn new(checkpoint: CheckpointId, prepared: Prepared) -> Self {
        let durability = Durability::NotYet(prepared.make_durable);
        Self {
            checkpoint,
            committables: prepared.committables,
            durability: Arc::new(Mutex::new(durability)),
        }
    }

    /// Makes it durable, if no checkpoint before this one has.
    fn make_durable(&self) -> MakeDurable {
        let durability = Arc::clone(&self.durability);
        Box::new(move || make_durable(&mut durability.lock()))
    }
}

fn make_durable(durability: &mut Durability) -> Result<()> {
    match std::mem::replace(durability, Durability::Durable) {
        Durability::Durable => Ok(()),
        Durability::NotYet(make_durable) => make_durable().inspect_err(|error| {
            *durability = Durability::Never(error.full());
        }),
        Durability::Never(why) => {
            let text = format!("output staged before can't be made durable: {why}");
            *durability = Durability::Never(why);
            Err(Error::new(ErrorKind::Sink, text))
        }
    }
}

impl<W> SinkLink<W> {
    pub(crate) fn new(name: &str, section: String, subtask: u32, writer: W) -> Self {
        Self { name: name.to_owned(), section, subtask, writer, pending: Vec::new() }
    }
}

impl<W: SinkWriter> SinkLink<W> {
    fn freeze(&mut self, barrier: &Barrier, snapshot: &mut TaskSnapshot) -> Result<()> {
        let prepared = self.writer.prepare(barrier.id)?;
        if !prepared.committables.is_empty() {
            self.pending.push(Staged::new(barrier.id, prepared));
        }
        for staged in &self.pending {
            snapshot.durable(staged.make_durable());
        }
        let committables = self.pending.iter().flat_map(|staged| &staged.committables);
        let entries = committables
            .map(|piece| Ok((self.key(piece), encode_value(piece)?)))
            .collect::<Result<Entries>>()?;
        snapshot.section(&self.section, entries);
        Ok(())
    }

    /// Under its subtask, so that a sink that gives a name twice does not spoil the checkpoint.
    fn key(&self, piece: &Committable) -> Vec<u8> {
        format!("{:05}/{}", self.subtask, piece.name).into_bytes()
    }

    /// A checkpoint covers all before it: notices may be missed.
    fn commit(&mut self, id: CheckpointId) -> Result<()> {
        let all = std::mem::take(&mut self.pending).into_iter();
        let (now, later): (Vec<_>, Vec<_>) = all.partition(|staged| staged.checkpoint <= id);
        self.pending = later;
        let now: Vec<Committable> =
            now.into_iter().flat_map(|staged| staged.committables).collect();
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
