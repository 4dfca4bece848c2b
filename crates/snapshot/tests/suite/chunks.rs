//! Where runs are cut: the same on every path, and local changes stay local.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Model, claim, entries, publish, read, write};
use proptest::prelude::*;
use strandline_snapshot::{Contents, MemoryStore, Store};

fn model(entries: BTreeMap<Vec<u8>, Vec<u8>>) -> Model {
    Model::from([("table".to_owned(), entries)])
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

#[test]
fn unchanged_state_written_again_adds_no_chunk() {
    let store = memory();
    let owner = claim(&store, false).expect("nobody else has it");
    let model = model(entries(20_000, 50));
    publish(&owner, 1, &model).expect("it can be published");
    let checkpoint = owner.begin(2, Some(1)).expect("a new number");
    let written = write(&checkpoint, "again", &model).expect("it can be written");
    assert!(written.chunks > 10);
    assert_eq!(written.reused_chunks, written.chunks);
    assert!(written.written_bytes * 100 < written.full_bytes(), "{written:?}");
    owner.publish(2, vec![written], Vec::new(), 0).expect("it can be published");
    owner.retain(1, 0).expect("the first can be deleted");
    assert_eq!(read(&store, 2).expect("it stands by itself"), model);
}

#[test]
fn one_changed_entry_of_many_rewrites_one_chunk() {
    let store = memory();
    let owner = claim(&store, false).expect("nobody else has it");
    let mut all = entries(100_000, 20);
    publish(&owner, 1, &model(all.clone())).expect("it can be published");
    let middle = all.keys().nth(50_000).cloned().expect("there are many");
    all.insert(middle, vec![7; 20]);
    let checkpoint = owner.begin(2, Some(1)).expect("a new number");
    let written = write(&checkpoint, "changed", &model(all.clone())).expect("it can be written");
    assert_eq!(written.chunks - written.reused_chunks, 1);
    // A new entry moves the cuts near it and no others.
    let mut key = all.keys().nth(30_000).cloned().expect("there are many");
    key.push(0);
    all.insert(key, vec![7; 20]);
    let written = write(&checkpoint, "inserted", &model(all)).expect("it can be written");
    assert!(written.chunks - written.reused_chunks <= 3, "{written:?}");
}

#[test]
fn the_mean_chunk_is_as_the_page_says_for_any_size_of_entry() {
    for value_bytes in [8, 100, 1000, 5000] {
        let store = memory();
        let owner = claim(&store, false).expect("nobody else has it");
        let count = 8_000_000 / (value_bytes as u64 + 14);
        let checkpoint = owner.begin(1, None).expect("a new number");
        let written = write(&checkpoint, "all", &model(entries(count, value_bytes)));
        let written = written.expect("it can be written");
        let mean = written.full_bytes() / written.chunks;
        assert!((45_000..90_000).contains(&mean), "value_bytes={value_bytes} mean={mean}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    /// Keys that all begin alike, short keys, large values: always read back as written, and
    /// always cut alike by two writers that know nothing of each other.
    #[test]
    fn odd_entries_come_back(
        keys in prop::collection::btree_set(prop::collection::vec(0_u8..3, 0..12), 0..60),
        value_bytes in prop_oneof![Just(0_usize), 1_usize..100, Just(16_383), Just(16_384), Just(300_000)],
    ) {
        let entries: BTreeMap<_, _> = keys.into_iter().map(|key| (key, vec![5; value_bytes])).collect();
        let model = model(entries);
        let store = memory();
        let owner = claim(&store, false).expect("nobody else has it");
        publish(&owner, 1, &model).expect("it can be published");
        prop_assert_eq!(read(&store, 1).expect("it can be read"), crate::common::visible(&model));
        let checkpoint = owner.begin(2, Some(1)).expect("a new number");
        let again = write(&checkpoint, "again", &model).expect("it can be written");
        prop_assert_eq!(again.reused_chunks, again.chunks);
    }
}

#[test]
fn keys_out_of_order_are_refused() {
    let store = memory();
    let owner = claim(&store, false).expect("nobody else has it");
    let checkpoint = owner.begin(1, None).expect("a new number");
    let mut pack = checkpoint.writer("all").expect("a fine label");
    let mut run = pack.section("table", Contents::All, Vec::new()).expect("a fine name");
    run.push(b"b", b"").expect("the first");
    for key in [&b"b"[..], b"a", b""] {
        let error = run.push(key, b"").expect_err("not above the one before");
        assert!(error.to_string().contains("table"), "{error}");
    }
    run.push(b"ba", b"").expect("above the one before");
}
