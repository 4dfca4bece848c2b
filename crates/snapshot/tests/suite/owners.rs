//! Who owns a job: leases where there are no locks, and two owners in every interleaving that a
//! small model reaches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

use turns::Turns;

use crate::common::{Model, entries, gentle_claim, job, publish, read, seed, write};
use strandline_snapshot::{
    Attempt, Claim, Claimant, ErrorKind, MemoryStore, Object, Owner, Result, Store, Upload,
    history, verify,
};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

fn claimed(attempt: Attempt) -> Owner {
    match attempt {
        Attempt::Claimed(owner) => *owner,
        Attempt::Wait(ms) => panic!("it should be claimed, and has to wait {ms} ms"),
    }
}

#[test]
fn a_dead_owner_is_waited_for_as_long_as_its_lease_and_no_longer() {
    let store = memory();
    let claim = || Claim { lease_ms: 1_000, ..gentle_claim() };
    let dead = Owner::claim(Arc::clone(&store), claim()).expect("nobody else has it");
    publish(&dead, 1, &Model::new()).expect("it can be published");
    std::mem::forget(dead);
    let mut next = Claimant::new(Arc::clone(&store), claim());
    let wait = |attempt: Attempt| match attempt {
        Attempt::Wait(ms) => ms,
        Attempt::Claimed(_) => panic!("the last owner may be alive"),
    };
    assert_eq!(wait(next.attempt(5_000).expect("it looks")), 1_000);
    assert_eq!(wait(next.attempt(5_999).expect("it looks")), 1);
    let owner = claimed(next.attempt(6_000).expect("its lease has run out"));
    assert_eq!(owner.accepted().map(|listed| listed.checkpoint), Some(1));
}

#[test]
fn an_owner_that_is_well_is_not_overtaken() {
    let store = memory();
    let owner = Owner::claim(Arc::clone(&store), gentle_claim()).expect("nobody else has it");
    let mut other = Claimant::new(Arc::clone(&store), gentle_claim());
    assert!(matches!(other.attempt(0), Ok(Attempt::Wait(15_000))));
    owner.renew(123_456).expect("it is the owner");
    let error = other.attempt(10_000).expect_err("it gave a sign");
    assert_eq!(error.kind(), ErrorKind::Held);
    for part in ["a test", "here", "123456"] {
        assert!(error.to_string().contains(part), "{part} is not in: {error}");
    }
    let error = Owner::claim(Arc::clone(&store), gentle_claim()).expect_err("it may be alive");
    assert_eq!(error.kind(), ErrorKind::Held);
    publish(&owner, 1, &Model::new()).expect("nobody has taken over");
}

#[test]
fn an_owner_that_has_ended_well_is_not_waited_for() {
    let store = memory();
    drop(Owner::claim(Arc::clone(&store), gentle_claim()).expect("nobody else has it"));
    assert!(Owner::claim(store, gentle_claim()).is_ok());
}

