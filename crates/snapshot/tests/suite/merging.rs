//! Many checkpoints of changes: always whole, never many runs at a key, and not much written twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Model, claim, entries, job, publish, publish_changes, read, seed, visible};
use strandline_snapshot::{MemoryStore, Owner, Snapshot, Store, verify};

/// Numbers from a seed (SplitMix64).
struct Lots(u64);

impl Lots {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

struct World {
    store: Arc<dyn Store>,
    owner: Owner,
    number: u64,
    model: Model,
    lots: Lots,
}

impl World {
    fn new(count: u64, value_bytes: usize) -> Self {
        let seed = seed();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let owner = claim(&store, false).expect("nobody else has it");
        let model = Model::from([("table".to_owned(), entries(count, value_bytes))]);
        publish(&owner, 1, &model).expect("it can be published");
        Self { store, owner, number: 1, model, lots: Lots(seed) }
    }

    /// Publishes what `change` makes of the table; bytes written for each byte changed.
    fn step(&mut self, change: impl Fn(&mut BTreeMap<Vec<u8>, Vec<u8>>, &mut Lots)) -> f64 {
        let before = self.model.clone();
        let table = self.model.get_mut("table").expect("it is there");
        change(table, &mut self.lots);
        self.number += 1;
        let published = publish_changes(&self.owner, self.number, &before, &self.model);
        let published = published.expect("it can be published");
        self.owner.retain(1, 0).expect("it can be deleted");
        let runs = self.runs_at_a_key();
        assert!(runs <= 12, "checkpoint {}: {runs} runs speak for one key", self.number);
        let old = before.get("table").expect("it is there");
        let new = self.model.get("table").expect("it is there");
        let put = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
        let put: usize = put.map(|(key, value)| key.len() + value.len()).sum();
        let gone: usize = old.keys().filter(|key| !new.contains_key(*key)).map(Vec::len).sum();
        published.written_bytes as f64 / (put + gone).max(1) as f64
    }

    fn runs_at_a_key(&self) -> usize {
        let snapshot = Snapshot::open(&self.store, job(), self.number).expect("it is there");
        let runs: Vec<_> =
            snapshot.manifest().sections.iter().flat_map(|section| &section.runs).collect();
        let keys = self.model.values().flat_map(|table| table.keys()).step_by(97);
        let speak = |key: &Vec<u8>| {
            runs.iter().filter(|run| run.ranges.iter().any(|range| range.holds(key))).count()
        };
        keys.map(speak).max().unwrap_or(0)
    }

    fn check(&self) {
        assert_eq!(read(&self.store, self.number).expect("it can be read"), visible(&self.model));
        let report = verify(&self.store, job(), self.number).expect("it is there");
        assert_eq!(report.problems, []);
    }
}

#[test]
fn uniform_changes_are_written_a_few_times_and_read_from_few_runs() {
    // 1.5 MB, of which 1 % change each time: the scheme's third depth, and one rewrite in 125.
    let mut world = World::new(12_000, 110);
    let mut sum = 0.0;
    for round in 1..=300 {
        sum += world.step(|table, lots| {
            let keys: Vec<Vec<u8>> = table.keys().cloned().collect();
            for _ in 0..120 {
                let key = &keys[usize::try_from(lots.below(12_000)).expect("small")];
                let value = entries(1, 110).into_values().next().expect("one");
                let salt = lots.below(u64::MAX).to_le_bytes();
                table.insert(key.clone(), [&salt[..], &value[8..]].concat());
            }
        });
        if round % 50 == 0 {
            world.check();
        }
    }
    // Small runs have headers: the bound of the plan's page is 3.8 for large ones.
    assert!(sum / 300.0 < 4.6, "mean amplification {}", sum / 300.0);
}

#[test]
fn changes_of_all_kinds_are_kept() {
    let mut world = World::new(3_000, 300);
    for round in 1..=120_u64 {
        world.step(|table, lots| {
            let keys: Vec<Vec<u8>> = table.keys().cloned().collect();
            let first = usize::try_from(lots.below(keys.len() as u64 + 1)).expect("small");
            let count = usize::try_from(lots.below(if round % 17 == 0 { 2_000 } else { 60 }));
            let count = count.expect("small");
            let near = keys.iter().skip(first).take(count);
            match lots.below(4) {
                0 => near.for_each(|key| drop(table.remove(key))),
                1 => near.for_each(|key| drop(table.insert(key.clone(), vec![7; count]))),
                2 => table.extend(entries(lots.below(4_000), 20)),
                _ => near.for_each(|key| {
                    let mut longer = key.clone();
                    longer.extend(lots.below(256).to_le_bytes());
                    table.insert(longer, key.clone());
                }),
            }
        });
        if round % 10 == 0 {
            world.check();
        }
    }
}

#[test]
fn a_table_that_is_emptied_takes_no_space() {
    let mut world = World::new(30_000, 100);
    world.step(|table, _| table.clear());
    for _ in 0..3 {
        world.step(|_, _| {});
    }
    world.check();
    let objects = world.store.list("").expect("it can be listed");
    let bytes: u64 = objects.iter().map(|object| object.bytes).sum();
    assert!(bytes < 100_000, "{bytes} bytes are left: {objects:?}");
}
