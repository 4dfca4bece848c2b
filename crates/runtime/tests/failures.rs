//! What must hold when storage, sinks or graphs misbehave: each a fault that was once there.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use strandline_barrier::CheckpointId;
use strandline_runtime::sink::{Committable, Prepared, Sink, SinkOwner, SinkWriter};
use strandline_runtime::source::{Read, Source, SplitReader};
use strandline_runtime::{Environment, Error, ErrorKind, JobOutcome, Result};
use strandline_snapshot::{self as snapshot, MemoryStore, Object, Store, Upload};

/// Splits by name and length, read one record at a time with a wait before each.
#[derive(Clone)]
struct Numbers {
    splits: Vec<(&'static str, u64)>,
    wait: Duration,
}

struct Reader {
    next: u64,
    end: u64,
    wait: Duration,
    waited: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct Next(u64);

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "number {}", self.0)
    }
}

fn numbers(count: u64) -> Numbers {
    Numbers { splits: vec![("a", count)], wait: Duration::ZERO }
}

impl Source for Numbers {
    type Record = u64;
    type Position = Next;
    type Reader = Reader;

    fn splits(&self) -> Result<Vec<String>> {
        Ok(self.splits.iter().map(|(name, _)| (*name).to_owned()).collect())
    }

    fn open(&self, split: &str, position: Option<&Next>) -> Result<Reader> {
        let found = self.splits.iter().find(|(name, _)| *name == split);
        let (_, end) = *found.expect("a split that was listed");
        let next = position.map_or(0, |next| next.0);
        Ok(Reader { next, end, wait: self.wait, waited: false })
    }
}

impl SplitReader for Reader {
    type Record = u64;
    type Position = Next;

    fn read(&mut self, _max: usize, out: &mut Vec<u64>) -> Result<Read> {
        if self.next == self.end {
            return Ok(Read::End);
        }
        self.waited = !self.waited;
        if self.waited && !self.wait.is_zero() {
            return Ok(Read::Wait(self.wait));
        }
        out.push(self.next);
        self.next += 1;
        Ok(Read::More)
    }

    fn position(&self) -> Next {
        Next(self.next)
    }
}

/// Output by name.
type Piece = (String, Vec<u64>);

/// A sink that notes what has been synced and what committed, and whose syncs fail at first.
#[derive(Clone, Default)]
struct Probe {
    syncs_to_fail: Arc<AtomicU32>,
    durable: Arc<Mutex<BTreeSet<String>>>,
    committed: Arc<Mutex<Vec<Piece>>>,
}

struct Writer {
    probe: Probe,
    place: String,
    records: Vec<u64>,
    staged: Vec<Piece>,
}

impl Probe {
    fn records(&self) -> Vec<u64> {
        let committed = self.committed.lock();
        let mut records: Vec<u64> = committed.iter().flat_map(|(_, of)| of.clone()).collect();
        records.sort_unstable();
        records
    }
}

impl Sink for Probe {
    type Record = u64;
    type Writer = Writer;

    fn check_fresh(&self) -> Result<()> {
        Ok(())
    }

    fn start_fresh(&self, _: &SinkOwner) -> Result<()> {
        Ok(())
    }

    fn recover(&self, _: &SinkOwner, _: CheckpointId, _: Vec<Committable>) -> Result<()> {
        Ok(())
    }

    fn writer(&self, owner: &SinkOwner, subtask: u32) -> Result<Writer> {
        let probe = self.clone();
        let place = format!("{}-{subtask}", owner.token);
        Ok(Writer { probe, place, records: Vec::new(), staged: Vec::new() })
    }
}

impl SinkWriter for Writer {
    type Record = u64;

    fn write(&mut self, batch: &mut Vec<u64>) -> Result<()> {
        self.records.append(batch);
        Ok(())
    }

    fn prepare(&mut self, id: CheckpointId) -> Result<Prepared> {
        let name = format!("{}-{id}", self.place);
        let records = std::mem::take(&mut self.records);
        let mut committables = Vec::new();
        if !records.is_empty() {
            self.staged.push((name.clone(), records));
            committables.push(Committable { checkpoint: id, name: name.clone() });
        }
        let probe = self.probe.clone();
        let make_durable = Box::new(move || {
            let left = &probe.syncs_to_fail;
            let failed =
                left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if failed.is_ok() {
                return Err(Error::new(ErrorKind::Sink, "the disk is broken"));
            }
            probe.durable.lock().insert(name);
            Ok(())
        });
        Ok(Prepared { committables, make_durable })
    }

    fn commit(&mut self, committables: &[Committable]) -> Result<()> {
        let is_named = |name: &str| committables.iter().any(|piece| piece.name == name);
        let all = std::mem::take(&mut self.staged).into_iter();
        let (now, later): (Vec<_>, Vec<_>) = all.partition(|(name, _)| is_named(name));
        self.staged = later;
        self.probe.committed.lock().extend(now);
        Ok(())
    }
}