#[test]
fn an_owner_that_was_overtaken_learns_of_it_and_can_do_no_harm() {
    let store = memory();
    let model = Model::from([("table".to_owned(), entries(100, 10))]);
    let paused = Owner::claim(Arc::clone(&store), gentle_claim()).expect("nobody else has it");
    publish(&paused, 1, &model).expect("it can be published");
    let by_hand = Claim { take_over: true, ..gentle_claim() };
    let owner = Owner::claim(Arc::clone(&store), by_hand).expect("it is taken over by hand");
    publish(&owner, 2, &model).expect("it can be published");
    for error in [
        paused.renew(0).expect_err("it is not the owner"),
        publish(&paused, 5, &model).expect_err("it is not the owner"),
        paused.retain(1, 0).map(drop).expect_err("it is not the owner"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    }
    drop(paused);
    owner.renew(0).expect("it is still the owner");
    assert_eq!(read(&store, 2).expect("it is whole"), model);
}

#[expect(clippy::indexing_slicing, reason = "there are two")]
mod turns {
    use super::*;

    /// Lets one of two threads do one storage operation at a time, as a schedule says: for each turn,
    /// after how many operations the other one is on.
    pub(super) struct Turns {
        pub(super) state: Mutex<TurnState>,
        changed: Condvar,
    }

    pub(super) struct TurnState {
        on: usize,
        left: u64,
        schedule: Vec<u64>,
        ended: [bool; 2],
        pub(super) operations: [u64; 2],
    }

    impl Turns {
        pub(super) fn new(schedule: &[u64]) -> Arc<Self> {
            let mut schedule: Vec<u64> = schedule.iter().rev().copied().collect();
            let left = schedule.pop().unwrap_or(u64::MAX);
            let (ended, operations) = ([false; 2], [0; 2]);
            let state = TurnState { on: 0, left, schedule, ended, operations };
            Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
        }

        /// Waits for a turn and does the operation. The lock is held meanwhile: one at a time.
        pub(super) fn take<T>(&self, who: usize, operation: impl FnOnce() -> T) -> T {
            let mut state = self.state.lock();
            while state.on != who {
                self.changed.wait(&mut state);
            }
            let done = operation();
            state.operations[who] += 1;
            state.left = state.left.saturating_sub(1);
            if state.left == 0 {
                self.pass(&mut state);
            }
            done
        }

        fn pass(&self, state: &mut TurnState) {
            if !state.ended[1 - state.on] {
                state.on = 1 - state.on;
            }
            state.left = state.schedule.pop().unwrap_or(u64::MAX);
            self.changed.notify_all();
        }

        pub(super) fn end(&self, who: usize) {
            let mut state = self.state.lock();
            while state.on != who {
                self.changed.wait(&mut state);
            }
            state.ended[who] = true;
            self.pass(&mut state);
        }
    }
}

/// A store whose operations wait for their turn.
struct Shared {
    store: Arc<dyn Store>,
    turns: Arc<Turns>,
    who: usize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "owner {}", self.who)
    }
}

impl Shared {
    fn turn<T>(&self, operation: impl FnOnce(&dyn Store) -> T) -> T {
        self.turns.take(self.who, || operation(&*self.store))
    }
}

impl Store for Shared {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.turn(|store| store.create(path, bytes))
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        let upload = self.store.put(path)?;
        Ok(Box::new(SharedUpload { upload, turns: Arc::clone(&self.turns), who: self.who }))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.turn(|store| store.read(path, offset, len))
    }

    fn size(&self, path: &str) -> Result<u64> {
        self.store.size(path)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.turn(|store| store.list(prefix))
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.turn(|store| store.delete(path))
    }

    fn location(&self) -> String {
        self.store.location()
    }
}

struct SharedUpload {
    upload: Box<dyn Upload>,
    turns: Arc<Turns>,
    who: usize,
}

impl Upload for SharedUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.upload.write(bytes)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        let Self { upload, turns, who } = *self;
        turns.take(who, || upload.finish())
    }
}

fn model(who: usize, number: u64) -> Model {
    let value = format!("{number} by {who}").into_bytes();
    let mut entries = entries(30, 8);
    entries.insert(b"who".to_vec(), value);
    Model::from([("table".to_owned(), entries)])
}

/// What an owner believes: the checkpoint that it goes on from, and those that it has reported.
#[derive(Debug, Default)]
struct Line {
    claimed: bool,
    accepted: Option<u64>,
    reported: Vec<u64>,
}

