//! The table against a `BTreeMap`, with views taken at random points and kept while writes go on.

use std::collections::BTreeMap;

use proptest::prelude::*;
use strandline_state::{KeyHash, Table, View};

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u8),
    Add(u16, u8),
    Change(u16),
    Remove(u16),
    RemoveBelow(u16),
    Freeze,
    DropView,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (any::<u16>(), any::<u8>()).prop_map(|(key, value)| Step::Insert(key, value)),
        20 => (any::<u16>(), any::<u8>()).prop_map(|(key, value)| Step::Add(key, value)),
        5 => any::<u16>().prop_map(Step::Change),
        10 => any::<u16>().prop_map(Step::Remove),
        1 => any::<u16>().prop_map(Step::RemoveBelow),
        4 => Just(Step::Freeze),
        2 => Just(Step::DropView),
    ]
}

type Model = BTreeMap<u16, u64>;

/// A table, its model, and views with the models of their time.
struct Pair {
    hash: fn(u16) -> KeyHash,
    table: Table<u16, u64>,
    model: Model,
    views: Vec<(View<u16, u64>, Model)>,
}

impl Pair {
    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Insert(key, value) => {
                let value = value.into();
                let before = self.table.insert((self.hash)(key), key, value);
                assert_eq!(before, self.model.insert(key, value));
            }
            Step::Add(key, value) => {
                *self.table.get_or_insert_with((self.hash)(key), &key, || 1000) += u64::from(value);
                *self.model.entry(key).or_insert(1000) += u64::from(value);
            }
            Step::Change(key) => {
                let ours = self.table.get_mut((self.hash)(key), &key);
                let theirs = self.model.get_mut(&key);
                assert_eq!(ours, theirs);
                if let (Some(ours), Some(theirs)) = (ours, theirs) {
                    *ours *= 2;
                    *theirs *= 2;
                }
            }
            Step::Remove(key) => self.remove(key),
            Step::RemoveBelow(bound) => {
                let below: Vec<u16> = self.model.range(..bound).map(|(key, _)| *key).collect();
                below.into_iter().for_each(|key| self.remove(key));
            }
            Step::Freeze => self.views.push((self.table.freeze(), self.model.clone())),
            Step::DropView => drop(self.views.pop()),
        }
        assert_eq!(self.table.len(), self.model.len());
    }

    fn remove(&mut self, key: u16) {
        assert_eq!(self.table.remove((self.hash)(key), &key), self.model.remove(&key));
    }

    fn check(&self) {
        let all: Vec<_> =
            self.table.iter().map(|(hash, key, value)| (hash, *key, *value)).collect();
        self.check_entries(all, &self.model);
        for (view, model) in &self.views {
            let all: Vec<_> = view.iter().map(|(hash, key, value)| (hash, *key, *value)).collect();
            assert_eq!(view.len(), model.len());
            assert!(
                model.iter().all(|(key, value)| view.get((self.hash)(*key), key) == Some(value))
            );
            self.check_entries(all, model);
        }
    }

    fn check_entries(&self, entries: Vec<(KeyHash, u16, u64)>, model: &Model) {
        assert!(entries.is_sorted_by_key(|(hash, ..)| *hash));
        assert!(entries.iter().all(|(hash, key, _)| *hash == (self.hash)(*key)));
        let as_model: Model = entries.iter().map(|(_, key, value)| (*key, *value)).collect();
        assert_eq!(entries.len(), as_model.len());
        assert_eq!(&as_model, model);
    }
}

fn check(steps: &[Step], hash: fn(u16) -> KeyHash) {
    let mut pair = Pair { hash, table: Table::new(), model: Model::new(), views: Vec::new() };
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_table_equals_its_model(
        steps in prop::collection::vec(step(), 0..1500),
        hash in prop::sample::select(vec![spread, narrow, few, equal]),
    ) {
        check(&steps, hash);
    }
}

/// Enough entries for segments to split, with a view held across all of it.
#[test]
fn views_outlive_splits() {
    for hash in [spread, narrow, few] {
        let mut pair = Pair { hash, table: Table::new(), model: Model::new(), views: Vec::new() };
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
