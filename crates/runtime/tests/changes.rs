//! A checkpoint writes what has changed since the one that it is based on, and is whole all the same:
//! within one run, and after a restart at another parallelism.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strandline_runtime::source::{Read, Source, SplitReader};
use strandline_runtime::{CompletedCheckpoint, Environment, JobHandle, Result};
use strandline_snapshot::{MemoryStore, Snapshot, Store};
use strandline_state::decode_entry;

/// Numbers, as far as they have been let out. Each is a key, `number` modulo [`KEYS`].
#[derive(Clone)]
struct Numbers(Arc<AtomicU64>);

struct Reader {
    source: Numbers,
    next: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Next(u64);

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "number {}", self.0)
    }
}

impl Source for Numbers {
    type Record = u64;
    type Position = Next;
    type Reader = Reader;

    fn splits(&self) -> Result<Vec<String>> {
        Ok(vec!["all".to_owned()])
    }

    fn open(&self, _: &str, position: Option<&Next>) -> Result<Reader> {
        Ok(Reader { source: self.clone(), next: position.map_or(0, |position| position.0) })
    }
}

impl SplitReader for Reader {
    type Record = u64;
    type Position = Next;

    fn read(&mut self, max: usize, out: &mut Vec<u64>) -> Result<Read> {
        // Relaxed: a number that only grows, with no other memory depending on it.
        let let_out = self.source.0.load(Ordering::Relaxed);
        if self.next >= let_out {
            return Ok(Read::Wait(Duration::from_millis(1)));
        }
        let end = let_out.min(self.next + max as u64);
        out.extend((self.next..end).map(|number| number % KEYS));
        self.next = end;
        Ok(Read::More)
    }

    fn position(&self) -> Next {
        Next(self.next)
    }
}

const KEYS: u64 = 50_000;

struct Scene {
    numbers: Numbers,
    store: Arc<dyn Store>,
}

impl Scene {
    fn new() -> Self {
        Self { numbers: Numbers(Arc::default()), store: Arc::new(MemoryStore::default()) }
    }

    fn start(&self, parallelism: u32) -> JobHandle {
        let mut env = Environment::new();
        env.set_parallelism(parallelism);
        env.checkpoint_store(Arc::clone(&self.store));
        env.from_source(self.numbers.clone())
            .uid("numbers")
            .key_by(|number| *number)
            .map_with_state(|_, _, count: &mut u64| *count += 1)
            .uid("counts")
            .discard();
        env.start("changes").expect("the job starts")
    }

    /// Lets numbers out, waits until they have been counted, and takes a checkpoint.
    fn checkpoint(&self, handle: &JobHandle, until: u64) -> CompletedCheckpoint {
        self.numbers.0.store(until, Ordering::Relaxed);
        for _ in 0..1_000_000 {
            // Until all tasks run, checkpoints are refused.
            let Ok(id) = handle.checkpoint() else { continue };
            if self.counted(handle, id.0) == until {
                let completed = handle.checkpoints();
                return completed.into_iter().rfind(|of| of.id == id).expect("it is listed");
            }
        }
        panic!("the job does not get to {until}");
    }

    /// The sum of all counts of a checkpoint; no key may be there twice, nor with another count than
    /// its numbers.
    fn counted(&self, handle: &JobHandle, checkpoint: u64) -> u64 {
        let snapshot = Snapshot::open(&self.store, handle.id(), checkpoint).expect("it is there");
        let mut counts = BTreeMap::new();
        for section in snapshot.sections().into_iter().filter(|name| name.starts_with("counts/")) {
            let visited = snapshot.visit(section, &mut |key, value| {
                let (_, key, (), count) =
                    decode_entry::<u64, (), u64>(key, value).expect("it is an entry");
                assert!(counts.insert(key, count).is_none(), "{key} is there twice");
                ControlFlow::Continue(())
            });
            visited.expect("it is whole");
        }
        let total: u64 = counts.values().sum();
        let expected = |key: u64| total / KEYS + u64::from(key < total % KEYS);
        assert!(counts.iter().all(|(key, count)| *count == expected(*key)));
        total
    }
}

#[test]
fn a_checkpoint_writes_what_has_changed() {
    let scene = Scene::new();
    let handle = scene.start(2);
    let full = scene.checkpoint(&handle, KEYS);
    assert!(full.full_bytes > 200_000, "{full:?}");
    let changed = scene.checkpoint(&handle, KEYS + 100);
    assert!(changed.written_bytes < full.full_bytes / 20, "{changed:?} after {full:?}");
    assert!(changed.full_bytes >= full.full_bytes, "{changed:?} after {full:?}");
    let nothing = scene.checkpoint(&handle, KEYS + 100);
    assert!(nothing.written_bytes < full.full_bytes / 20, "{nothing:?} after {full:?}");
    handle.cancel();
    handle.wait().expect("the job ends in order");

    // The state that was restored is no change, at another parallelism neither.
    let handle = scene.start(3);
    let resumed = scene.checkpoint(&handle, KEYS + 300);
    assert!(resumed.written_bytes < full.full_bytes / 20, "{resumed:?} after {full:?}");
    handle.cancel();
    handle.wait().expect("the job ends in order");
}
