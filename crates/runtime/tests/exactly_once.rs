//! Jobs that are cut short at random and go on at another parallelism give what one run without
//! interruption gives: running counts per key, and tumbling windows of event time, against a naive
//! model.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde::{Deserialize, Serialize};
use strandline_barrier::CheckpointId;
use strandline_runtime::sink::{Committable, Prepared, Sink, SinkOwner, SinkWriter};
use strandline_runtime::source::{Read, Source, SplitReader};
use strandline_runtime::{
    Aggregate, Environment, ErrorKind, JobHandle, JobOutcome, Result, Window,
};
use strandline_snapshot::{MemoryStore, Store};

/// A record: key and event time.
type Record = (u8, i64);

/// Splits of records, read a few at a time.
#[derive(Clone)]
struct Splits(Arc<Vec<Vec<Record>>>);

struct Reader {
    splits: Splits,
    split: usize,
    next: usize,
}

#[derive(Clone, Serialize, Deserialize)]
struct Next(usize);

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}", self.0)
    }
}

impl Source for Splits {
    type Record = Record;
    type Position = Next;
    type Reader = Reader;

    fn splits(&self) -> Result<Vec<String>> {
        Ok((0..self.0.len()).map(|split| split.to_string()).collect())
    }

    fn open(&self, split: &str, position: Option<&Next>) -> Result<Reader> {
        let split = split.parse().expect("split names are numbers");
        let next = position.map_or(0, |position| position.0);
        Ok(Reader { splits: self.clone(), split, next })
    }
}

impl SplitReader for Reader {
    type Record = Record;
    type Position = Next;

    fn read(&mut self, max: usize, out: &mut Vec<Record>) -> Result<Read> {
        let records = self.splits.0.get(self.split).expect("the splits are what they were");
        let end = records.len().min(self.next + max.min(7));
        out.extend_from_slice(records.get(self.next..end).unwrap_or_default());
        self.next = end;
        Ok(if end == records.len() { Read::End } else { Read::More })
    }

    fn position(&self) -> Next {
        Next(self.next)
    }
}

/// Output that outlives its job: staged pieces and committed ones, by name.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Pieces>>);

#[derive(Default)]
struct Pieces {
    staged: BTreeMap<String, Vec<String>>,
    committed: BTreeMap<String, Vec<String>>,
}

struct Writer {
    shelf: Shelf,
    place: String,
    open: Vec<String>,
}

