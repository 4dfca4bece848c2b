//! Random histories of a job against a plain map for each checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::{Model, claim, job, publish, read, visible, write, write_changes};
use proptest::prelude::*;
use strandline_snapshot::{
    Checkpoint, LocalStore, MemoryStore, Owner, Snapshot, Store, history, verify,
};

#[derive(Clone, Debug)]
enum Op {
    /// Puts or deletes a few keys of a section.
    Change {
        section: u8,
        keys: Vec<(u8, Option<u8>)>,
    },
    /// Publishes everything.
    Publish,
    /// Publishes changes since the newest one, and merges if told so.
    PublishChanges {
        merge: bool,
    },
    /// Writes and gives up.
    Abandon {
        changes: bool,
    },
    Retain(usize),
    /// The process is gone; with `wrote`, after it had written a pack for a checkpoint.
    Crash {
        wrote: bool,
        fresh: bool,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let keys = prop::collection::vec((any::<u8>(), prop::option::of(any::<u8>())), 1..40);
    let op = prop_oneof![
        4 => (0_u8..3, keys).prop_map(|(section, keys)| Op::Change { section, keys }),
        2 => Just(Op::Publish),
        6 => any::<bool>().prop_map(|merge| Op::PublishChanges { merge }),
        1 => any::<bool>().prop_map(|changes| Op::Abandon { changes }),
        2 => (1_usize..4).prop_map(Op::Retain),
        1 => (any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(wrote, fresh)| Op::Crash { wrote, fresh }),
    ];
    prop::collection::vec(op, 1..24)
}

struct World {
    store: Arc<dyn Store>,
    owner: Option<Owner>,
    next: u64,
    state: Model,
    /// What every completed checkpoint that counts must read as.
    expected: BTreeMap<u64, Model>,
}

impl World {
    fn new(store: Arc<dyn Store>) -> Self {
        let owner = claim(&store, false).expect("nobody else has it");
        let next = owner.first_checkpoint();
        Self { store, owner: Some(owner), next, state: Model::new(), expected: BTreeMap::new() }
    }

    fn owner(&self) -> &Owner {
        self.owner.as_ref().expect("there is an owner between operations")
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Change { section, keys } => self.change(section, keys),
            Op::Publish => {
                publish(self.owner(), self.next, &self.state).expect("it can be published");
                self.expected.insert(self.next, visible(&self.state));
                self.next += 1;
            }
            Op::PublishChanges { merge } => self.publish_changes(merge),
            Op::Abandon { changes } => {
                let checkpoint = self.begin();
                if changes {
                    let before = self.newest();
                    write_changes(&checkpoint, "given-up", &before, &self.state)
                } else {
                    write(&checkpoint, "given-up", &self.state)
                }
                .expect("it can be written");
                self.owner().abandon(self.next).expect("it can be given up");
                self.next += 1;
            }
            Op::Retain(count) => {
                self.owner().retain(count, 0).expect("it can be deleted");
                while self.expected.len() > count {
                    self.expected.pop_first();
                }
                self.check_no_garbage();
            }
            Op::Crash { wrote, fresh } => self.crash(wrote, fresh),
        }
    }

    fn begin(&self) -> Checkpoint {
        self.owner().begin(self.next, self.owner().newest()).expect("a new number")
    }

    /// What the newest checkpoint holds.
    fn newest(&self) -> Model {
        self.expected.values().next_back().cloned().unwrap_or_default()
    }

    fn publish_changes(&mut self, merge: bool) {
        let checkpoint = self.begin();
        let mut written = Vec::new();
        if merge {
            written.push(checkpoint.merge().expect("it can be merged"));
        }
        let changes = write_changes(&checkpoint, "changes", &self.newest(), &self.state);
        written.push(changes.expect("it can be written"));
        let published = self.owner().publish(self.next, written, Vec::new(), 0);
        published.expect("it can be published");
        self.expected.insert(self.next, visible(&self.state));
        self.next += 1;
    }

    fn change(&mut self, section: u8, keys: Vec<(u8, Option<u8>)>) {
        let entries = self.state.entry(format!("section-{section}")).or_default();
        for (key, value) in keys {
            // Values that make several chunks, and equal ones too.
            let key = blake3::hash(&[key % 80]).as_bytes()[..9].to_vec();
            match value {
                Some(value) => drop(entries.insert(key, vec![value; 900])),
                None => drop(entries.remove(&key)),
            }
        }
    }

