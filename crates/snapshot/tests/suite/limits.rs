//! The ends of what can be written: lengths, counts, names, roots; and that the same state gives
//! the same bytes whoever writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Model, claim, entries, job, publish, publish_changes, read, visible, write};
use strandline_snapshot::{
    Checkpoint, Claim, Compression, Contents, ErrorKind, LocalStore, MAX_KEY_BYTES,
    MAX_VALUE_BYTES, MemoryStore, Owner, Result, SaveOptions, Snapshot, Store, Written, history,
    open_store, pieces, verify,
};

/// Where the cut rule changes its mind, and where lengths get another byte.
const EDGES: [usize; 17] = [
    0,
    1,
    126,
    127,
    128,
    (16 << 10) - 1,
    16 << 10,
    (16 << 10) + 1,
    (64 << 10) - 1,
    64 << 10,
    (64 << 10) + 1,
    (256 << 10) - 20,
    (256 << 10) - 1,
    256 << 10,
    (256 << 10) + 1,
    (1 << 20) - 1,
    1 << 20,
];

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

fn table(entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Model {
    Model::from([("table".to_owned(), entries.into_iter().collect())])
}

/// Published in full, as changes, and saved, a state is the same.
fn check(model: &Model) {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let store = memory();
        let claimed = Claim { compression, ..Claim::new("test") };
        let owner = Owner::claim(Arc::clone(&store), claimed).expect("nobody else has it");
        publish(&owner, 1, model).expect("it can be published");
        let after: Model = model
            .iter()
            .map(|(name, entries)| (name.clone(), entries.clone().into_iter().skip(1).collect()))
            .collect();
        publish_changes(&owner, 2, model, &after).expect("changes can be published");
        assert!(read(&store, 1).expect("it can be read") == visible(model));
        assert!(read(&store, 2).expect("it can be read") == visible(&after));
        check_gets(&store, model);
        check_saved(&store, model);
        for number in [1, 2] {
            let report = verify(&store, job(), number).expect("it is there");
            assert_eq!(report.problems, []);
        }
    }
}

fn check_gets(store: &Arc<dyn Store>, model: &Model) {
    let snapshot = Snapshot::open(store, job(), 1).expect("it is there");
    for (section, entries) in model {
        for (key, value) in entries.iter().step_by(entries.len() / 50 + 1) {
            let found = snapshot.get(section, key).expect("it can be read");
            assert!(found.as_ref() == Some(value), "key_bytes={}", key.len());
        }
    }
}

fn check_saved(store: &Arc<dyn Store>, model: &Model) {
    let snapshot = Snapshot::open(store, job(), 1).expect("it is there");
    let go_on = &mut |_| ControlFlow::Continue(());
    snapshot.save(store, "saved", SaveOptions::default(), go_on).expect("it can be saved");
    let saved = Snapshot::open_savepoint(store, "saved").expect("it has been saved");
    for (section, entries) in visible(model) {
        let mut left = entries.iter();
        let visit = &mut |key: &[u8], value: &[u8]| {
            let (a, b) = left.next().expect("no more than there were");
            assert!(&a[..] == key && &b[..] == value);
            ControlFlow::Continue(())
        };
        saved.visit(&section, visit).expect("it can be read");
        assert!(left.next().is_none(), "no fewer than there were");
    }
}

#[test]
fn values_of_every_length() {
    for bytes in EDGES {
        let entry = |at: u8| (vec![at; 9], vec![at; bytes]);
        check(&table((0..5).map(entry)));
    }
}

#[test]
fn keys_of_every_length() {
    for bytes in EDGES {
        check(&table([(vec![7; bytes], vec![1])]));
        // Two that differ in their last byte alone, and one that is the beginning of both.
        let long = |last: u8| ([&vec![7; bytes][..], &[last]].concat(), vec![last]);
        check(&table([(vec![7; bytes], vec![]), long(1), long(2)]));
    }
}

#[test]
fn a_value_of_100_mib() {
    let store = memory();
    let owner = claim(&store, false).expect("nobody else has it");
    let mut all = entries(100, 30);
    all.insert(vec![128], (0..=255).collect::<Vec<u8>>().repeat(100 << 12));
    let model = table(all);
    publish(&owner, 1, &model).expect("it can be published");
    assert!(read(&store, 1).expect("it can be read") == model);
    let report = verify(&store, job(), 1).expect("it is there");
    assert_eq!(report.problems, []);
}

