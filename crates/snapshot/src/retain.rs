//! What to delete: a pure plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::names;
use crate::owner::Kept;
use crate::store::Object;

/// What there is.
pub(crate) struct Listing {
    /// Checkpoints with a manifest.
    pub(crate) numbers: Vec<u64>,
    /// All packs.
    pub(crate) packs: Vec<Object>,
    /// Packs that checkpoints in the making may name besides their own.
    pub(crate) live: BTreeSet<Arc<str>>,
    /// Checkpoints in the making.
    pub(crate) making: BTreeSet<u64>,
}

/// What is to be deleted, in this order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// Checkpoints, ascending.
    pub(crate) checkpoints: Vec<u64>,
    /// Paths of packs.
    pub(crate) packs: Vec<String>,
}

/// Checkpoints that are void, and those older than the newest `count` whole ones (`count` is at
/// least 1; where there are fewer, none is old); and packs that nothing left names. No pack is
/// deleted while something that is left can't be read.
pub(crate) fn plan(kept: &BTreeMap<u64, Kept>, listing: Listing, count: usize) -> Deletion {
    let whole = kept.iter().filter(|(_, kept)| !kept.damaged).map(|(number, _)| *number);
    let oldest = whole.rev().nth(count - 1);
    let stays = |number: u64| {
        kept.contains_key(&number) && oldest.is_none_or(|oldest| number >= oldest)
            || listing.making.contains(&number)
            // It may keep a name from a manifest that is still on its way.
            || kept.last_key_value().is_some_and(|(newest, _)| number > *newest)
    };
    let mut checkpoints: Vec<u64> =
        listing.numbers.iter().copied().filter(|number| !stays(*number)).collect();
    checkpoints.sort_unstable();
    let mut live = listing.live;
    for (_, kept) in kept.iter().filter(|(number, _)| stays(**number)) {
        match &kept.base {
            Some(base) => live.extend(base.packs.iter().cloned()),
            None => return Deletion { checkpoints, packs: Vec::new() },
        }
    }
    let dead = |object: &Object| {
        let (_, name) = object.path.rsplit_once('/').unwrap_or_default();
        let own = names::pack_checkpoint(name);
        !live.contains(name) && own.is_some_and(|number| !listing.making.contains(&number))
    };
    let packs = listing.packs.into_iter().filter(dead).map(|object| object.path).collect();
    Deletion { checkpoints, packs }
}