#[test]
fn output_whose_sync_failed_is_never_committed() {
    let probe = Probe::default();
    probe.syncs_to_fail.store(1, Ordering::SeqCst);
    let mut env = Environment::new();
    env.checkpoint_config().tolerable_failures = 3;
    env.from_source(numbers(100)).sink_to(probe.clone());
    let error = env.execute("sync fails once").expect_err("no checkpoint can have that output");
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    assert!(error.full().contains("the disk is broken"), "{}", error.full());
    assert_eq!(probe.records(), []);
    assert_eq!(*probe.durable.lock(), BTreeSet::new());
}

#[test]
fn event_time_behind_an_exchange_is_refused() {
    let mut env = Environment::new();
    env.from_source(numbers(100))
        .key_by(|number| number % 3)
        .map_with_state(|_, number, _: &mut u64| number)
        .event_time(|number| i64::try_from(*number).unwrap_or_default(), Duration::ZERO)
        .uid("too late")
        .discard();
    let error = env.start("event time").expect_err("watermarks can't be made there");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.full().contains("`too late`"), "{}", error.full());
}

/// A store that can't list once, just after the second manifest has been created.
#[derive(Debug)]
struct Flaky {
    store: MemoryStore,
    manifests: AtomicU32,
}

impl Store for Flaky {
    fn create(&self, path: &str, bytes: &[u8]) -> snapshot::Result<()> {
        let created = self.store.create(path, bytes);
        if path.ends_with("_metadata") {
            self.manifests.fetch_add(1, Ordering::SeqCst);
        }
        created
    }

    fn put(&self, path: &str) -> snapshot::Result<Box<dyn Upload>> {
        self.store.put(path)
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> snapshot::Result<Vec<u8>> {
        self.store.read(path, offset, len)
    }

    fn size(&self, path: &str) -> snapshot::Result<u64> {
        self.store.size(path)
    }

    fn list(&self, prefix: &str) -> snapshot::Result<Vec<Object>> {
        let second = self.manifests.compare_exchange(2, 3, Ordering::SeqCst, Ordering::SeqCst);
        if second.is_ok() {
            return Err(snapshot::Error::new(snapshot::ErrorKind::Io, "the network is gone"));
        }
        self.store.list(prefix)
    }

    fn delete(&self, path: &str) -> snapshot::Result<()> {
        self.store.delete(path)
    }

    fn location(&self) -> String {
        self.store.location()
    }
}

#[test]
fn a_checkpoint_of_which_nobody_knows_whether_it_exists_stops_the_job_and_stays_whole() {
    let flaky = Flaky { store: MemoryStore::default(), manifests: AtomicU32::new(0) };
    let store: Arc<dyn Store> = Arc::new(flaky);
    let start = || {
        let mut env = Environment::new();
        env.checkpoint_store(Arc::clone(&store));
        env.enable_checkpointing(Duration::from_millis(50));
        let source = Numbers { wait: Duration::from_millis(5), ..numbers(100) };
        env.from_source(source)
            .key_by(|number| number % 3)
            .map_with_state(|_, number, sum: &mut u64| *sum += number)
            .discard();
        env.start("flaky").expect("it starts")
    };
    let error = start().wait().expect_err("nobody knows whether checkpoint 2 exists");
    assert_eq!(error.kind(), ErrorKind::Unsettled);
    assert!(error.full().contains("checkpoint 2"), "{}", error.full());
    let again = start();
    let resumed = again.resumed().map(|resumed| resumed.checkpoint);
    assert_eq!(resumed, Some(CheckpointId(2)), "it exists, so the next run goes on from it");
    again.wait().expect("and it is whole");
}

#[test]
fn a_finished_split_that_comes_back_is_not_read_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let probe = Probe::default();
    let run = |splits: &[(&'static str, u64)]| {
        let mut env = Environment::new();
        env.set_parallelism(2);
        env.checkpoint_store(Arc::clone(&store));
        let wait = Duration::from_millis(2);
        env.from_source(Numbers { splits: splits.to_vec(), wait })
            .uid("splits")
            .sink_to(probe.clone())
            .uid("out");
        env.start("comes back").expect("it starts")
    };
    // The short split ends; the long one keeps the job from finishing.
    let (short, long) = (("short", 5), ("long", 300));
    let suspend = |handle: strandline_runtime::JobHandle, records: u64| {
        while handle.progress().records_read < records {
            assert!(!handle.wait_for(Duration::from_millis(1)), "the long split is long");
        }
        handle.suspend(Duration::from_secs(60));
        let ended = handle.wait().expect("it ends in order").outcome;
        assert!(matches!(ended, JobOutcome::Suspended { checkpoint: Some(_) }), "{ended:?}");
    };
    suspend(run(&[short, long]), 20);
    suspend(run(&[long]), 40);
    run(&[short, long]).wait().expect("it finishes");
    let mut expected: Vec<u64> = (0..5).chain(0..300).collect();
    expected.sort_unstable();
    assert_eq!(probe.records(), expected);
}
