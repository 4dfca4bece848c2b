//! The fence: which owner's checkpoints count.
//!
//! Every owner first creates a numbered fence, then looks for the newest checkpoint, and then records
//! which one it goes on from. A manifest counts if every later record accepts it, that is, if it is
//! no newer than what that owner goes on from. So a fresh start (which accepts nothing) voids all
//! before it, and whatever an owner publishes after another one has taken over is void, however late
//! it comes. (What it publishes between the other's fence and the other's look is accepted: nobody
//! has reported it, and it is whole.)

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::job::JobId;
use crate::manifest::{frame, read_framed};
use crate::names;
use crate::nonce::Nonce;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

const FENCE_MAGIC: [u8; 4] = *b"SLFN";
const ACCEPTED_MAGIC: [u8; 4] = *b"SLAC";

/// An owner's claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fence {
    pub(crate) token: u64,
    /// Who: for people.
    pub(crate) holder: String,
    /// Where: for people.
    pub(crate) host: String,
    pub(crate) nonce: Nonce,
    pub(crate) created_ms: u64,
}

impl Fence {
    /// The highest token that anybody has claimed; 0 if there is none.
    pub(crate) fn newest_token(store: &Arc<dyn Store>, job: JobId) -> Result<u64> {
        let fences = store.list(&names::fences(job))?;
        let tokens = fences.iter().filter_map(|object| names::token(&object.path));
        Ok(tokens.max().unwrap_or(0))
    }

    pub(crate) fn read(store: &Arc<dyn Store>, job: JobId, token: u64) -> Result<Self> {
        read_framed(FENCE_MAGIC, store, &names::fence(job, token))
    }

    /// Creates the fence. Somebody else may be faster: then this is not the owner.
    pub(crate) fn create(&self, store: &Arc<dyn Store>, job: JobId) -> Result<()> {
        let created = create_own(store, &names::fence(job, self.token), &frame(FENCE_MAGIC, self)?);
        created.map_err(|error| {
            if error.kind() == ErrorKind::AlreadyExists {
                let text = "another process is starting this job at this moment";
                Error::new(ErrorKind::Held, text).because(error)
            } else {
                error
            }
        })
    }

    /// Whether this is still the newest, and is still the one that was made. (Somebody may have
    /// removed the whole folder and started anew.)
    pub(crate) fn check(&self, store: &Arc<dyn Store>, job: JobId) -> Result<()> {
        let newest = Self::newest_token(store, job)?;
        if newest == self.token && Self::read(store, job, newest)? == *self {
            return Ok(());
        }
        let text = format!(
            "another process has taken over this job: token={} newest_token={newest}",
            self.token
        );
        Err(Error::new(ErrorKind::Fenced, text))
    }
}

/// What an owner goes on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Accepted {
    pub(crate) token: u64,
    pub(crate) nonce: Nonce,
    /// The newest checkpoint of the history before that this owner goes on from.
    pub(crate) accepted: Option<u64>,
    /// The number of its first own checkpoint.
    pub(crate) first: u64,
    /// The savepoint that it started from instead.
    pub(crate) savepoint: Option<String>,
}

impl Accepted {
    /// Whether a checkpoint written under an earlier token counts for this owner.
    fn accepts(&self, checkpoint: u64) -> bool {
        self.accepted.is_some_and(|accepted| checkpoint <= accepted)
    }

    /// Takes the names of records that owners before this one have not made: one that comes late
    /// would void what this owner goes on from. Such a record accepts everything.
    pub(crate) fn seal(store: &Arc<dyn Store>, job: JobId, fence: &Fence) -> Result<()> {
        let tokens = |objects: Vec<crate::store::Object>| -> std::collections::BTreeSet<u64> {
            objects.iter().filter_map(|object| names::token(&object.path)).collect()
        };
        let fences = tokens(store.list(&names::fences(job))?);
        let made = tokens(store.list(&names::all_accepted(job))?);
        for &token in fences.difference(&made).filter(|token| **token < fence.token) {
            let (accepted, first) = (Some(u64::MAX), u64::MAX);
            let record = Self { token, nonce: fence.nonce, accepted, first, savepoint: None };
            match record.create(store, job) {
                // Its owner was faster: then it counts.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => created?,
            }
        }
        Ok(())
    }

