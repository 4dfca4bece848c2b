//! What nothing names any more, as a list: nothing is claimed, written or deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::Result;
use crate::history::history;
use crate::job::JobId;
use crate::live::Base;
use crate::names;
use crate::pin;
use crate::snapshot::Snapshot;
use crate::store::{Object, Store};

/// What an owner who keeps all checkpoints would delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Manifests that don't count.
    pub manifests: Vec<Object>,
    /// Packs that no completed checkpoint names.
    pub packs: Vec<Object>,
    /// Why no pack is listed: a completed checkpoint can't be read, so what it names is not known.
    pub unreadable: Option<String>,
}

impl Garbage {
    /// Bytes of all of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.manifests.iter().chain(&self.packs).map(|object| object.bytes).sum()
    }
}

/// Lists what nothing names. Packs that readers have pinned are left out, and those of numbers
/// above the newest completed checkpoint: somebody may be writing them. Beside a running job the
/// list is a guess: a checkpoint in the making may be about to be named, or to be deleted.
///
/// # Errors
/// The storage fails, or a fence is damaged.
pub fn garbage(store: &Arc<dyn Store>, job: JobId, now_ms: u64) -> Result<Garbage> {
    // In this order: what is listed here and named by a manifest that comes later is too new.
    let packs = store.list(&names::packs(job))?;
    let manifests = store.list(&names::checkpoints(job))?;
    let counting = history(store, job)?;
    let newest = counting.last().map_or(0, |listed| listed.checkpoint);
    let counts: BTreeSet<u64> = counting.iter().map(|listed| listed.checkpoint).collect();
    let is_void = |object: &Object| {
        let number = names::manifest_checkpoint(&object.path);
        number.is_some_and(|number| !counts.contains(&number))
    };
    let void = manifests.into_iter().filter(is_void);
    // One that is gone was deleted by its owner, who lives.
    let manifests = void.filter(|object| store.size(&object.path).is_ok()).collect();
    let mut named = BTreeSet::new();
    for checkpoint in counts {
        let base = Snapshot::open(store, job, checkpoint).and_then(|of| Base::read(&of));
        match base {
            Ok(base) => named.extend(base.packs),
            Err(error) => {
                let unreadable = Some(error.to_string());
                return Ok(Garbage { manifests, packs: Vec::new(), unreadable });
            }
        }
    }
    let pinned = pin::seen(store, job, now_ms)?;
    let unnamed = |object: &Object| {
        let (_, name) = object.path.rsplit_once('/').unwrap_or_default();
        let number = names::pack_checkpoint(name);
        !named.contains(name) && number.is_some_and(|number| number > pinned && number <= newest)
    };
    let packs = packs.into_iter().filter(unnamed).collect();
    Ok(Garbage { manifests, packs, unreadable: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claim, Contents, ErrorKind, MemoryStore, Owner, Pin};

    const JOB: &str = "collect";

    fn claim(store: &Arc<dyn Store>, fresh: bool) -> Owner {
        let claim = Claim { fresh, ..Claim::new(JOB) };
        Owner::claim(Arc::clone(store), claim).expect("nobody has it")
    }

    fn publish(owner: &Owner, number: u64) {
        let checkpoint = owner.begin(number, None).expect("the next number");
        let mut pack = checkpoint.writer("only").expect("a fine label");
        let mut run = pack.section("s", Contents::All, Vec::new()).expect("a section");
        run.push(&number.to_le_bytes(), b"value").expect("an entry");
        run.finish().expect("a run");
        let written = pack.finish().expect("a pack");
        owner.publish(number, vec![written], Vec::new(), 0).expect("it is published");
    }

    fn numbers(garbage: &Garbage) -> (Vec<u64>, Vec<u64>) {
        let manifests = garbage.manifests.iter();
        let packs = garbage.packs.iter().filter_map(|object| object.path.rsplit_once('/'));
        (
            manifests.filter_map(|object| names::manifest_checkpoint(&object.path)).collect(),
            packs.filter_map(|(_, name)| names::pack_checkpoint(name)).collect(),
        )
    }

    #[test]
    fn void_checkpoints_are_garbage_unless_pinned() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let job = JobId::for_name(JOB);
        let owner = claim(&store, false);
        publish(&owner, 1);
        publish(&owner, 2);
        let look = |now_ms| numbers(&garbage(&store, job, now_ms).expect("all can be read"));
        assert_eq!(look(0), (vec![], vec![]), "all that counts is kept");
        drop(owner);
        let (pin, _) = Pin::open(&store, job, 1, "test", 1000).expect("it is there");
        let owner = claim(&store, true);
        publish(&owner, 3);
        assert_eq!(look(0), (vec![1, 2], vec![2]), "1 is pinned");
        assert_eq!(look(70_000), (vec![1, 2], vec![1, 2]), "the pin has expired");
        drop(pin);
        let swept = owner.retain(usize::MAX, 0).expect("nobody has taken over");
        assert_eq!((swept.checkpoints, swept.packs), (2, 2), "what was listed is deleted");
        assert_eq!(look(0), (vec![], vec![]));
    }

    #[test]
    fn while_a_checkpoint_is_damaged_no_pack_is_garbage() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let job = JobId::for_name(JOB);
        publish(&claim(&store, false), 1);
        let owner = claim(&store, true);
        publish(&owner, 2);
        store.delete(&names::manifest(job, 2)).expect("it is there");
        store.create(&names::manifest(job, 2), b"junk").expect("its place is free");
        let found = garbage(&store, job, 0).expect("that can be said");
        assert_eq!(numbers(&found), (vec![1], vec![]));
        assert!(found.unreadable.is_some());
    }

    #[test]
    fn looking_deletes_no_pin() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let job = JobId::for_name(JOB);
        publish(&claim(&store, false), 1);
        let (pin, _) = Pin::open(&store, job, 1, "test", 1).expect("it is there");
        garbage(&store, job, 1_000_000).expect("all can be read");
        assert_eq!(store.list(&names::pins(job)).expect("a list").len(), 1);
        drop(pin);
        let missing = store.size(&names::manifest(job, 9)).expect_err("there is no 9");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
