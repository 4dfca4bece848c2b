//! Pins: readers that take their time, from outside of the job.
//!
//! A reader makes its pin first and looks for the manifest then. The owner deletes manifests first
//! and looks for pins then. So a reader that has found its manifest has its packs too.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::job::JobId;
use crate::manifest::{frame, read_framed};
use crate::names;
use crate::nonce::Nonce;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::{ErrorKind, Result};

const MAGIC: [u8; 4] = *b"SLPN";

/// The clocks of reader and owner may differ by this much.
const CLOCK_SKEW_MS: u64 = 60_000;

/// Keeps what a checkpoint names from being deleted, until it is dropped or has expired.
#[derive(Debug)]
pub struct Pin {
    store: Arc<dyn Store>,
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    checkpoint: u64,
    holder: String,
    expires_ms: u64,
}

impl Pin {
    /// Opens a checkpoint that stays whole while the pin is held, until `expires_ms` (Unix
    /// milliseconds) at the latest. `holder` is for people.
    ///
    /// # Errors
    /// As [`Snapshot::open`]; the storage can't be written to (then open it without a pin, and expect
    /// `Subsumed`).
    pub fn open(
        store: &Arc<dyn Store>,
        job: JobId,
        checkpoint: u64,
        holder: &str,
        expires_ms: u64,
    ) -> Result<(Self, Snapshot)> {
        let path = names::pin(job, &Nonce::random());
        let record = Record { checkpoint, holder: holder.to_owned(), expires_ms };
        store.create(&path, &frame(MAGIC, &record)?)?;
        let pin = Self { store: Arc::clone(store), path };
        let snapshot = Snapshot::open(store, job, checkpoint)?;
        Ok((pin, snapshot))
    }
}

impl Drop for Pin {
    /// A pin that can't be deleted expires.
    fn drop(&mut self) {
        self.store.delete(&self.path).ok();
    }
}

/// The highest checkpoint that somebody has pinned. Deletes pins that have expired.
pub(crate) fn highest(store: &Arc<dyn Store>, job: JobId, now_ms: u64) -> Result<u64> {
    let mut highest = 0;
    for object in store.list(&names::pins(job))? {
        match read_framed::<Record>(MAGIC, store, &object.path) {
            Ok(record) if record.expires_ms.saturating_add(CLOCK_SKEW_MS) > now_ms => {
                highest = highest.max(record.checkpoint);
            }
            // One that can't be read keeps nobody from anything.
            Ok(_) => store.delete(&object.path)?,
            Err(error) if error.kind() == ErrorKind::Damaged => store.delete(&object.path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(highest)
}

/// The same for those who only look: nothing is deleted.
pub(crate) fn seen(store: &Arc<dyn Store>, job: JobId, now_ms: u64) -> Result<u64> {
    let objects = store.list(&names::pins(job))?;
    let mut highest = 0;
    for object in objects {
        match read_framed::<Record>(MAGIC, store, &object.path) {
            Ok(record) if record.expires_ms.saturating_add(CLOCK_SKEW_MS) > now_ms => {
                highest = highest.max(record.checkpoint);
            }
            Ok(_) => {}
            // Let go of meanwhile; one that can't be read keeps nobody from anything.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Damaged) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(highest)
}
