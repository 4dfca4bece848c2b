//! The table against a `BTreeMap`, with views taken at random points and kept while writes go on;
//! they are confirmed, dropped and released in any order, and what they say has changed makes of the
//! confirmed state what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::mpsc;

use proptest::prelude::*;
use strandline_state::{Epoch, ErrorKind, KeyHash, Table, View};

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u8),
    Add(u16, u8),
    Change(u16),
    Remove(u16),
    RemoveBelow(u16),
    Batch(u16, u8),
    Freeze,
    Confirm(prop::sample::Index),
    DropView(prop::sample::Index),
    Release(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (any::<u16>(), any::<u8>()).prop_map(|(key, value)| Step::Insert(key, value)),
        20 => (any::<u16>(), any::<u8>()).prop_map(|(key, value)| Step::Add(key, value)),
        5 => any::<u16>().prop_map(Step::Change),
        10 => any::<u16>().prop_map(Step::Remove),
        1 => any::<u16>().prop_map(Step::RemoveBelow),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(key, count)| Step::Batch(key, count)),
        6 => Just(Step::Freeze),
        3 => any::<prop::sample::Index>().prop_map(Step::Confirm),
        2 => any::<prop::sample::Index>().prop_map(Step::DropView),
        1 => any::<prop::sample::Index>().prop_map(Step::Release),
    ]
}

type Model = BTreeMap<u16, u64>;

/// A view with what it must say.
struct Frozen {
    view: View<u16, u64>,
    model: Model,
    /// What was confirmed when it was frozen, and the keys that were written to since.
    base: Model,
    written: BTreeSet<u16>,
}

/// A table, its model, and views with the models of their time.
struct Pair {
    hash: fn(u16) -> KeyHash,
    table: Table<u16, u64>,
    model: Model,
    views: Vec<Frozen>,
    confirmed: (Epoch, Model),
    /// Each key with the epoch of its last write.
    written: BTreeMap<u16, Epoch>,
}

impl Pair {
    fn new(hash: fn(u16) -> KeyHash) -> Self {
        Self {
            hash,
            table: Table::new(),
            model: Model::new(),
            views: Vec::new(),
            confirmed: (Epoch::NONE, Model::new()),
            written: BTreeMap::new(),
        }
    }

    /// A table that begins with a checkpoint.
    fn restored(hash: fn(u16) -> KeyHash, count: u16) -> Self {
        let mut pair = Self::new(hash);
        for key in (0..count).map(|key| key.wrapping_mul(40_503)) {
            pair.table.restore(hash(key), key, 7);
            pair.model.insert(key, 7);
        }
        pair.confirmed.1.clone_from(&pair.model);
        pair
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Insert(key, value) => {
                let value = value.into();
                let before = self.table.insert((self.hash)(key), key, value);
                assert_eq!(before, self.model.insert(key, value));
                self.note(key);
            }
            Step::Add(key, value) => {
                *self.table.get_or_insert_with((self.hash)(key), &key, || 1000) += u64::from(value);
                *self.model.entry(key).or_insert(1000) += u64::from(value);
                self.note(key);
            }
            Step::Change(key) => self.change(key),
            Step::Remove(key) => self.remove(key),
            Step::RemoveBelow(bound) => {
                let below: Vec<u16> = self.model.range(..bound).map(|(key, _)| *key).collect();
                below.into_iter().for_each(|key| self.remove(key));
            }
            Step::Batch(key, count) => self.batch(key, count),
            Step::Freeze => self.freeze(),
            Step::Confirm(which) => self.confirm(which),
            Step::DropView(which) => drop(self.take(which)),
            Step::Release(which) => self.release(which),
        }
        assert_eq!(self.table.len(), self.model.len());
    }

    fn note(&mut self, key: u16) {
        self.written.insert(key, self.table.epochs().current());
    }

    fn change(&mut self, key: u16) {
        let ours = self.table.get_mut((self.hash)(key), &key);
        let theirs = self.model.get_mut(&key);
        assert_eq!(ours, theirs);
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            *ours *= 2;
            *theirs *= 2;
            self.note(key);
        }
    }

    fn remove(&mut self, key: u16) {
        let ours = self.table.remove((self.hash)(key), &key);
        assert_eq!(ours, self.model.remove(&key));
        if ours.is_some() {
            self.note(key);
        }
    }

    fn batch(&mut self, key: u16, count: u8) {
        let keys: Vec<u16> = (0..u16::from(count)).map(|n| key.wrapping_add(n * n)).collect();
        let hashes: Vec<KeyHash> = keys.iter().map(|key| (self.hash)(*key)).collect();
        let mut order = Vec::new();
        self.table.update_batch(
            &hashes,
            &keys,
            |_| 5,
            |index, value| {
                *value += 1;
                order.push(index);
            },
        );
        assert_eq!(order, (0..keys.len()).collect::<Vec<_>>());
        for key in &keys {
            *self.model.entry(*key).or_insert(5) += 1;
            self.note(*key);
        }
        self.table.get_batch(&hashes, &keys, |index, value| {
            assert_eq!(value, keys.get(index).and_then(|key| self.model.get(key)));
        });
    }

    /// At most three views are pending.
    fn freeze(&mut self) {
        if self.views.len() == 3 {
            self.views.remove(0);
        }
        let view = self.table.freeze();
        let (confirmed, base) = self.confirmed.clone();
        assert_eq!(view.confirmed(), confirmed);
        let written = self.written.iter().filter(|(_, epoch)| **epoch > confirmed);
        let written = written.map(|(key, _)| *key).collect();
        self.views.push(Frozen { view, model: self.model.clone(), base, written });
        self.views.last().expect("it was put there").check(self.hash);
    }

    fn take(&mut self, which: prop::sample::Index) -> Option<Frozen> {
        let frozen = (!self.views.is_empty()).then(|| which.index(self.views.len()))?;
        let frozen = self.views.remove(frozen);
        frozen.check(self.hash);
        Some(frozen)
    }

    fn confirm(&mut self, which: prop::sample::Index) {
        let Some(frozen) = self.take(which) else { return };
        self.table.confirm(frozen.view.epoch());
        if frozen.view.epoch() > self.confirmed.0 {
            self.confirmed = (frozen.view.epoch(), frozen.model);
        }
    }

    fn release(&mut self, which: prop::sample::Index) {
        let Some(Frozen { view, .. }) = self.take(which) else { return };
        let clone = view.clone();
        view.release();
        let error = clone.visit(|_, _, _| ControlFlow::Continue(())).expect_err("it was released");
        assert_eq!(error.kind(), ErrorKind::Released);
        if self.views.is_empty() {
            assert_eq!(self.table.held_bytes(), 0);
        }
    }

    fn check(&self) {
        let all: Vec<_> =
            self.table.iter().map(|(hash, key, value)| (hash, *key, *value)).collect();
        check_entries(all, &self.model, self.hash);
        self.views.iter().for_each(|frozen| frozen.check(self.hash));
    }
}

