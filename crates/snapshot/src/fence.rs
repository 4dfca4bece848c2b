//! The fence: which owner's checkpoints count.
//!
//! Every owner creates a numbered fence object before it writes anything else, and says in it which
//! checkpoint of the history before it goes on from. A manifest counts if every later fence accepts
//! it, that is, if it is no newer than what that fence goes on from. So a fresh start (which
//! accepts nothing) voids all before it, and whatever an owner publishes after another one has taken
//! over is void, however late it comes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::job::JobId;
use crate::manifest::{frame, unframe};
use crate::names;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

const MAGIC: [u8; 4] = *b"SLFN";

/// No fence is larger.
const MAX_BYTES: u64 = 64 << 10;

/// What an owner says when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fence {
    pub(crate) token: u64,
    /// Who: for people.
    pub(crate) holder: String,
    pub(crate) created_ms: u64,
    /// The newest checkpoint of the history before that this owner goes on from.
    pub(crate) accepted: Option<u64>,
    /// The number of its first own checkpoint.
    pub(crate) first: u64,
}

impl Fence {
    /// Whether a checkpoint written under an earlier token counts for this owner.
    fn accepts(&self, checkpoint: u64) -> bool {
        self.accepted.is_some_and(|accepted| checkpoint <= accepted)
    }
}

/// All fences of a job, ascending by token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences(pub(crate) Vec<Fence>);

impl Fences {
    pub(crate) fn read(store: &Arc<dyn Store>, job: JobId) -> Result<Self> {
        let objects = store.list(&names::fences(job))?;
        let tokens = objects.iter().filter_map(|object| names::fence_token(&object.path));
        tokens.map(|token| Self::read_one(store, job, token)).collect::<Result<_>>().map(Self)
    }

    pub(crate) fn read_one(store: &Arc<dyn Store>, job: JobId, token: u64) -> Result<Fence> {
        let path = names::fence(job, token);
        let name = store.describe(&path);
        let bytes = store.size(&path)?;
        if bytes > MAX_BYTES {
            return Err(Error::damaged(&name, "it is too long"));
        }
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        unframe(MAGIC, &store.read(&path, 0, len)?, &name)
    }

    /// Creates the next fence. Somebody else may be faster: then this is not the owner.
    pub(crate) fn create(store: &Arc<dyn Store>, job: JobId, fence: &Fence) -> Result<()> {
        let path = names::fence(job, fence.token);
        store.create(&path, &frame(MAGIC, fence)?).map_err(|error| {
            if error.kind() == ErrorKind::AlreadyExists {
                let text = "another process is starting this job at this moment";
                Error::new(ErrorKind::Held, text).because(error)
            } else {
                error
            }
        })
    }

    pub(crate) fn newest(&self) -> Option<&Fence> {
        self.0.last()
    }

    /// Whether a checkpoint written under `token` counts.
    pub(crate) fn counts(&self, checkpoint: u64, token: u64) -> bool {
        self.0.iter().filter(|fence| fence.token > token).all(|fence| fence.accepts(checkpoint))
    }

    /// The token that a checkpoint whose manifest can't be read was written under, as far as
    /// numbers tell.
    pub(crate) fn presumed_token(&self, checkpoint: u64) -> u64 {
        let before = self.0.iter().rfind(|fence| fence.first <= checkpoint);
        before.map_or(0, |fence| fence.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fences 1, 2, …, each with what it accepts.
    fn fences(accepted: &[Option<u64>]) -> Fences {
        let fence = |(token, accepted): (u64, &Option<u64>)| Fence {
            token,
            holder: String::new(),
            created_ms: 0,
            accepted: *accepted,
            first: accepted.unwrap_or(0) + 1,
        };
        Fences((1..).zip(accepted).map(fence).collect())
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
