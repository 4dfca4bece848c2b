//! The stores against real servers.
//!
//! `STRANDLINE_TEST_S3`, `STRANDLINE_TEST_AZURE` and `STRANDLINE_TEST_HDFS` are URIs under which the
//! tests may write; `cargo xtask services up` starts servers and prints such variables. A test whose
//! variable isn't set says so and does nothing.
#![cfg(any(feature = "s3", feature = "azure", feature = "hdfs"))]

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Barrier};

use strandline_snapshot::store::conformance;
use strandline_snapshot::{ErrorKind, Result, Store};
use strandline_store_object::{Options, open_with};

const ROUNDS: usize = 20;
const WRITERS: u8 = 8;

#[expect(clippy::print_stdout, reason = "a test that does nothing says so")]
fn skipped(variable: &str) {
    println!("skipped: {variable} is not set; `cargo xtask services up` starts servers");
}

/// A folder that no other run has used, or nothing where there is no server.
fn folder(variable: &str) -> Option<String> {
    let Ok(uri) = std::env::var(variable) else {
        skipped(variable);
        return None;
    };
    let unique = RandomState::new().hash_one(std::process::id());
    Some(format!("{}/test-{unique:016x}", uri.trim_end_matches('/')))
}

fn open(uri: &str) -> Arc<dyn Store> {
    let options = Options { part_bytes: 5 << 20, ..Options::default() };
    open_with(uri, options).expect("the variable has a fine URI")
}

/// What any of them must do, in a folder that is empty again at the end.
fn check(variable: &str) {
    let Some(uri) = folder(variable) else { return };
    let store = open(&uri);
    conformance::check(&*store, "suite").expect("the server works");
    races(&*store).expect("the server works");
    large_objects(&*store).expect("the server works");
    many_objects(&*store).expect("the server works");
    assert_eq!(store.location(), uri);
    for object in store.list("").expect("a list") {
        store.delete(&object.path).expect("it can be deleted");
    }
    assert_eq!(store.list("").expect("a list"), []);
}

/// Many writers create one object, each with bytes of its own.
fn races(store: &dyn Store) -> Result<()> {
    for round in 0..ROUNDS {
        let path = format!("races/{round:03}");
        let start = Barrier::new(usize::from(WRITERS));
        let create = |writer: u8| {
            start.wait();
            store.create(&path, &[writer; 32])
        };
        let create = &create;
        let ended: Vec<Result<()>> = std::thread::scope(|scope| {
            let racing: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || create(writer))).collect();
            racing.into_iter().map(|one| one.join().expect("a store must not panic")).collect()
        });
        let [winner] =
            (0..WRITERS).zip(&ended).filter(|(_, end)| end.is_ok()).collect::<Vec<_>>()[..]
        else {
            panic!("round {round}: exactly one must win: {ended:?}");
        };
        let lost = ended.iter().filter_map(|end| end.as_ref().err());
        for error in lost {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "round {round}: {error}");
        }
        assert_eq!(store.read(&path, 0, 32)?, [winner.0; 32], "round {round}");
    }
    Ok(())
}

/// Parts, their borders, and an upload that is taken back.
fn large_objects(store: &dyn Store) -> Result<()> {
    let bytes: Vec<u8> = (0..=250).cycle().take((12 << 20) + 7).collect();
    let (one_part, _) = bytes.split_at(5 << 20);
    for (path, bytes) in [("large/part", one_part), ("large/parts", &bytes)] {
        let mut upload = store.put(path)?;
        for piece in bytes.chunks(700_000) {
            upload.write(piece)?;
        }
        assert_eq!(upload.finish()?, bytes.len() as u64);
        assert_eq!(store.size(path)?, bytes.len() as u64);
        assert!(store.read(path, 0, bytes.len())? == bytes);
        assert_eq!(
            store.read(path, one_part.len() as u64 - 3, 3)?,
            one_part.last_chunk::<3>().copied().unwrap_or_default()
        );
    }
    let mut upload = store.put("large/dropped")?;
    upload.write(&bytes)?;
    drop(upload);
    let mut upload = store.put("large/parts")?;
    upload.write(&bytes)?;
    let error = upload.finish().expect_err("the path is taken");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(store.list("large/d")?, []);
    assert_eq!(store.list("large/")?.len(), 2);
    Ok(())
}

/// More than fit into one page of a list.
fn many_objects(store: &dyn Store) -> Result<()> {
    let create = |first: usize| {
        (first..1_050)
            .step_by(8)
            .try_for_each(|number| store.create(&format!("many/{number:04}"), b"x"))
    };
    let create = &create;
    let ended: Vec<Result<()>> = std::thread::scope(|scope| {
        let writing: Vec<_> = (0..64).map(|first| scope.spawn(move || create(first))).collect();
        writing.into_iter().map(|one| one.join().expect("a store must not panic")).collect()
    });
    ended.into_iter().collect::<Result<()>>()?;
    let listed: Vec<String> = store.list("many/")?.into_iter().map(|object| object.path).collect();
    let expected: Vec<String> = (0..1_050).map(|number| format!("many/{number:04}")).collect();
    assert_eq!(listed, expected);
    assert_eq!(store.list("many/10")?.len(), 50);
    Ok(())
}

#[test]
#[cfg(feature = "s3")]
fn s3() {
    check("STRANDLINE_TEST_S3");
}

#[test]
#[cfg(feature = "azure")]
fn azure() {
    check("STRANDLINE_TEST_AZURE");
}

#[test]
#[cfg(feature = "hdfs")]
fn hdfs() {
    check("STRANDLINE_TEST_HDFS");
}

/// A file of more than one block of HDFS, each of which is synced when it is full.
#[test]
#[cfg(feature = "hdfs")]
fn hdfs_blocks() {
    let Some(uri) = folder("STRANDLINE_TEST_HDFS") else { return };
    let store = open(&uri);
    let piece: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
    for (path, pieces) in [("exact", 128_u64), ("more", 131)] {
        let mut upload = store.put(path).expect("it begins");
        for _ in 0..pieces {
            upload.write(&piece).expect("it is written");
        }
        assert_eq!(upload.finish().expect("it is published"), pieces << 20);
        let last = store.read(path, (pieces - 1) << 20, 1 << 20).expect("it is there");
        assert!(last == piece, "the last piece of {path}");
        assert!(store.read(path, 127 << 20, 1 << 20).expect("it is there") == piece);
        store.delete(path).expect("it can be deleted");
    }
}

/// What a dead process leaves is hidden, and swept.
#[test]
#[cfg(feature = "hdfs")]
fn hdfs_sweep() {
    let Some(uri) = folder("STRANDLINE_TEST_HDFS") else { return };
    let store = open(&uri);
    let mut upload = store.put("job/shared/pack").expect("it begins");
    upload.write(b"x").expect("it is written");
    // Never dropped: as if the process had died.
    std::mem::forget(upload);
    assert_eq!(store.list("").expect("a list"), []);
    store.sweep("").expect("it can be swept");
    let error = store.create("job/.tmp-1", b"x").expect_err("a temporary name");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    // Were anything left in the folder, it would stay.
    store.create("job/shared/pack", b"x").expect("it is free");
    store.delete("job/shared/pack").expect("it can be deleted");
    store.create("job/shared", b"x").expect("no folder is in the way");
    store.delete("job/shared").expect("it can be deleted");
}
