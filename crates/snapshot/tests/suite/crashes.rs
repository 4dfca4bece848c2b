//! A crash at every storage operation of three checkpoints with retention: whatever was published
//! is whole, whatever was not is not seen. And two owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Model, claim, entries, gentle_claim, job, publish, read, write};
use strandline_snapshot::{
    Claim, Error, ErrorKind, LocalStore, MemoryStore, Object, Owner, Result, Store, Upload,
    history, verify,
};

/// A store that fails for good at its n-th changing operation, done or not done.
#[derive(Debug)]
struct Dying {
    store: Arc<dyn Store>,
    left: Arc<AtomicU64>,
    /// The fatal operation itself takes place.
    done: bool,
}

impl Dying {
    /// Runs a changing operation, or dies at it. Sequentially consistent: a test has no speed to
    /// win.
    fn change<T>(left: &AtomicU64, done: bool, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let before =
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let dead = || Error::new(ErrorKind::Io, "the process is dead");
        match before {
            Ok(1) if done => operation().and_then(|_| Err(dead())),
            Ok(1) | Err(_) => Err(dead()),
            Ok(_) => operation(),
        }
    }
}

impl Store for Dying {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        Self::change(&self.left, self.done, || self.store.create(path, bytes))
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        let upload = self.store.put(path)?;
        Ok(Box::new(DyingUpload { upload, left: Arc::clone(&self.left), done: self.done }))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.store.read(path, offset, len)
    }

    fn size(&self, path: &str) -> Result<u64> {
        self.store.size(path)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.store.list(prefix)
    }

    fn delete(&self, path: &str) -> Result<()> {
        Self::change(&self.left, self.done, || self.store.delete(path))
    }

    fn location(&self) -> String {
        self.store.location()
    }
}

struct DyingUpload {
    upload: Box<dyn Upload>,
    left: Arc<AtomicU64>,
    done: bool,
}

impl Upload for DyingUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Dying::change(&self.left, self.done, || self.upload.write(bytes))
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        let Self { upload, left, done } = *self;
        Dying::change(&left, done, || upload.finish())
    }
}

fn model(round: u64) -> Model {
    let mut all = entries(2_000, 60);
    let changed: Vec<Vec<u8>> = all.keys().step_by(97).cloned().collect();
    for key in changed {
        all.insert(key, round.to_le_bytes().to_vec());
    }
    Model::from([("table".to_owned(), all), (format!("round-{round}"), entries(3, 5))])
}

/// Three checkpoints, each followed by a retention of one; the numbers that were reported.
fn run(store: &Arc<dyn Store>) -> (Vec<u64>, Result<()>) {
    let mut reported = Vec::new();
    let mut go = || {
        let owner = claim(store, false)?;
        for number in owner.first_checkpoint()..owner.first_checkpoint() + 3 {
            publish(&owner, number, &model(number))?;
            reported.push(number);
            owner.retain(1, 0)?;
        }
        Ok(())
    };
    let ended = go();
    (reported, ended)
}

#[test]
fn whatever_was_published_is_whole_at_every_crash() {
    for done in [false, true] {
        let mut operation = 1;
        loop {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::default());
            let left = Arc::new(AtomicU64::new(operation));
            let dying: Arc<dyn Store> =
                Arc::new(Dying { store: Arc::clone(&inner), left: Arc::clone(&left), done });
            let (reported, ended) = run(&dying);
            check_after_crash(&inner, &reported, operation);
            if ended.is_ok() {
                assert!(operation > 12, "there are many operations to die at: {operation}");
                break;
            }
            operation += 1;
        }
    }
}