impl Frozen {
    fn check(&self, hash: fn(u16) -> KeyHash) {
        let Self { view, model, .. } = self;
        let mut all = Vec::new();
        view.visit(|hash, key, value| {
            all.push((hash, *key, *value));
            ControlFlow::Continue(())
        })
        .expect("it wasn't released");
        assert_eq!(view.len(), model.len());
        for (key, value) in model.iter().step_by(7) {
            assert_eq!(view.get(hash(*key), key).expect("it wasn't released"), Some(*value));
        }
        check_entries(all, model, hash);
        self.check_changes();
    }

    /// The changes make the view of what was confirmed, and name nothing that wasn't written to.
    fn check_changes(&self) {
        let (mut made, mut last, mut seen) = (self.base.clone(), None, BTreeSet::new());
        let shown = self.view.visit_changes(|hash, key, value| {
            assert!(last <= Some(hash), "changes are in the order of hashes");
            last = Some(hash);
            assert!(seen.insert(*key), "{key} is there twice");
            assert!(self.written.contains(key), "{key} was not written to");
            match value {
                Some(value) => made.insert(*key, *value),
                None => made.remove(key),
            };
            ControlFlow::Continue(())
        });
        shown.expect("it wasn't released");
        assert_eq!(made, self.model);
    }
}

fn check_entries(entries: Vec<(KeyHash, u16, u64)>, model: &Model, hash: fn(u16) -> KeyHash) {
    assert!(entries.is_sorted_by_key(|(hash, ..)| *hash));
    assert!(entries.iter().all(|(of, key, _)| *of == hash(*key)));
    let as_model: Model = entries.iter().map(|(_, key, value)| (*key, *value)).collect();
    assert_eq!(entries.len(), as_model.len());
    assert_eq!(&as_model, model);
}

fn check(steps: &[Step], hash: fn(u16) -> KeyHash) {
    let mut pair = Pair::new(hash);
    check_steps(&mut pair, steps);
}

fn check_steps(pair: &mut Pair, steps: &[Step]) {
    for (index, step) in steps.iter().enumerate() {
        pair.apply(step);
        if index % 256 == 0 {
            pair.check();
        }
    }
    pair.check();
}

