//! At-least-once counts barriers without holding an input back; exactly-once holds it back.
//!
//! Two splits feed one counter. The slow split stands still in the middle of a read, so its
//! subtask can't send the barrier of the checkpoint that is asked for then. The fast split's
//! subtask sends it at once and reads on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strandline::barrier::Alignment;
use strandline::source::{Read, Source, SplitReader};
use strandline::{Environment, JobHandle, Result};
use strandline_tests::wait_until;

/// What the test and the job's tasks tell each other. Sequentially consistent throughout: a test
/// has no speed to win.
#[derive(Default)]
struct Scene {
    /// The slow split is to stand still.
    hold: AtomicBool,
    /// It does.
    held: AtomicBool,
    /// Records of the fast split that have reached the counter.
    counted: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fast,
    Slow,
}

struct TwoSplits(Arc<Scene>);

struct Reader {
    scene: Arc<Scene>,
    kind: Kind,
    next: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Next(u64);

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}", self.0)
    }
}

impl Source for TwoSplits {
    type Record = (bool, u64);
    type Position = Next;
    type Reader = Reader;

    fn splits(&self) -> Result<Vec<String>> {
        Ok(vec!["fast".to_owned(), "slow".to_owned()])
    }

    fn open(&self, split: &str, position: Option<&Next>) -> Result<Reader> {
        let kind = if split == "fast" { Kind::Fast } else { Kind::Slow };
        let next = position.map_or(0, |position| position.0);
        Ok(Reader { scene: Arc::clone(&self.0), kind, next })
    }
}

impl SplitReader for Reader {
    type Record = (bool, u64);
    type Position = Next;

    fn read(&mut self, max: usize, out: &mut Vec<(bool, u64)>) -> Result<Read> {
        let count = match self.kind {
            Kind::Fast => max as u64,
            Kind::Slow => {
                self.stand_still();
                1
            }
        };
        out.extend((self.next..self.next + count).map(|record| (self.kind == Kind::Fast, record)));
        self.next += count;
        Ok(Read::More)
    }

    fn position(&self) -> Next {
        Next(self.next)
    }
}

impl Reader {
    #[expect(clippy::disallowed_methods, reason = "this reader is slow on purpose")]
    fn stand_still(&self) {
        while self.scene.hold.load(Ordering::SeqCst) {
            self.scene.held.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn start(alignment: Alignment, scene: &Arc<Scene>) -> JobHandle {
    let mut env = Environment::new();
    env.set_parallelism(2);
    env.checkpoint_config().alignment = alignment;
    let counted = Arc::clone(scene);
    env.from_source(TwoSplits(Arc::clone(scene)))
        .uid("splits")
        .key_by(|(fast, record)| (*fast, record % 64))
        .map_with_state(move |(fast, _), _, count: &mut u64| {
            *count += 1;
            if *fast {
                counted.counted.fetch_add(1, Ordering::SeqCst);
            }
        })
        .uid("counts")
        .discard();
    env.start("at-least-once").expect("the job starts")
}

/// How many fast records are counted while the slow split stands still during a checkpoint: until
/// there are many, or until no more come.
fn counted_while_held(alignment: Alignment) -> u64 {
    const MANY: u64 = 500_000;
    let scene = Arc::new(Scene::default());
    let handle = start(alignment, &scene);
    let limit = Duration::from_secs(60);
    let counted = || scene.counted.load(Ordering::SeqCst);
    wait_until("records are counted", limit, || counted() > 10_000);
    scene.hold.store(true, Ordering::SeqCst);
    wait_until("the slow split stands still", limit, || scene.held.load(Ordering::SeqCst));
    let mut while_held = 0;
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| handle.checkpoint());
        let before = counted();
        let mut seen = before;
        loop {
            pause(Duration::from_millis(500));
            let now = counted();
            if now - before >= MANY || now == seen {
                while_held = now - before;
                break;
            }
            seen = now;
        }
        scene.hold.store(false, Ordering::SeqCst);
        let id = checkpoint.join().expect("no panic").expect("the checkpoint completes");
        assert_eq!(id.0, 1);
    });
    handle.cancel();
    handle.wait().expect("the job ends");
    while_held
}

#[expect(clippy::disallowed_methods, reason = "the test watches whether records still come")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn at_least_once_holds_no_input_back() {
    let counted = counted_while_held(Alignment::AtLeastOnce);
    assert!(counted >= 500_000, "the fast input was held back after {counted} records");
}

#[test]
fn exactly_once_holds_the_fast_input_back() {
    // What was sent before the barrier may still be counted: the channels' worth, and no more.
    let counted = counted_while_held(Alignment::Aligned);
    assert!(counted < 500_000, "the fast input was not held back: {counted} records");
}