impl Shelf {
    fn commit(&self, committables: &[Committable]) {
        let mut pieces = self.0.lock();
        for Committable { name, .. } in committables {
            match pieces.staged.remove(name) {
                Some(lines) => assert!(pieces.committed.insert(name.clone(), lines).is_none()),
                None => assert!(pieces.committed.contains_key(name), "{name} was never staged"),
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.0.lock().committed.values().flatten().cloned().collect();
        lines.sort();
        lines
    }
}

impl Sink for Shelf {
    type Record = String;
    type Writer = Writer;

    fn check_fresh(&self) -> Result<()> {
        assert!(self.0.lock().committed.is_empty(), "a fresh start behind committed output");
        Ok(())
    }

    fn start_fresh(&self, _owner: &SinkOwner) -> Result<()> {
        self.0.lock().staged.clear();
        Ok(())
    }

    fn recover(
        &self,
        _: &SinkOwner,
        restored: CheckpointId,
        pending: Vec<Committable>,
    ) -> Result<()> {
        assert!(pending.iter().all(|piece| piece.checkpoint <= restored));
        self.commit(&pending);
        self.0.lock().staged.clear();
        Ok(())
    }

    fn writer(&self, owner: &SinkOwner, subtask: u32) -> Result<Writer> {
        let place = format!("{}-{subtask}", owner.token);
        Ok(Writer { shelf: self.clone(), place, open: Vec::new() })
    }
}

impl SinkWriter for Writer {
    type Record = String;

    fn write(&mut self, batch: &mut Vec<String>) -> Result<()> {
        self.open.append(batch);
        Ok(())
    }

    fn prepare(&mut self, id: CheckpointId) -> Result<Prepared> {
        let name = format!("{id}-{}", self.place);
        let lines = std::mem::take(&mut self.open);
        self.shelf.0.lock().staged.insert(name.clone(), lines);
        let committables = vec![Committable { checkpoint: id, name }];
        Ok(Prepared { committables, make_durable: Box::new(|| Ok(())) })
    }

    fn commit(&mut self, committables: &[Committable]) -> Result<()> {
        self.shelf.commit(committables);
        Ok(())
    }
}

#[derive(Clone)]
struct Count;

impl Aggregate for Count {
    type In = Record;
    type Key = u8;
    type Accumulator = u64;
    type Out = String;

    fn add(&self, _: Record, count: &mut u64) {
        *count += 1;
    }

    fn result(&self, key: &u8, window: Window, count: u64) -> String {
        format!("{key} {} {count}", window.start_ms)
    }
}

const WINDOW_MS: i64 = 10;

/// More than any disorder in the input, so that nothing is late.
const LATENESS: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
enum Shape {
    RunningCounts,
    Windows,
}

fn start(
    shape: Shape,
    splits: &Splits,
    store: &Arc<dyn Store>,
    shelf: &Shelf,
    parallelism: u32,
) -> JobHandle {
    let mut env = Environment::new();
    env.set_parallelism(parallelism);
    env.checkpoint_store(Arc::clone(store));
    let records = env.from_source(splits.clone()).uid("splits");
    match shape {
        Shape::RunningCounts => records
            .key_by(|record| record.0)
            .map_with_state(|key, _, count: &mut u64| {
                *count += 1;
                format!("{key} {count}")
            })
            .uid("counts")
            .sink_to(shelf.clone())
            .uid("out"),
        Shape::Windows => {
            let (counts, _late) = records
                .event_time(|record| record.1, LATENESS)
                .uid("time")
                .key_by(|record| record.value.0)
                .window(Duration::from_millis(WINDOW_MS.unsigned_abs()))
                .aggregate(Count);
            counts.uid("windows").sink_to(shelf.clone()).uid("out")
        }
    };
    env.start("exactly once").expect("the job starts")
}

fn model(shape: Shape, splits: &Splits) -> Vec<String> {
    let records = splits.0.iter().flatten();
    let mut lines = Vec::new();
    match shape {
        Shape::RunningCounts => {
            let mut counts: BTreeMap<u8, u64> = BTreeMap::new();
            for (key, _) in records {
                let count = counts.entry(*key).or_default();
                *count += 1;
                lines.push(format!("{key} {count}"));
            }
        }
        Shape::Windows => {
            let mut counts: BTreeMap<(u8, i64), u64> = BTreeMap::new();
            for (key, time) in records {
                let start = time.div_euclid(WINDOW_MS) * WINDOW_MS;
                *counts.entry((*key, start)).or_default() += 1;
            }
            lines.extend(
                counts.iter().map(|((key, start), count)| format!("{key} {start} {count}")),
            );
        }
    }
    lines.sort();
    lines
}

/// How one run is cut short.
#[derive(Clone, Debug)]
enum Cut {
    /// This many checkpoints, then the end without a word.
    Cancel { checkpoints: u8 },
    /// A last checkpoint.
    Suspend,
}

fn cut_short(handle: JobHandle, cut: &Cut) {
    match cut {
        Cut::Cancel { checkpoints } => {
            for _ in 0..*checkpoints {
                // The job may be over already, or on its way out.
                handle.checkpoint().ok();
            }
            handle.cancel();
        }
        Cut::Suspend => handle.suspend(Duration::from_secs(60)),
    }
    handle.wait().expect("the job ends in order");
}

fn check(shape: Shape, splits: Vec<Vec<Record>>, runs: &[(u32, Cut)]) {
    let splits = Splits(Arc::new(splits));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let shelf = Shelf::default();
    for (parallelism, cut) in runs {
        let handle = start(shape, &splits, &store, &shelf, *parallelism);
        cut_short(handle, cut);
    }
    let ended = start(shape, &splits, &store, &shelf, 2).wait().expect("the job ends in order");
    let finished =
        matches!(ended.outcome, JobOutcome::Finished { .. } | JobOutcome::AlreadyFinished { .. });
    assert!(finished, "{ended:?}");
    assert_eq!(shelf.lines(), model(shape, &splits));
}

fn splits() -> impl Strategy<Value = Vec<Vec<Record>>> {
    // Event time rises with a disorder of at most 100 ms.
    let split = prop::collection::vec((0_u8..20, 0_i64..100), 0..400).prop_map(|records| {
        let time = |(index, (key, jitter)): (i64, Record)| (key, index + jitter);
        (0..).zip(records).map(time).collect()
    });
    prop::collection::vec(split, 0..5)
}

fn runs() -> impl Strategy<Value = Vec<(u32, Cut)>> {
    let cut = prop_oneof![
        3 => (0_u8..4).prop_map(|checkpoints| Cut::Cancel { checkpoints }),
        1 => Just(Cut::Suspend),
    ];
    prop::collection::vec((1_u32..6, cut), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn running_counts(splits in splits(), runs in runs()) {
        check(Shape::RunningCounts, splits, &runs);
    }

    #[test]
    fn windows(splits in splits(), runs in runs()) {
        check(Shape::Windows, splits, &runs);
    }
}

#[test]
fn no_input_at_all_finishes() {
    check(Shape::RunningCounts, Vec::new(), &[]);
    check(Shape::Windows, vec![Vec::new()], &[(3, Cut::Suspend)]);
}

#[test]
fn a_panic_in_user_code_fails_the_job_and_not_the_process() {
    let mut env = Environment::new();
    let splits = Splits(Arc::new(vec![vec![(1, 1), (2, 2)]]));
    env.from_source(splits)
        .uid("splits")
        .map(|record| {
            assert!(record.0 != 2, "two is refused");
            record
        })
        .uid("refuses two")
        .discard();
    let error = env.execute("panics").expect_err("the job fails");
    assert_eq!(error.kind(), ErrorKind::Operator);
    assert!(error.full().contains("two is refused"), "{}", error.full());
}

#[test]
fn a_float_in_the_key_is_refused_before_anything_starts() {
    #[derive(Clone, PartialEq, Serialize, Deserialize)]
    struct Point {
        x: f64,
    }
    impl Eq for Point {}
    let mut env = Environment::new();
    env.from_source(Splits(Arc::new(Vec::new())))
        .map(|record| Point { x: f64::from(record.0) })
        .key_by(Clone::clone)
        .map_with_state(|_, _, _: &mut u64| ())
        .discard();
    let error = env.start("floats").expect_err("the key is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.full().contains("f64"), "{}", error.full());
}

#[test]
fn two_operators_with_one_uid_are_refused() {
    let mut env = Environment::new();
    let source = env.from_source(Splits(Arc::new(Vec::new()))).uid("same");
    source.map(|record| record).uid("same").discard();
    let error = env.start("twice").expect_err("the graph is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.full().contains("`same`"), "{}", error.full());
}

#[test]
fn state_without_an_operator_is_refused() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let splits = Splits(Arc::new(vec![vec![(1, 1); 100]]));
    let run = |uid: &str| {
        let mut env = Environment::new();
        env.checkpoint_store(Arc::clone(&store));
        env.config().rate = Some(50);
        env.from_source(splits.clone())
            .uid("splits")
            .key_by(|record| record.0)
            .map_with_state(|_, _, count: &mut u64| *count += 1)
            .uid(uid)
            .discard();
        env.start("renamed")
    };
    let handle = run("before").expect("the job starts");
    while handle.progress().records_read == 0 {
        assert!(!handle.wait_for(Duration::from_millis(1)), "the job is slow");
    }
    handle.suspend(Duration::from_secs(60));
    handle.wait().expect("the job ends in order");
    let error = run("after").expect_err("the state has no operator");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.full().contains("before/value"), "{}", error.full());
}
