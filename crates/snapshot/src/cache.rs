//! Chunks that have been read and verified, kept as long as there is room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::plain::Plain;

/// Which chunk: its pack and where it is in it.
type Name = (Arc<str>, u64);

/// Verified chunks; which to drop is decided by a clock's hand that spares what has been used since
/// it came by last ("second chance").
#[derive(Debug)]
pub(crate) struct ChunkCache {
    limit_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: BTreeMap<Name, Slot>,
    /// In the order in which the hand will come by.
    clock: VecDeque<Name>,
    bytes: usize,
}

#[derive(Debug)]
struct Slot {
    plain: Plain,
    used: bool,
}

impl ChunkCache {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, state: Mutex::default() }
    }

    pub(crate) fn get(&self, pack: &Arc<str>, offset: u64) -> Option<Plain> {
        let mut state = self.state.lock();
        let slot = state.chunks.get_mut(&(Arc::clone(pack), offset))?;
        slot.used = true;
        Some(slot.plain.clone())
    }

    /// Keeps a chunk, unless it alone is more than there is room for.
    pub(crate) fn put(&self, pack: &Arc<str>, offset: u64, plain: &Plain) {
        if plain.len() > self.limit_bytes {
            return;
        }
        let mut state = self.state.lock();
        let name = (Arc::clone(pack), offset);
        let slot = Slot { plain: plain.clone(), used: false };
        if state.chunks.insert(name.clone(), slot).is_none() {
            state.bytes += plain.len();
            state.clock.push_back(name);
        }
        state.shrink_to(self.limit_bytes);
    }
}

impl State {
    fn shrink_to(&mut self, limit_bytes: usize) {
        while self.bytes > limit_bytes {
            let Some(name) = self.clock.pop_front() else { return };
            let spared =
                self.chunks.get_mut(&name).is_some_and(|slot| std::mem::take(&mut slot.used));
            if spared {
                self.clock.push_back(name);
            } else if let Some(slot) = self.chunks.remove(&name) {
                self.bytes -= slot.plain.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Plain {
        Plain::from(vec![1; 10])
    }

    #[test]
    fn what_is_used_stays_longer() {
        let cache = ChunkCache::new(30);
        let pack: Arc<str> = "p".into();
        for offset in 0..3 {
            cache.put(&pack, offset, &plain());
        }
        assert!(cache.get(&pack, 0).is_some());
        cache.put(&pack, 3, &plain());
        let there: Vec<bool> = (0..4).map(|offset| cache.get(&pack, offset).is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
    }

    #[test]
    fn there_is_a_limit() {
        let cache = ChunkCache::new(25);
        let pack: Arc<str> = "p".into();
        for offset in 0..100 {
            cache.put(&pack, offset, &plain());
        }
        assert!((0..100).filter(|offset| cache.get(&pack, *offset).is_some()).count() <= 2);
        cache.put(&pack, 100, &Plain::from(vec![0; 26]));
        assert!(cache.get(&pack, 100).is_none());
    }
}
