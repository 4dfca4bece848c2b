//! Signs of life: how a second start finds out whether an owner is alive where storage has no locks.
//!
//! An owner creates a new object every few seconds and deletes the one before. Who wants to start
//! watches for as long as the owner has promised to give a sign, by its own clock: the clocks of two
//! machines are never compared. A lease keeps nobody from doing harm, the fence does that; it only
//! keeps starts from overtaking an owner that is well.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::job::JobId;
use crate::manifest::{frame, read_framed};
use crate::names;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

const MAGIC: [u8; 4] = *b"SLLS";

/// One sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) token: u64,
    pub(crate) sequence: u64,
    /// Who: for people.
    pub(crate) holder: String,
    /// Where: for people.
    pub(crate) host: String,
    pub(crate) renewed_ms: u64,
    /// The next one comes before this is over.
    pub(crate) lease_ms: u64,
    /// No checkpoint above this number has been begun.
    pub(crate) highest: u64,
    /// The owner has ended in good order.
    pub(crate) released: bool,
    /// It holds the storage's lock: whoever gets that lock knows that it is dead.
    pub(crate) locked: bool,
}

impl Lease {
    /// The newest sign of life of the newest owner.
    pub(crate) fn newest(store: &Arc<dyn Store>, job: JobId) -> Result<Option<Self>> {
        // One that has just been replaced is gone: its successor is there.
        for _ in 0..100 {
            let objects = store.list(&names::leases(job))?;
            let Some(newest) = objects.iter().filter_map(|o| names::lease_order(&o.path)).max()
            else {
                return Ok(None);
            };
            match read_framed(MAGIC, store, &names::lease(job, newest.0, newest.1)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                read => return read.map(Some),
            }
        }
        Err(Error::new(ErrorKind::Held, "the owner gives signs of life faster than they are read"))
    }

    /// Gives this sign, and removes the one before.
    pub(crate) fn give(&self, store: &Arc<dyn Store>, job: JobId) -> Result<()> {
        let path = names::lease(job, self.token, self.sequence);
        store.create(&path, &frame(MAGIC, self)?)?;
        if self.sequence > 1 {
            store.delete(&names::lease(job, self.token, self.sequence - 1))?;
        }
        Ok(())
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{} on {}: last_renewal_unix_ms={} lease_ms={}",
            self.holder, self.host, self.renewed_ms, self.lease_ms
        )
    }
}