fn check_after_crash(store: &Arc<dyn Store>, reported: &[u64], operation: u64) {
    let listed = history(store, job()).expect("it can be listed");
    let numbers: Vec<u64> = listed.iter().map(|listed| listed.checkpoint).collect();
    for number in &numbers {
        let report = verify(store, job(), *number).expect("it can be verified");
        assert_eq!(report.problems, [], "operation {operation}, checkpoint {number}");
        let read = read(store, *number).expect("it can be read");
        assert_eq!(read, model(*number), "operation {operation}, checkpoint {number}");
    }
    if let Some(last) = reported.last() {
        assert!(numbers.contains(last), "operation {operation}: {last} was reported: {numbers:?}");
    }
    // And the next owner goes on from the newest, with a number above all.
    let owner = claim(store, false).expect("the one before is dead");
    let newest = owner.accepted().map(|listed| listed.checkpoint);
    assert_eq!(newest, numbers.last().copied(), "operation {operation}");
    let next = owner.first_checkpoint();
    assert!(numbers.iter().all(|number| *number < next));
    publish(&owner, next, &model(next)).expect("it goes on");
    owner.retain(1, 0).expect("it cleans up");
    let packs = store.list(&format!("{}/shared/", job())).expect("it can be listed");
    let leftovers = packs.iter().filter(|pack| verify_without(store, &pack.path, next)).count();
    assert_eq!(leftovers, 0, "operation {operation}: packs that nobody names are left");
}

/// Whether a checkpoint is whole without a pack.
fn verify_without(store: &Arc<dyn Store>, pack: &str, number: u64) -> bool {
    let len = usize::try_from(store.size(pack).expect("it is there")).expect("it is small");
    let bytes = store.read(pack, 0, len).expect("it can be read");
    store.delete(pack).expect("it can be deleted");
    let whole = verify(store, job(), number).expect("it can be verified").problems.is_empty();
    store.create(pack, &bytes).expect("it can be put back");
    whole
}

#[test]
fn a_second_owner_voids_what_the_first_publishes_later() {
    // In memory there is no lock: this is how it looks where only the fence tells owners apart.
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = claim(&store, false).expect("nobody else has it");
    publish(&first, 1, &model(1)).expect("it can be published");
    let late = first.begin(2, first.newest()).expect("a new number");
    let written = write(&late, "late", &model(2)).expect("it can be written");
    let second = claim(&store, false).expect("there is no lock");
    assert_eq!(second.accepted().map(|listed| listed.checkpoint), Some(1));
    let error = first.publish(2, vec![written], Vec::new(), 0).expect_err("it is fenced");
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let number = second.first_checkpoint();
    assert!(number > 2, "the pack of checkpoint 2 was there: {number}");
    publish(&second, number, &model(3)).expect("it can be published");
    let listed = history(&store, job()).expect("it can be listed");
    let numbers: Vec<u64> = listed.iter().map(|listed| listed.checkpoint).collect();
    assert_eq!(numbers, [1, number]);
}

#[test]
fn an_owner_that_was_overtaken_deletes_nothing_of_its_successor() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = claim(&store, false).expect("nobody else has it");
    publish(&first, 1, &model(1)).expect("it can be published");
    let begun = first.begin(2, first.newest()).expect("a new number");
    let second = claim(&store, false).expect("there is no lock");
    // Nothing of the first one's checkpoint 2 was there yet: the number comes again.
    assert_eq!(second.first_checkpoint(), 2);
    let theirs = second.begin(2, second.newest()).expect("a new number");
    let written = write(&theirs, "all", &model(2)).expect("it can be written");
    write(&begun, "all", &model(3)).expect("packs carry the token");
    first.abandon(2).expect("it deletes its own");
    second.publish(2, vec![written], Vec::new(), 0).expect("the second is the owner");
    let error = first.retain(1, 0).expect_err("it is fenced");
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(read(&store, 1).expect("it is there"), model(1));
    assert_eq!(read(&store, 2).expect("it is whole"), model(2));
}

#[test]
fn an_owner_whose_folder_was_removed_knows_that_it_is_none_any_more() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = claim(&store, false).expect("nobody else has it");
    for object in store.list("").expect("it can be listed") {
        store.delete(&object.path).expect("it can be deleted");
    }
    let other = Claim { holder: "another".to_owned(), now_ms: 1, ..gentle_claim() };
    let second = Owner::claim(Arc::clone(&store), other);
    let second = second.expect("there is nothing");
    assert_eq!(first.token(), second.token(), "both are the first of their history");
    publish(&second, 1, &model(1)).expect("the second is the owner");
    first.begin(2, None).expect("a new number");
    let error = first.publish(2, Vec::new(), Vec::new(), 0).expect_err("it is fenced");
    assert_eq!(error.kind(), ErrorKind::Fenced);
    first.retain(1, 0).expect_err("it is fenced");
    assert_eq!(read(&store, 1).expect("it is whole"), model(1));
}