#[test]
fn what_is_too_long_is_refused_and_named() {
    let store = memory();
    let owner = claim(&store, false).expect("nobody else has it");
    let checkpoint = owner.begin(1, None).expect("a new number");
    let mut pack = checkpoint.writer("all").expect("a fine label");
    let mut run = pack.section("table", Contents::All, Vec::new()).expect("a fine name");
    let key = vec![0; MAX_KEY_BYTES + 1];
    let error = run.push(&key, b"").expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("table"), "{error}");
    run.push(&key[1..], b"").expect("as long as can be");
    // Zeros that nobody has touched cost nothing but addresses.
    let value = vec![0; MAX_VALUE_BYTES + 1];
    let error = run.push(&[1], &value).expect_err("too long");
    assert!(error.to_string().contains("value_bytes=1073741825"), "{error}");
    run.finish().expect("what was refused has left no trace");
    let written = pack.finish().expect("memory does not fail");
    owner.publish(1, vec![written], Vec::new(), 0).expect("it can be published");
    let found = read(&store, 1).expect("it can be read");
    assert_eq!(found["table"].len(), 1);
}

#[test]
fn a_million_equal_values() {
    let store = memory();
    let owner = claim(&store, false).expect("nobody else has it");
    let checkpoint = owner.begin(1, None).expect("a new number");
    let mut pack = checkpoint.writer("all").expect("a fine label");
    let mut run = pack.section("table", Contents::All, Vec::new()).expect("a fine name");
    let key = |index: u32| format!("{index:06}").into_bytes();
    for index in 0..1_000_000 {
        run.push(&key(index), b"the same for all").expect("memory does not fail");
    }
    run.finish().expect("memory does not fail");
    let written = pack.finish().expect("memory does not fail");
    let published = owner.publish(1, vec![written], Vec::new(), 0).expect("it can be published");
    assert!(published.full_bytes < 4_000_000, "{published:?}");
    let snapshot = Snapshot::open(&store, job(), 1).expect("it is there");
    let mut next = 0;
    let visit = &mut |found: &[u8], value: &[u8]| {
        assert!(found == key(next) && value == b"the same for all");
        next += 1;
        ControlFlow::Continue(())
    };
    snapshot.visit("table", visit).expect("it can be read");
    assert_eq!(next, 1_000_000);
}

#[test]
fn a_thousand_sections() {
    let section = |at: u64| (format!("operator/section {at}"), entries(at % 3, 5));
    let model: Model = (0..1000).map(section).collect();
    let store = memory();
    let owner = claim(&store, false).expect("nobody else has it");
    publish(&owner, 1, &model).expect("it can be published");
    let mut after = model.clone();
    after.values_mut().step_by(7).for_each(|entries| drop(entries.insert(vec![1], vec![2])));
    publish_changes(&owner, 2, &model, &after).expect("it can be published");
    assert!(read(&store, 1).expect("it can be read") == visible(&model));
    assert!(read(&store, 2).expect("it can be read") == visible(&after));
}

/// All draw the same lot, whatever it is: then the limit cuts.
#[test]
fn keys_that_begin_alike_are_cut_by_the_limit() {
    for first in [[0; 8], [0xFF; 8], *b"operator", [0x80, 0, 0, 0, 0, 0, 0, 1]] {
        let key = |at: u32| ([&first[..], format!("{at:05}").as_bytes()].concat(), vec![5; 100]);
        let store = memory();
        let owner = claim(&store, false).expect("nobody else has it");
        let checkpoint = owner.begin(1, None).expect("a new number");
        let model = table((0..40_000).map(key));
        let written = write(&checkpoint, "all", &model).expect("it can be written");
        let plain_bytes = 40_000 * 116;
        let mean = plain_bytes / written.chunks;
        assert!((16 << 10..=256 << 10).contains(&mean), "first={first:?} mean={mean}");
        owner.publish(1, vec![written], Vec::new(), 0).expect("it can be published");
        assert!(read(&store, 1).expect("it can be read") == model);
    }
}

