//! Nothing is left behind: what is on disk is what can be reached.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{Model, claim, entries, gentle_claim, job, read, seed, write, write_changes};
use strandline_snapshot::{Claim, MemoryStore, Owner, Pin, Snapshot, Store, history, verify};

#[test]
fn two_thousand_checkpoints_a_third_of_them_given_up_leave_nothing() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let mut lots = seed();
    let mut next = || {
        lots = lots.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        lots >> 33
    };
    let mut owner = claim(&store, false).expect("nobody else has it");
    let mut model = Model::from([("table".to_owned(), entries(400, 200))]);
    let mut published = Model::new();
    let mut number = owner.first_checkpoint();
    for _ in 0..2_000 {
        let table = model.get_mut("table").expect("it is there");
        let key = table.keys().nth(usize::try_from(next() % 400).expect("small")).cloned();
        table.insert(key.expect("there are 400"), vec![next().to_le_bytes()[0]; 200]);
        let checkpoint = owner.begin(number, owner.newest()).expect("a new number");
        let merged = checkpoint.merge().expect("it can be merged");
        let changes = write_changes(&checkpoint, "changes", &published, &model);
        let written = vec![merged, changes.expect("it can be written")];
        match next() % 10 {
            0..=2 => owner.abandon(number).expect("it can be given up"),
            // The process is killed: nothing is given back in good order.
            3 if next() % 6 == 0 => {
                std::mem::forget(owner);
                owner = claim(&store, false).expect("its owner is dead");
                number = owner.first_checkpoint() - 1;
            }
            _ => {
                owner.publish(number, written, Vec::new(), 0).expect("it can be published");
                published = model.clone();
                owner.retain(3, 0).expect("it can be deleted");
            }
        }
        number += 1;
    }
    owner.retain(3, 0).expect("it can be deleted");
    check_all_is_reachable(&store);
}

/// Each pack is missed by some checkpoint; but for packs, there is one manifest for each
/// checkpoint, two records for each owner, one lease, and the job.
fn check_all_is_reachable(store: &Arc<dyn Store>) {
    let listed = history(store, job()).expect("it can be listed");
    let objects = store.list("").expect("it can be listed");
    let in_folder = |name: &str| {
        let prefix = format!("{}/{name}", job());
        objects.iter().filter(move |object| object.path.starts_with(&prefix))
    };
    assert_eq!(in_folder("chk-").count(), listed.len());
    assert_eq!(in_folder("fence/").count(), in_folder("accepted/").count());
    assert_eq!((in_folder("lease/").count(), in_folder("pins/").count()), (1, 0));
    let mut missed = BTreeSet::new();
    for pack in in_folder("shared/") {
        let len = usize::try_from(pack.bytes).expect("small");
        let bytes = store.read(&pack.path, 0, len).expect("it can be read");
        store.delete(&pack.path).expect("it can be deleted");
        let is_missed = |of: &strandline_snapshot::Listed| {
            !verify(store, job(), of.checkpoint).expect("it is there").problems.is_empty()
        };
        if listed.iter().any(is_missed) {
            missed.insert(&pack.path);
        }
        store.create(&pack.path, &bytes).expect("it can be put back");
    }
    assert_eq!(missed.len(), in_folder("shared/").count(), "packs that nobody names are left");
    let known = ["chk-", "fence/", "accepted/", "lease/", "shared/", "_job"];
    let count: usize = known.iter().map(|name| in_folder(name).count()).sum();
    assert_eq!(count, objects.len(), "{objects:?}");
}

#[test]
fn what_a_reader_has_pinned_stays_until_it_lets_go() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let owner = claim(&store, false).expect("nobody else has it");
    let first = Model::from([("table".to_owned(), entries(3_000, 50))]);
    // Other keys: with the same ones the filter would be shared.
    let second = Model::from([("table".to_owned(), entries(2_999, 51))]);
    let publish = |number, model| crate::common::publish(&owner, number, model);
    publish(1, &first).expect("it can be published");
    let opened = Pin::open(&store, job(), 1, "a test", 1_000).expect("it is there");
    let unpinned = Snapshot::open(&store, job(), 1).expect("it is there");
    publish(2, &second).expect("it can be published");
    assert_eq!(owner.retain(1, 500).expect("it can be deleted").packs, 0);
    let report = opened.1.verify(&mut |_| std::ops::ControlFlow::Continue(()));
    assert_eq!(report.expect("its packs are there").problems, []);
    drop(opened);
    assert_eq!(owner.retain(1, 500).expect("it can be deleted").packs, 1);
    // Who has no pin is told what has happened: nothing is damaged.
    let error = unpinned
        .get("table", b"x")
        .and_then(|_| unpinned.visit("table", &mut |_, _| std::ops::ControlFlow::Continue(())));
    let kind = error.expect_err("its packs are gone").kind();
    assert_eq!(kind, strandline_snapshot::ErrorKind::Subsumed);
    assert_eq!(read(&store, 2).expect("it is whole"), second);
}

#[test]
fn a_pin_that_nobody_lets_go_of_expires() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let owner = claim(&store, false).expect("nobody else has it");
    let model = |bytes| Model::from([("table".to_owned(), entries(300, bytes))]);
    crate::common::publish(&owner, 1, &model(50)).expect("it can be published");
    std::mem::forget(Pin::open(&store, job(), 1, "a test", 1_000).expect("it is there"));
    crate::common::publish(&owner, 2, &model(51)).expect("it can be published");
    assert_eq!(owner.retain(1, 60_999).expect("it can be deleted").packs, 0);
    assert_eq!(owner.retain(1, 61_000).expect("it can be deleted").packs, 1);
    assert_eq!(store.list(&format!("{}/pins/", job())).expect("it can be listed"), []);
}

#[test]
fn a_number_that_was_given_up_never_comes_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let owner = claim(&store, false).expect("nobody else has it");
    let checkpoint = owner.begin(7, None).expect("a new number");
    write(&checkpoint, "all", &Model::from([("table".to_owned(), entries(3, 3))])).expect("it can");
    owner.abandon(7).expect("it can be given up");
    std::mem::forget(owner);
    let next = claim(&store, false).expect("its owner is dead");
    assert!(next.first_checkpoint() > 7, "{}", next.first_checkpoint());
    assert!(next.begin(7, None).is_err());
    drop(next);
    let floor = Claim { above: 100, ..gentle_claim() };
    let next = Owner::claim(store, floor).expect("its owner has let go");
    assert_eq!(next.first_checkpoint(), 101);
}