/// Claims, publishes twice, and retains one each time, until it learns that it is overtaken.
fn live(store: &Arc<dyn Store>, who: usize) -> Line {
    let mut line = Line::default();
    let claim = Claim { take_over: true, holder: format!("owner {who}"), ..gentle_claim() };
    let Ok(owner) = Owner::claim(Arc::clone(store), claim) else {
        return line;
    };
    line.claimed = true;
    line.accepted = owner.accepted().map(|listed| listed.checkpoint);
    let first = owner.first_checkpoint();
    for number in first..first + 2 {
        let Ok(checkpoint) = owner.begin(number, owner.newest()) else { break };
        let Ok(written) = write(&checkpoint, "all", &model(who, number)) else { break };
        if owner.publish(number, vec![written], Vec::new(), 0).is_err() {
            break;
        }
        line.reported.push(number);
        if owner.retain(1, 0).is_err() {
            break;
        }
    }
    line
}

/// Runs two owners by a schedule; how many operations each has done.
fn run(schedule: &[u64]) -> [u64; 2] {
    let store = memory();
    let turns = Turns::new(schedule);
    let start = |who: usize| {
        let (turns, store) = (Arc::clone(&turns), Arc::clone(&store));
        #[expect(clippy::disallowed_methods, reason = "two owners")]
        thread::spawn(move || {
            let shared: Arc<dyn Store> = Arc::new(Shared { store, turns: Arc::clone(&turns), who });
            let line = live(&shared, who);
            turns.end(who);
            line
        })
    };
    let threads = [start(0), start(1)];
    let lines = threads.map(|thread| thread.join().expect("no owner panics"));
    check(&store, &lines, schedule);
    let state = turns.state.lock();
    state.operations
}

fn check(store: &Arc<dyn Store>, lines: &[Line; 2], schedule: &[u64]) {
    let listed = history(store, job()).expect("it can be listed");
    let numbers: BTreeSet<u64> = listed.iter().map(|listed| listed.checkpoint).collect();
    let context = || format!("schedule {schedule:?}: {lines:?}, listed {numbers:?}");
    let mut reporters = BTreeMap::new();
    for (who, line) in lines.iter().enumerate() {
        for number in &line.reported {
            let before = reporters.insert(*number, who);
            assert_eq!(before, None, "a number was reported twice: {}", context());
        }
    }
    for number in &numbers {
        let report = verify(store, job(), *number).expect("it is listed");
        assert_eq!(report.problems, [], "{}", context());
        let read = read(store, *number).expect("it is whole");
        let of = (0..2).find(|who| read == model(*who, *number));
        assert!(of.is_some(), "{number} is what nobody wrote: {}", context());
        if let Some(reporter) = reporters.get(number) {
            assert_eq!(of, Some(*reporter), "{number} is another's: {}", context());
        }
    }
    // What was reported is on the line that goes on: the newest one that counts is at or above it.
    let newest = numbers.iter().next_back().copied();
    let reported = reporters.keys().next_back().copied();
    assert!(newest >= reported, "a reported checkpoint is lost: {}", context());
    check_one_line(lines, &context);
}

/// Of two owners who have both reported something, one has accepted what the other had.
fn check_one_line(lines: &[Line; 2], context: &dyn Fn() -> String) {
    let goes_on_from = |later: &Line, earlier: &Line| {
        earlier.reported.iter().all(|number| later.accepted.is_some_and(|of| *number <= of))
    };
    let [a, b] = lines;
    if a.reported.is_empty() || b.reported.is_empty() {
        return;
    }
    assert!(goes_on_from(a, b) || goes_on_from(b, a), "two lines are believed: {}", context());
    assert!(a.claimed && b.claimed);
}

#[test]
fn of_two_owners_only_one_line_is_believed() {
    let [alone, _] = run(&[]);
    assert!(alone > 30, "there is something to interleave: {alone}");
    // One owner pauses anywhere, for any while: all such schedules.
    for pause in 1..=alone {
        for others in 1..=alone {
            run(&[pause, others]);
        }
    }
    // Several pauses: some.
    let mut lots = seed();
    for _ in 0..1_500 {
        let schedule: Vec<u64> = (0..6)
            .map(|_| {
                lots = lots.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                1 + (lots >> 33) % (alone / 2)
            })
            .collect();
        run(&schedule);
    }
}