fn spread(key: u16) -> KeyHash {
    KeyHash(u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn narrow(key: u16) -> KeyHash {
    KeyHash((1 << 40) - 1000 + u64::from(key % 4096))
}

fn few(key: u16) -> KeyHash {
    KeyHash(u64::from(key % 7).wrapping_mul(u64::MAX / 6))
}

fn equal(_: u16) -> KeyHash {
    KeyHash(u64::MAX)
}

/// Key numbers close to each other: the same ones come and go again and again.
fn close(step: Step) -> Step {
    match step {
        Step::Insert(key, value) => Step::Insert(key % 40, value),
        Step::Add(key, value) => Step::Add(key % 40, value),
        Step::Change(key) => Step::Change(key % 40),
        Step::Remove(key) => Step::Remove(key % 40),
        Step::RemoveBelow(key) => Step::RemoveBelow(key % 60),
        Step::Batch(key, count) => Step::Batch(key % 40, count % 7),
        Step::Freeze | Step::Confirm(_) | Step::DropView(_) | Step::Release(_) => step,
    }
}

/// How many cases each property is tried with: `STRANDLINE_CASES`, or few enough for a moment.
fn cases(few: u32) -> ProptestConfig {
    let given = std::env::var("STRANDLINE_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(given.unwrap_or(few))
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn the_table_equals_its_model(
        steps in prop::collection::vec(step(), 0..1500),
        hash in prop::sample::select(vec![spread, narrow, few, equal]),
    ) {
        check(&steps, hash);
    }
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn every_view_makes_of_what_is_confirmed_what_it_is(
        steps in prop::collection::vec(step().prop_map(close), 0..60),
        hash in prop::sample::select(vec![spread, narrow, few, equal]),
        restored in 0_u16..60,
    ) {
        check_steps(&mut Pair::restored(hash, restored), &steps);
    }
}

/// What is removed and confirmed is forgotten, and a table without anything to remember is as new.
#[test]
fn removed_keys_are_forgotten() {
    let mut pair = Pair::restored(spread, 20_000);
    let keys: Vec<u16> = pair.model.keys().copied().collect();
    for (round, keys) in keys.chunks(1_000).enumerate() {
        keys.iter().for_each(|key| pair.remove(*key));
        assert!(pair.table.gone_count() >= 1_000);
        pair.freeze();
        let view = pair.views.pop().expect("it was frozen");
        view.check(spread);
        pair.table.confirm(view.view.epoch());
        pair.confirmed = (view.view.epoch(), view.model);
        assert!(pair.table.gone_count() <= 4_000, "{round}: {}", pair.table.gone_count());
    }
}

/// An entry that comes and goes between two freezes is in no view and in no change.
#[test]
fn what_no_view_has_seen_leaves_nothing() {
    let mut table = Table::<u16, u64>::new();
    for round in 0..3 {
        for key in 0..1000 {
            table.insert(spread(key), key, 1);
        }
        for key in 0..1000 {
            table.remove(spread(key), &key);
        }
        assert_eq!(table.gone_count(), 0);
        let view = table.freeze();
        let changes = view.visit_changes(|_, key, _| panic!("{round}: {key}"));
        changes.expect("it wasn't released");
    }
}

/// The sum of all values, and how many there are.
fn summed(view: &View<u16, u64>) -> (u64, usize) {
    let mut seen = (0, 0);
    let visited = view.visit(|_, _, value| {
        seen = (seen.0 + value, seen.1 + 1);
        ControlFlow::Continue(())
    });
    visited.expect("it wasn't released");
    seen
}

/// Views are read at full speed by other threads while the table is written to.
#[test]
fn views_are_read_while_writes_go_on() {
    let mut table = Table::<u16, u64>::new();
    let (sender, views) = mpsc::channel::<(View<u16, u64>, u64, usize)>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            views.into_iter().for_each(|(view, sum, len)| assert_eq!(summed(&view), (sum, len)));
        });
        let mut sum = 0;
        for round in 0..200_u16 {
            for key in (0..2_000).map(|n: u16| n.wrapping_mul(31).wrapping_add(round)) {
                *table.get_or_insert_with(spread(key), &key, || 0) += u64::from(round);
                sum += u64::from(round);
            }
            sender.send((table.freeze(), sum, table.len())).expect("the reader lives");
        }
        drop(sender);
    });
}

/// Enough entries for segments to split, with a view held across all of it.
#[test]
fn views_outlive_splits() {
    for hash in [spread, narrow, few] {
        let mut pair = Pair::new(hash);
        let count = if hash(7) == hash(0) { 600 } else { 20_000 };
        for key in 0..count {
            pair.apply(&Step::Insert(key, 1));
            if key % 5_000 == 0 {
                pair.apply(&Step::Freeze);
            }
        }
        pair.apply(&Step::RemoveBelow(count - 10));
        pair.check();
    }
}
