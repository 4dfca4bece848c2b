//! A read that fails once is no damage: the error is of kind `Io`, and the next try works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Model, claim, entries, job, publish, publish_changes, read};
use strandline_snapshot::{
    Error, ErrorKind, MemoryStore, Object, Result, Store, Upload, history, verify,
};

/// A store whose n-th reading operation fails, once.
#[derive(Debug)]
struct Flaky {
    store: MemoryStore,
    left: AtomicU64,
}

impl Flaky {
    /// Whether there were fewer reads than it would have taken to fail.
    fn is_untouched(&self) -> bool {
        let left = self.left.load(Ordering::SeqCst);
        left > 0 && left < 1 << 60
    }

    fn check(&self, path: &str) -> Result<()> {
        // Sequentially consistent: a test has no speed to win.
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let text = format!("{} can't be read", self.store.describe(path));
            return Err(Error::new(ErrorKind::Io, text));
        }
        Ok(())
    }
}

impl Store for Flaky {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.store.create(path, bytes)
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        self.store.put(path)
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.check(path)?;
        self.store.read(path, offset, len)
    }

    fn size(&self, path: &str) -> Result<u64> {
        self.check(path)?;
        self.store.size(path)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.check(prefix)?;
        self.store.list(prefix)
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.store.delete(path)
    }

    fn location(&self) -> String {
        self.store.location()
    }
}

fn model(number: u64) -> Model {
    let mut all = entries(3_000, 30);
    let changed = all.keys().nth(usize::try_from(number).expect("small")).cloned();
    all.insert(changed.expect("there are many"), number.to_le_bytes().to_vec());
    Model::from([("table".to_owned(), all)])
}

/// Two checkpoints, and the n-th read fails.
fn flaky(nth: u64) -> (Arc<Flaky>, Arc<dyn Store>) {
    let store = MemoryStore::default();
    let inner: Arc<dyn Store> = Arc::new(store.clone());
    let owner = claim(&inner, false).expect("a new job");
    publish(&owner, 1, &model(1)).expect("memory does not fail");
    publish_changes(&owner, 2, &model(1), &model(2)).expect("memory does not fail");
    drop(owner);
    let flaky = Arc::new(Flaky { store, left: AtomicU64::new(nth) });
    let store: Arc<dyn Store> = Arc::clone(&flaky) as Arc<dyn Store>;
    (flaky, store)
}

/// Does something with each read failing in turn, until none fails any more.
fn check<T: PartialEq + std::fmt::Debug>(act: impl Fn(&Arc<dyn Store>) -> Result<T>, expected: &T) {
    for nth in 1.. {
        let (flaky, store) = flaky(nth);
        match act(&store) {
            Ok(found) => assert!(found == *expected, "read {nth} fails: {found:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "read {nth} fails: {error}");
                let again = act(&store).expect("it fails once");
                assert!(again == *expected, "read {nth} has failed: {again:?}");
            }
        }
        if flaky.is_untouched() {
            return assert!(nth > 2, "there are several reads");
        }
    }
}

#[test]
fn a_list_of_checkpoints_says_nothing_of_damage() {
    let whole = flaky(0).1;
    let expected = history(&whole, job()).expect("it can be listed");
    assert_eq!(expected.len(), 2);
    check(|store| history(store, job()), &expected);
}

#[test]
fn a_checkpoint_is_read_at_the_next_try() {
    check(|store| read(store, 2), &model(2));
}

/// An owner that could not look does not go on from an older checkpoint.
#[test]
fn an_owner_goes_on_from_the_newest_or_not_at_all() {
    let newest = |store: &Arc<dyn Store>| {
        let owner = claim(store, false)?;
        let accepted = owner.accepted().map(|listed| (listed.checkpoint, listed.damaged.clone()));
        Ok((owner.newest(), accepted))
    };
    check(newest, &(Some(2), Some((2, None))));
}

/// What could not be read is in the report, under its name, and is not called damaged.
#[test]
fn a_verification_does_not_call_it_damage() {
    for nth in 1.. {
        let (flaky, store) = flaky(nth);
        match verify(&store, job(), 2) {
            Ok(report) => {
                let damaged =
                    report.problems.iter().any(|problem| problem.what.contains("damaged"));
                assert!(!damaged, "read {nth} fails: {report:?}");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "read {nth} fails: {error}"),
        }
        if flaky.is_untouched() {
            return assert!(nth > 5, "there are several reads");
        }
        let again = verify(&store, job(), 2).expect("it fails once");
        assert_eq!(again.problems, [], "read {nth} has failed");
    }
}