    pub(crate) fn create(&self, store: &Arc<dyn Store>, job: JobId) -> Result<()> {
        create_own(store, &names::accepted(job, self.token), &frame(ACCEPTED_MAGIC, self)?)
    }
}

/// The records of all owners that matter, ascending by token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences(Vec<Accepted>);

impl Fences {
    /// Reads them from the newest back to the last one that started from nothing: what is older says
    /// nothing that counts, and may be damaged.
    pub(crate) fn read(store: &Arc<dyn Store>, job: JobId) -> Result<Self> {
        let objects = store.list(&names::all_accepted(job))?;
        let mut tokens: Vec<u64> =
            objects.iter().filter_map(|object| names::token(&object.path)).collect();
        tokens.sort_unstable();
        let mut records = Vec::new();
        for token in tokens.into_iter().rev() {
            let path = names::accepted(job, token);
            let record: Accepted = read_framed(ACCEPTED_MAGIC, store, &path)?;
            if record.token != token {
                let what = format!("it is the record of token {}", record.token);
                return Err(Error::damaged(&store.describe(&path), what));
            }
            let from_nothing = record.accepted.is_none();
            records.push(record);
            if from_nothing {
                break;
            }
        }
        records.reverse();
        Ok(Self(records))
    }

    pub(crate) fn newest(&self) -> Option<&Accepted> {
        self.0.iter().rfind(|record| record.first < u64::MAX)
    }

    /// Whether a checkpoint written under `token` counts.
    pub(crate) fn counts(&self, checkpoint: u64, token: u64) -> bool {
        self.0.iter().filter(|record| record.token > token).all(|record| record.accepts(checkpoint))
    }

    /// The token that a checkpoint whose manifest can't be read was written under, as far as
    /// numbers tell.
    pub(crate) fn presumed_token(&self, checkpoint: u64) -> u64 {
        let before = self.0.iter().rfind(|record| record.first <= checkpoint);
        before.map_or(0, |record| record.token)
    }

    /// Whether the history that counts began with this savepoint.
    pub(crate) fn began_with(&self, savepoint: &str) -> bool {
        self.0.iter().any(|record| record.savepoint.as_deref() == Some(savepoint))
    }
}

/// Creates an object whose bytes nobody else can write, since a nonce is in them. If the outcome is
/// in doubt, the object is read back: with these bytes it is ours.
///
/// In a folder there is no such doubt: what can be read there after a failure may be gone after a
/// power cut.
pub(crate) fn create_own(store: &Arc<dyn Store>, path: &str, bytes: &[u8]) -> Result<()> {
    let Err(error) = store.create(path, bytes) else {
        return Ok(());
    };
    if store.local_root().is_some() {
        return Err(error);
    }
    match store.read(path, 0, bytes.len()) {
        Ok(there) if there == bytes && store.size(path).ok() == Some(bytes.len() as u64) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owners 1, 2, …, each with what it accepts.
    fn fences(accepted: &[Option<u64>]) -> Fences {
        let record = |(token, accepted): (u64, &Option<u64>)| Accepted {
            token,
            nonce: Nonce([0; 16]),
            accepted: *accepted,
            first: accepted.unwrap_or(0) + 1,
            savepoint: None,
        };
        Fences((1..).zip(accepted).map(record).collect())
    }

    #[test]
    fn an_owners_own_checkpoints_count() {
        let fences = fences(&[None]);
        assert!(fences.counts(1, 1) && fences.counts(100, 1));
    }

    #[test]
    fn a_successor_accepts_what_it_goes_on_from_and_voids_what_comes_later() {
        let fences = fences(&[None, Some(7)]);
        assert!(fences.counts(6, 1) && fences.counts(7, 1));
        assert!(!fences.counts(8, 1), "published by the old owner after the new one began");
        assert!(fences.counts(8, 2));
    }

    #[test]
    fn a_fresh_start_voids_everything_for_good() {
        let fences = fences(&[None, None, Some(12)]);
        assert!(!fences.counts(7, 1));
        assert!(fences.counts(12, 2) && fences.counts(13, 3) && !fences.counts(13, 2));
    }
}