    fn crash(&mut self, wrote: bool, fresh: bool) {
        if wrote {
            let checkpoint = self.begin();
            write(&checkpoint, "never-published", &self.state).expect("it can be written");
        }
        self.owner = None;
        let owner = claim(&self.store, fresh).expect("the one before has gone");
        let newest = self.expected.keys().next_back().copied().unwrap_or(0);
        let trace = wrote && !visible(&self.state).is_empty();
        let floor = if trace { self.next } else { newest };
        assert!(owner.first_checkpoint() > floor, "numbers that left a trace are never used again");
        self.next = owner.first_checkpoint();
        if fresh {
            self.expected.clear();
        }
        let newest = owner.accepted().map(|listed| listed.checkpoint);
        assert_eq!(newest, self.expected.keys().next_back().copied());
        self.owner = Some(owner);
    }

    /// Every checkpoint that counts reads as its model, and there is no other.
    fn check(&self) {
        let listed = history(&self.store, job()).expect("it can be listed");
        let numbers: Vec<u64> = listed.iter().map(|listed| listed.checkpoint).collect();
        assert_eq!(numbers, self.expected.keys().copied().collect::<Vec<_>>());
        for (number, model) in &self.expected {
            assert_eq!(&read(&self.store, *number).expect("it can be read"), model);
        }
    }

    /// At the end: verified too, and read key by key, through maps where there are some.
    fn check_closely(&self) {
        for (number, model) in &self.expected {
            let report = verify(&self.store, job(), *number).expect("it can be verified");
            assert_eq!(report.problems, []);
            let snapshot = Snapshot::open(&self.store, job(), *number).expect("it is there");
            let snapshot = snapshot.mapped().with_cache_bytes(20_000);
            for section in (0..3).map(|section| format!("section-{section}")) {
                check_keys(&snapshot, &section, model);
            }
        }
    }

    /// After a retention every pack is named by some checkpoint.
    fn check_no_garbage(&self) {
        let mut named = BTreeSet::new();
        for number in self.expected.keys() {
            named.extend(packs_of(&self.store, *number));
        }
        let prefix = format!("{}/shared/", job());
        let there = self.store.list(&prefix).expect("it can be listed");
        let there: BTreeSet<String> =
            there.into_iter().map(|object| object.path[prefix.len()..].to_owned()).collect();
        assert_eq!(there, named);
    }
}

/// Each key that there ever was has its value, or none.
fn check_keys(snapshot: &Snapshot, section: &str, model: &Model) {
    let entries = model.get(section);
    for key in (0_u8..80).map(|key| blake3::hash(&[key]).as_bytes()[..9].to_vec()) {
        let value = snapshot.get(section, &key).expect("it can be read");
        assert_eq!(value.as_ref(), entries.and_then(|of| of.get(&key)));
    }
}

/// Packs whose removal a checkpoint would notice.
fn packs_of(store: &Arc<dyn Store>, number: u64) -> Vec<String> {
    let prefix = format!("{}/shared/", job());
    let objects = store.list(&prefix).expect("it can be listed");
    let names = objects.into_iter().map(|object| object.path);
    let noticed = names.filter(|path| {
        let len = usize::try_from(store.size(path).expect("it is there")).expect("it is small");
        let bytes = store.read(path, 0, len).expect("it can be read");
        store.delete(path).expect("it can be deleted");
        let report = verify(store, job(), number).expect("its manifest is there");
        store.create(path, &bytes).expect("it can be put back");
        !report.problems.is_empty()
    });
    noticed.map(|path| path[prefix.len()..].to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn every_checkpoint_reads_as_it_was_written(ops in ops()) {
        let mut world = World::new(Arc::new(MemoryStore::default()));
        for op in ops {
            world.apply(op);
            world.check();
        }
        world.check_closely();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn in_a_folder_too(ops in ops()) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut world = World::new(Arc::new(LocalStore::new(folder.path())));
        for op in ops {
            world.apply(op);
            world.check();
        }
        world.check_closely();
    }
}