#[test]
fn names_that_can_not_be() {
    let store = memory();
    let owner = claim(&store, false).expect("nobody else has it");
    let checkpoint = owner.begin(1, None).expect("a new number");
    let long = "l".repeat(101);
    for label in ["", "merge", "A", "a/b", "..", "a b", "a_b", "ä", "a\0", &long] {
        let error = checkpoint.writer(label).expect_err(label);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{label:?}");
    }
    checkpoint.writer(&long[1..]).expect("100 are fine");
    let mut pack = checkpoint.writer("all").expect("a fine label");
    for name in ["", &"n".repeat(1025)] {
        let error = pack.section(name, Contents::All, Vec::new()).expect_err("no name");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

/// A section's name is no path, and is kept as it is.
#[test]
fn names_that_can_be() {
    let long = "n".repeat(1024);
    let names = ["a", "/", "..", "a\0b", "a\nb", "a\\b", "\u{e9}", "e\u{301}", "[a]*?", &long];
    let model: Model = names.iter().map(|name| ((*name).to_owned(), entries(3, 9))).collect();
    check(&model);
}

/// The way to an absolute path from where the test runs.
fn relative(path: &str) -> String {
    let here = std::env::current_dir().expect("there is a folder");
    let up = "../".repeat(here.components().count() - 1);
    format!("{up}{}", path.trim_start_matches('/'))
}

#[test]
fn roots_of_every_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let long = "d".repeat(120);
    let names = [
        "a b",
        "a%20b",
        "a#b",
        "caf\u{e9}",
        "cafe\u{301}",
        "[a]*?",
        "a\nb",
        "a'\"$b",
        "trailing/",
        "slashes//",
        "here/./there",
        &format!("{long}/{long}"),
    ];
    let mut seen = BTreeSet::new();
    for name in names {
        let root = format!("{}/{name}", folder.path().display());
        let model = table(entries(10, name.len()));
        for uri in [relative(&root), format!("file://{root}")] {
            let store = open_store(&uri).expect("a fine root");
            let owner = claim(&store, false).unwrap_or_else(|error| panic!("{uri:?}: {error}"));
            let number = owner.first_checkpoint();
            publish(&owner, number, &model).unwrap_or_else(|error| panic!("{uri:?}: {error}"));
            owner.retain(1, 0).expect("it can be deleted");
        }
        // Both have meant the same folder, and no other.
        assert!(Path::new(&root).is_dir(), "{root:?}");
        let store: Arc<dyn Store> = Arc::new(LocalStore::new(&root));
        let listed = history(&store, job()).expect("it can be listed");
        assert_eq!(listed.len(), 1, "{root:?}");
        assert_eq!(listed.first().map(|listed| listed.checkpoint), Some(2), "{root:?}");
        assert!(read(&store, 2).is_ok_and(|found| found == model), "{root:?}");
        seen.insert(name);
    }
    assert_eq!(seen.len(), names.len());
}

/// Counts that nothing stands behind: a payload of some bytes says that it has 2³² of anything.
#[test]
fn what_a_manifest_claims_costs_no_memory() {
    let array = [0xDD, 0xFF, 0xFF, 0xFF, 0xFF];
    let map = [0xDF, 0xFF, 0xFF, 0xFF, 0xFF];
    let bin = [0xC6, 0xFF, 0xFF, 0xFF, 0xFF];
    let text = [0xDB, 0xFF, 0xFF, 0xFF, 0xFF];
    let sections = [&[0x81, 0xA8][..], b"sections"].concat();
    for claim in [array, map, bin, text] {
        let alone = claim.to_vec();
        let named = [&sections[..], &claim].concat();
        let nested = [&sections[..], &[0x91, 0x82, 0xA4], b"runs", &claim].concat();
        let unknown = [&[0x81, 0xA1][..], b"x", &claim].concat();
        for payload in [alone, named, nested, unknown] {
            let error = pieces::manifest_of_payload(&payload).expect_err("nothing is there");
            assert_eq!(error.kind(), ErrorKind::Damaged, "{payload:?}");
        }
    }
    // Deep, not long.
    let deep = [&[0x81, 0xA1][..], b"x", &[0x91; 100_000], &[0xC0]].concat();
    pieces::manifest_of_payload(&deep).expect_err("nothing that is known is so deep");
}

#[test]
fn what_an_index_claims_costs_no_memory() {
    let most = pieces::varint(u64::MAX);
    for index in [
        [&[1][..], &most].concat(),
        [&[1, 0][..], &most].concat(),
        [&[1, 1][..], &most].concat(),
        [&[1, 1, 1, b'a'][..], &most].concat(),
    ] {
        assert_eq!(pieces::index_again(&index), None, "{index:?}");
    }
}

/// The state that is written below: several sections, each of keys that are well mixed.
fn state() -> Model {
    let section = |at: u64| {
        let bytes = usize::try_from(at * 37 + 8).expect("small");
        (format!("operator/{at}"), entries(9_000 / (at + 1), bytes))
    };
    (0..8).map(section).collect()
}

/// Writes the sections by so many threads, each its share.
fn write_by(checkpoint: &Checkpoint, state: &Model, threads: usize) -> Vec<Written> {
    let share = |thread: usize| -> Model {
        let of_thread = state.iter().skip(thread).step_by(threads);
        of_thread.map(|(name, entries)| (name.clone(), entries.clone())).collect()
    };
    std::thread::scope(|scope| {
        let write = |thread| {
            let share = share(thread);
            scope.spawn(move || write(checkpoint, &format!("task-{thread}"), &share))
        };
        let threads: Vec<_> = (0..threads).map(write).collect();
        let written = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        written.collect::<Result<_>>().expect("memory does not fail")
    })
}

/// What a checkpoint's runs are made of, whatever packs they are in: a hash over the names of all
/// chunks, as its indexes have them.
fn digest(store: &Arc<dyn Store>, number: u64) -> String {
    let snapshot = Snapshot::open(store, job(), number).expect("it is there");
    let mut hasher = blake3::Hasher::new();
    for section in &snapshot.manifest().sections {
        hasher.update(section.name.as_bytes());
        for run in &section.runs {
            let path = format!("{}/shared/{}", job(), run.pack);
            let index = store.read(&path, run.index_offset, run.index_bytes as usize);
            for name in chunk_names(&index.expect("it is there")) {
                hasher.update(name);
            }
        }
    }
    hasher.finalize().to_hex().to_string()
}

/// The hashes in an index, by the format's page.
fn chunk_names(index: &[u8]) -> Vec<&[u8]> {
    let (rest, mut names) = (&mut &index[..], Vec::new());
    take(rest, 1);
    for _ in 0..take_varint(rest) {
        let bytes = take_varint(rest);
        take(rest, bytes);
    }
    for _ in 0..take_varint(rest) {
        take_varint(rest);
        take(rest, 8 + 4 * 4);
        names.push(take(rest, 32));
        let bytes = take_varint(rest);
        take(rest, bytes);
    }
    names
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    rest.split_off(..bytes).expect("an index is whole")
}

fn take_varint(rest: &mut &[u8]) -> usize {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first().expect("an index is whole");
        value |= usize::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Whoever writes it, on whatever host, built in whatever way.
#[test]
fn the_same_state_gives_the_same_bytes() {
    const DIGEST: &str = "00c0bc1aadca0bf748234568c26bf151e270fa77f6641c5b990013da50cdae94";
    let state = state();
    let mut plain_bytes = BTreeMap::new();
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    for (threads, compression) in (1..=8).zip(compressions.into_iter().cycle()) {
        let store = memory();
        let claimed = Claim { compression, ..Claim::new("test") };
        let owner = Owner::claim(Arc::clone(&store), claimed).expect("nobody else has it");
        let checkpoint = owner.begin(1, None).expect("a new number");
        let written = write_by(&checkpoint, &state, threads);
        owner.publish(1, written, Vec::new(), 0).expect("it can be published");
        assert_eq!(digest(&store, 1), DIGEST, "threads={threads} {compression:?}");
        let snapshot = Snapshot::open(&store, job(), 1).expect("it is there");
        let runs = snapshot.manifest().sections.iter().flat_map(|section| &section.runs);
        plain_bytes.insert(runs.map(|run| run.plain_bytes).sum::<u64>(), threads);
    }
    assert_eq!(plain_bytes.len(), 1, "{plain_bytes:?}");
}