#[test]
fn a_live_owner_in_a_folder_is_not_disturbed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()));
    let owner = claim(&store, false).expect("nobody else has it");
    let gentle = || Owner::claim(Arc::clone(&store), gentle_claim());
    let error = gentle().expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Held);
    assert!(error.to_string().contains("a test"), "the holder is named: {error}");
    publish(&owner, 1, &model(1)).expect("the first is still the owner");
    drop(owner);
    assert!(gentle().is_ok(), "the lock goes with its owner");
}

#[test]
fn an_id_belongs_to_one_name() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    drop(claim(&store, false).expect("nobody else has it"));
    let claim = Claim { name: "another".to_owned(), ..gentle_claim() };
    let error = Owner::claim(store, claim).expect_err("it is another's");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("`test`"), "{error}");
}

/// A store that forgets to answer: the manifest's create fails, and is done after all, now or later.
#[derive(Debug)]
struct Silent {
    store: Arc<dyn Store>,
    /// The bytes arrive at once, or only when somebody looks again.
    late: bool,
    on_its_way: parking_lot::Mutex<Option<(String, Vec<u8>)>>,
}

impl Silent {
    /// What was on its way arrives, if its name is still free.
    fn arrive(&self) {
        if let Some((path, bytes)) = self.on_its_way.lock().take() {
            self.store.create(&path, &bytes).ok();
        }
    }
}

impl Store for Silent {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        if !path.ends_with("chk-2/_metadata") || self.on_its_way.lock().is_some() {
            return self.store.create(path, bytes);
        }
        *self.on_its_way.lock() = Some((path.to_owned(), bytes.to_vec()));
        if !self.late {
            self.arrive();
        }
        Err(Error::new(ErrorKind::Io, "no answer"))
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        self.store.put(path)
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.store.read(path, offset, len)
    }

    fn size(&self, path: &str) -> Result<u64> {
        self.store.size(path)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.store.list(prefix)
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.store.delete(path)
    }

    fn location(&self) -> String {
        self.store.location()
    }
}

#[test]
fn a_manifest_whose_answer_was_lost_is_published() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let silent = Silent { store: inner, late: false, on_its_way: parking_lot::Mutex::default() };
    let store: Arc<dyn Store> = Arc::new(silent);
    let owner = claim(&store, false).expect("nobody else has it");
    publish(&owner, 1, &model(1)).expect("it can be published");
    publish(&owner, 2, &model(2)).expect("it was, though nobody answered");
    assert_eq!(read(&store, 2).expect("it is whole"), model(2));
}

#[test]
fn a_manifest_that_comes_too_late_comes_to_nothing() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let silent = Silent { store: inner, late: true, on_its_way: parking_lot::Mutex::default() };
    let silent = Arc::new(silent);
    let store: Arc<dyn Store> = Arc::<Silent>::clone(&silent);
    let owner = claim(&store, false).expect("nobody else has it");
    publish(&owner, 1, &model(1)).expect("it can be published");
    let error = publish(&owner, 2, &model(2)).expect_err("nobody answered");
    assert_eq!(error.kind(), ErrorKind::Io, "it is certain that there is none: {error}");
    owner.abandon(2).expect("it can be given up");
    silent.arrive();
    let numbers = || -> Vec<u64> {
        let listed = history(&store, job()).expect("it can be listed");
        listed.iter().map(|listed| listed.checkpoint).collect()
    };
    assert_eq!(numbers(), [1]);
    publish(&owner, 3, &model(3)).expect("the job goes on");
    owner.retain(1, 0).expect("it can be deleted");
    assert_eq!(numbers(), [3]);
    let left = store.list(&format!("{}/chk-2/", job())).expect("it can be listed");
    assert_eq!(left, [], "what kept the name goes with the next retention");
}
