//! Where records change hands: partitioning by key group, from every upstream subtask to every
//! downstream one.
//!
//! The key is encoded and hashed here, once; the hash travels with the record and is all that the
//! tables downstream need.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strandline_barrier::{EdgeReceiver, Flush, Marker, Outlet};
use strandline_state::{KeyHash, MaxParallelism, hash_key, key_group, owner_of};

use crate::link::{Flushed, Link, Signal};
use crate::{Error, ErrorKind, Result};

/// A record on its way to the owner of its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyed<K, T> {
    /// The hash of the key's canonical bytes.
    pub hash: KeyHash,
    /// The key.
    pub key: K,
    /// The record.
    pub value: T,
}

/// What must hold of anything that crosses an exchange, so that it may cross a process one day.
pub trait Exchanged: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> Exchanged for T {}

/// A channel's unit: the records of one batch for one subtask.
pub(crate) type KeyedBatch<K, T> = Vec<Keyed<K, T>>;

/// The receiving ends of one subtask.
pub(crate) type KeyedReceivers<K, T> = Vec<EdgeReceiver<KeyedBatch<K, T>>>;

/// The upstream side: deals the records of a batch to the subtasks that own their keys.
pub(crate) struct Partition<T, K, F> {
    name: String,
    key: F,
    max: MaxParallelism,
    /// Subtask by key group.
    owners: Vec<u32>,
    /// What the current batch holds for each subtask; empty between batches.
    dealt: Vec<KeyedBatch<K, T>>,
    /// The canonical bytes of the key at hand.
    bytes: Vec<u8>,
    outlet: Outlet<KeyedBatch<K, T>>,
}

impl<T, K, F> Partition<T, K, F> {
    pub(crate) fn new(
        name: &str,
        key: F,
        max: MaxParallelism,
        outlet: Outlet<KeyedBatch<K, T>>,
    ) -> Self {
        let outputs = outlet.outputs();
        let parallelism = u32::try_from(outputs).unwrap_or(u32::MAX);
        let owners = (0..max.get())
            .map(|group| owner_of(strandline_state::KeyGroup(group), max, parallelism))
            .collect();
        let dealt = (0..outputs).map(|_| Vec::new()).collect();
        Self { name: name.to_owned(), key, max, owners, dealt, bytes: Vec::new(), outlet }
    }

    fn send(&mut self) {
        for (output, dealt) in self.dealt.iter_mut().enumerate() {
            if !dealt.is_empty() {
                let room = dealt.len() + dealt.len() / 8;
                let batch = std::mem::replace(dealt, Vec::with_capacity(room));
                self.outlet.send(output, batch);
            }
        }
    }
}

impl<T, K, F> Link<T> for Partition<T, K, F>
where
    T: Exchanged,
    K: Exchanged,
    F: FnMut(&T) -> K + Send,
{
    fn batch(&mut self, batch: &mut Vec<T>) -> Result<()> {
        for value in batch.drain(..) {
            let key = (self.key)(&value);
            let hash =
                hash_key(&key, &mut self.bytes).map_err(|error| refused_key(&self.name, error))?;
            let group = usize::from(key_group(hash, self.max).0);
            let owner = self.owners.get(group).copied().unwrap_or_default() as usize;
            if let Some(dealt) = self.dealt.get_mut(owner) {
                dealt.push(Keyed { hash, key, value });
            }
        }
        self.send();
        Ok(())
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        let marker = match signal {
            Signal::Watermark(time) => Marker::Watermark(*time),
            Signal::Barrier(barrier, _) => Marker::Barrier(*barrier),
            Signal::Cancel(id) => Marker::Cancel(*id),
            Signal::Idle => Marker::Idle,
            Signal::Active => Marker::Active,
            Signal::End => Marker::End,
            Signal::Restore(_)
            | Signal::Splits(_)
            | Signal::Split(_)
            | Signal::SplitEnd(_)
            | Signal::Snapshot(..)
            | Signal::Completed(_) => return Ok(()),
        };
        self.outlet.broadcast(marker);
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed> {
        // A channel whose other side has gone stays full for ever: the task then waits to be told
        // what happened, since the reason is the other task's to report.
        match self.outlet.flush() {
            Flush::Done => Ok(Flushed::Empty),
            Flush::Blocked | Flush::Disconnected(_) => Ok(Flushed::Waiting),
        }
    }
}

fn refused_key(name: &str, error: strandline_state::Error) -> Error {
    Error::new(ErrorKind::Operator, format!("operator `{name}`: the key can't be used"))
        .because(error)
}
