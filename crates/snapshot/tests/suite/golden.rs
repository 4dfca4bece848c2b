//! Files of every version of the format, read by this build. With `STRANDLINE_GOLDEN=write` the ones
//! of the present version are made anew; those of a released version never are.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{Model, entries, job, publish, publish_changes, read};
use strandline_snapshot::{
    Claim, Compression, LocalStore, Nonce, Owner, SaveOptions, Snapshot, Store, history, verify,
};

const SAVEPOINT: &str = "savepoint";

fn folder(version: u16) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/version-{version}"))
}

/// What the three checkpoints hold.
fn models() -> [Model; 3] {
    let first = Model::from([
        ("counts".to_owned(), entries(500, 20)),
        ("splits".to_owned(), BTreeMap::from([(b"a.csv".to_vec(), b"at line 7".to_vec())])),
    ]);
    let mut second = first.clone();
    let counts = second.entry("counts".to_owned()).or_default();
    for key in counts.keys().step_by(7).cloned().collect::<Vec<_>>() {
        counts.insert(key, b"changed".to_vec());
    }
    let mut third = second.clone();
    let counts = third.entry("counts".to_owned()).or_default();
    for key in counts.keys().step_by(3).cloned().collect::<Vec<_>>() {
        counts.remove(&key);
    }
    [first, second, third]
}

fn write(version: u16) {
    let root = folder(version);
    std::fs::remove_dir_all(&root).ok();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(&root));
    let [first, second, third] = models();
    for (number, compression) in
        [(1, Compression::Zstd), (2, Compression::Lz4), (3, Compression::None)]
    {
        let nonce = Nonce([7; 16]);
        let claim = Claim { compression, nonce, holder: "golden".to_owned(), ..Claim::new("test") };
        let owner = Owner::claim(Arc::clone(&store), claim).expect("nobody else has it");
        match number {
            1 => publish(&owner, 1, &first),
            2 => publish_changes(&owner, 2, &first, &second).map(drop),
            _ => publish_changes(&owner, 3, &second, &third).map(drop),
        }
        .expect("it can be published");
    }
    let snapshot = Snapshot::open(&store, job(), 3).expect("it is there");
    let saved = snapshot
        .save(&store, SAVEPOINT, SaveOptions::default(), &mut |_| ControlFlow::Continue(()));
    saved.expect("it can be saved");
}

fn check(version: u16) {
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder(version)));
    let listed = history(&store, job()).expect("it can be listed");
    let numbers: Vec<u64> = listed.iter().map(|listed| listed.checkpoint).collect();
    assert_eq!(numbers, [1, 2, 3]);
    for (number, model) in (1..).zip(models()) {
        assert_eq!(read(&store, number).expect("it can be read"), model);
        let report = verify(&store, job(), number).expect("it is there");
        assert_eq!(report.problems, []);
    }
    let savepoint = Snapshot::open_savepoint(&store, SAVEPOINT).expect("it is there");
    let [_, _, third] = models();
    for (section, expected) in &third {
        let mut entries = BTreeMap::new();
        let visited = savepoint.visit(section, &mut |key, value| {
            entries.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        });
        visited.expect("it can be read");
        assert_eq!(&entries, expected);
    }
}

#[test]
fn version_1_is_read() {
    if std::env::var("STRANDLINE_GOLDEN").is_ok_and(|value| value == "write") {
        write(1);
    }
    check(1);
}
