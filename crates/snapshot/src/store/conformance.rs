//! What every store must do: a suite that any implementation can be run through.

use std::sync::Barrier;

use crate::store::Store;
use crate::{ErrorKind, Result};

/// Runs the suite under `prefix`, where nothing must be.
///
/// # Errors
/// The store failed where it must not.
///
/// # Panics
/// The store broke its contract; the message says how.
pub fn check(store: &dyn Store, prefix: &str) -> Result<()> {
    create_never_replaces(store, prefix)?;
    upload_is_whole_or_not_at_all(store, prefix)?;
    reads_are_exact(store, prefix)?;
    lists_are_sorted_and_complete(store, prefix)?;
    deletes_are_repeatable(store, prefix)?;
    bad_paths_are_refused(store);
    one_of_many_creates_wins(store, prefix)
}

fn create_never_replaces(store: &dyn Store, prefix: &str) -> Result<()> {
    let path = format!("{prefix}/create/a");
    store.create(&path, b"first")?;
    let again = store.create(&path, b"second").expect_err("a taken path must be refused");
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    assert_eq!(store.read(&path, 0, 5)?, b"first", "a create must not replace");
    Ok(())
}

fn upload_is_whole_or_not_at_all(store: &dyn Store, prefix: &str) -> Result<()> {
    let path = format!("{prefix}/upload/a");
    let mut upload = store.put(&path)?;
    upload.write(b"one ")?;
    assert!(store.size(&path).is_err(), "an upload must not be seen before it is finished");
    upload.write(b"two")?;
    assert_eq!(upload.finish()?, 7);
    assert_eq!(store.read(&path, 0, 7)?, b"one two");
    let abandoned = format!("{prefix}/upload/b");
    let mut upload = store.put(&abandoned)?;
    upload.write(b"x")?;
    drop(upload);
    assert!(store.size(&abandoned).is_err(), "an abandoned upload must never be seen");
    let upload = store.put(&path)?;
    let again = upload.finish().expect_err("a taken path must be refused");
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    Ok(())
}

fn reads_are_exact(store: &dyn Store, prefix: &str) -> Result<()> {
    let path = format!("{prefix}/read/a");
    store.create(&path, b"0123456789")?;
    assert_eq!(store.read(&path, 3, 4)?, b"3456");
    assert_eq!(store.read(&path, 10, 0)?, b"");
    assert_eq!(store.size(&path)?, 10);
    for (offset, len) in [(7, 4), (11, 0), (u64::MAX, 1)] {
        let short = store.read(&path, offset, len).expect_err("a short read must fail");
        assert_eq!(short.kind(), ErrorKind::Damaged, "{short}");
    }
    let missing = format!("{prefix}/read/missing");
    let error = store.read(&missing, 0, 0).expect_err("what is missing must be said");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("missing"), "the message must name it: {error}");
    Ok(())
}

fn lists_are_sorted_and_complete(store: &dyn Store, prefix: &str) -> Result<()> {
    let names = ["list/b/2", "list/a", "list/b/1", "listless"];
    for name in names {
        store.create(&format!("{prefix}/{name}"), name.as_bytes())?;
    }
    let under = |part: &str| -> Result<Vec<String>> {
        let listed = store.list(&format!("{prefix}/{part}"))?;
        Ok(listed.into_iter().map(|object| object.path).collect())
    };
    let full = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("{prefix}/{name}")).collect()
    };
    assert_eq!(under("list/")?, full(&["list/a", "list/b/1", "list/b/2"]));
    assert_eq!(under("list")?, full(&["list/a", "list/b/1", "list/b/2", "listless"]));
    assert_eq!(under("list/b/1")?, full(&["list/b/1"]));
    assert_eq!(under("nothing/")?, full(&[]));
    Ok(())
}

fn deletes_are_repeatable(store: &dyn Store, prefix: &str) -> Result<()> {
    let path = format!("{prefix}/delete/a");
    store.create(&path, b"x")?;
    store.delete(&path)?;
    store.delete(&path)?;
    assert!(store.list(&format!("{prefix}/delete/"))?.is_empty(), "what is deleted is gone");
    store.create(&path, b"y")
}

fn bad_paths_are_refused(store: &dyn Store) {
    for path in ["", "/a", "a/../b", "..", "a//b", "a\0b"] {
        let error = store.create(path, b"x").expect_err("a bad path must be refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{path:?}: {error}");
        assert!(store.read(path, 0, 0).is_err() && store.put(path).is_err(), "{path:?}");
    }
}

fn one_of_many_creates_wins(store: &dyn Store, prefix: &str) -> Result<()> {
    for round in 0..10 {
        let path = format!("{prefix}/race/{round}");
        let start = Barrier::new(4);
        let create = |writer: u8| {
            start.wait();
            store.create(&path, &[writer; 8]).map(|()| writer)
        };
        let create = &create;
        let results: Vec<Result<u8>> = std::thread::scope(|scope| {
            let racing: Vec<_> = (0..4).map(|writer| scope.spawn(move || create(writer))).collect();
            racing.into_iter().map(|one| one.join().expect("a store must not panic")).collect()
        });
        let winners: Vec<u8> =
            results.iter().filter_map(|one| one.as_ref().ok().copied()).collect();
        let [winner] = winners[..] else {
            panic!("of concurrent creates exactly one must win: {results:?}");
        };
        assert_eq!(store.read(&path, 0, 8)?, [winner; 8], "the winner's bytes must stay");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LocalStore, MemoryStore};

    #[test]
    fn memory() {
        check(&MemoryStore::default(), "suite").expect("the store works");
    }

    #[test]
    fn local() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = LocalStore::new(folder.path().join("a root that is not there yet"));
        check(&store, "suite").expect("the store works");
    }
}
