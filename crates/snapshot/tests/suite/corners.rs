//! Corners that a reviewer found: owners that stall in the middle, records that come late, bytes that
//! are too many, parts that are shared.

use crate::common::{Model, entries, gentle_claim, job, publish, read, write};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use strandline_snapshot::{
    Attempt, Claim, Claimant, Error, ErrorKind, LocalStore, MemoryStore, Object, Owner, Result,
    Snapshot, Store, Upload, history, verify,
};

type Hook = Box<dyn FnOnce() + Send>;
/// Runs a hook before an operation whose name and path match.
struct Hooked {
    inner: Arc<dyn Store>,
    hooks: Mutex<Vec<(&'static str, String, Hook)>>,
    fail: Mutex<Vec<(&'static str, String)>>,
    local: bool,
}
impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}
impl Hooked {
    fn new(inner: Arc<dyn Store>, local: bool) -> Arc<Self> {
        Arc::new(Self { inner, hooks: Mutex::default(), fail: Mutex::default(), local })
    }
    fn on(&self, op: &'static str, part: &str, hook: impl FnOnce() + Send + 'static) {
        self.hooks.lock().push((op, part.to_owned(), Box::new(hook)));
    }
    fn run(&self, op: &'static str, path: &str) -> Result<()> {
        let hook = {
            let mut hooks = self.hooks.lock();
            hooks
                .iter()
                .position(|(o, p, _)| *o == op && path.contains(p.as_str()))
                .map(|at| hooks.remove(at).2)
        };
        if let Some(hook) = hook {
            hook();
        }
        let mut fail = self.fail.lock();
        if let Some(at) = fail.iter().position(|(o, p)| *o == op && path.contains(p.as_str())) {
            fail.remove(at);
            return Err(eio());
        }
        Ok(())
    }
}
/// An error as storage gives it.
fn eio() -> Error {
    Error::new(ErrorKind::Io, "no space is left")
}
impl Store for Hooked {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.run("create", path)?;
        self.inner.create(path, bytes)
    }
    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        self.inner.put(path)
    }
    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.run("read", path)?;
        self.inner.read(path, offset, len)
    }
    fn size(&self, path: &str) -> Result<u64> {
        self.inner.size(path)
    }
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.inner.list(prefix)
    }
    fn delete(&self, path: &str) -> Result<()> {
        self.inner.delete(path)
    }
    fn location(&self) -> String {
        self.inner.location()
    }
    fn local_root(&self) -> Option<PathBuf> {
        self.local.then(|| PathBuf::from("/none"))
    }
}
fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}
fn taking_over() -> Claim {
    Claim { take_over: true, ..gentle_claim() }
}
fn model(n: u64) -> Model {
    Model::from([("table".to_owned(), entries(n, 100))])
}

/// An owner that is overtaken between its publish's look and its manifest, while it retains.
#[test]
fn a_void_checkpoint_does_not_push_out_the_one_that_counts() {
    let inner = memory();
    let store = Hooked::new(Arc::clone(&inner), false);
    let dynamic: Arc<dyn Store> = Arc::clone(&store) as _;
    let old = Arc::new(Owner::claim(Arc::clone(&dynamic), gentle_claim()).expect("a"));
    let state = model(100);
    publish(&old, 1, &state).expect("1");
    let next: Arc<Mutex<Option<Owner>>> = Arc::default();
    // retain(1) after checkpoint 1; it has listed the fences when the hook runs.
    let (old2, store2, inner2, next2) =
        (Arc::clone(&old), Arc::clone(&store), Arc::clone(&inner), Arc::clone(&next));
    store.on("read", "/fence/", move || {
        let next3 = Arc::clone(&next2);
        store2.on("create", "/chk-2/", move || {
            *next3.lock() = Some(Owner::claim(inner2, taking_over()).expect("b"));
        });
        let error = publish(&old2, 2, &model(10)).expect_err("void");
        assert_eq!(error.kind(), ErrorKind::Fenced);
    });
    old.retain(1, 0).ok();
    let next = next.lock().take().expect("b has claimed");
    // The new owner goes on: what it publishes names packs that are gone.
    let number = next.first_checkpoint().max(3);
    publish(&next, number, &state).expect("it says that it is published");
    let report = verify(&inner, job(), number).expect("v");
    assert!(report.problems.is_empty());
    assert_eq!(read(&inner, 1).expect("the accepted checkpoint is there"), state);
}

/// A fresh start that stalls before its record, and is overtaken by one that goes on.
#[test]
fn a_late_record_voids_nothing() {
    let inner = memory();
    let store = Hooked::new(Arc::clone(&inner), false);
    let a = Owner::claim(Arc::clone(&inner), gentle_claim()).expect("a");
    publish(&a, 1, &model(100)).expect("1");
    drop(a);
    let (inner2, third) = (Arc::clone(&inner), Arc::<Mutex<Option<Owner>>>::default());
    let third2 = Arc::clone(&third);
    store.on("create", "/accepted/", move || {
        let mut claimant = Claimant::new(Arc::clone(&inner2), gentle_claim());
        let Ok(Attempt::Wait(ms)) = claimant.attempt(0) else { panic!() };
        let Ok(Attempt::Claimed(c)) = claimant.attempt(ms) else { panic!() };
        assert_eq!(c.accepted().map(|l| l.checkpoint), Some(1));
        *third2.lock() = Some(*c);
    });
    let fresh = Claim { fresh: true, ..gentle_claim() };
    let error = Owner::claim(store, fresh).expect_err("it was overtaken");
    assert_eq!(error.kind(), ErrorKind::Fenced);
    std::mem::forget(third.lock().take());
    let d = Owner::claim(inner, taking_over()).expect("d");
    assert_eq!(d.accepted().map(|l| l.checkpoint), Some(1));
}

#[test]
fn a_manifest_that_nobody_can_read_is_not_published() {
    let store = memory();
    let owner = Owner::claim(Arc::clone(&store), gentle_claim()).expect("a");
    publish(&owner, 1, &model(10)).expect("1");
    let checkpoint = owner.begin(2, owner.newest()).expect("2");
    let written = write(&checkpoint, "all", &model(10)).expect("w");
    let published = owner.publish(2, vec![written], vec![0; 257 << 20], 0);
    let ok = published.is_ok();
    owner.retain(1, 0).expect("r");
    let opened = Snapshot::open(&store, job(), 2).map(drop);
    let older = Snapshot::open(&store, job(), 1).map(drop);
    assert!(!ok && opened.is_err(), "it is refused: nobody could read it");
    assert!(older.is_ok(), "the one before is still there");
}

#[test]
fn an_error_that_passes_is_not_damage() {
    let inner = memory();
    let store = Hooked::new(Arc::clone(&inner), false);
    let a = Owner::claim(Arc::clone(&inner), gentle_claim()).expect("a");
    publish(&a, 1, &model(10)).expect("1");
    publish(&a, 2, &model(20)).expect("2");
    drop(a);
    store.fail.lock().push(("read", "/chk-2/".to_owned()));
    let b = Owner::claim(store, gentle_claim());
    let Ok(b) = b else { return };
    assert_eq!(b.newest(), Some(2));
}

#[test]
fn what_was_written_for_one_checkpoint_is_not_published_as_another() {
    let store = memory();
    let owner = Owner::claim(Arc::clone(&store), gentle_claim()).expect("a");
    publish(&owner, 1, &model(500)).expect("1");
    let mut before = model(500);
    let mut number = 2;
    // a stack deep enough for a merge
    for round in 0..12_u8 {
        let mut after = before.clone();
        for (i, (_, v)) in after.get_mut("table").expect("it works").iter_mut().enumerate() {
            if i % 13 == round as usize % 13 {
                *v = vec![round; 5];
            }
        }
        let checkpoint = owner.begin(number, owner.newest()).expect("it works");
        let w = crate::common::write_changes(&checkpoint, "c", &before, &after).expect("it works");
        owner.publish(number, vec![w], vec![], 0).expect("it works");
        before = after;
        number += 1;
    }
    let early = owner.begin(number, owner.newest()).expect("it works");
    let merged = early.merge().expect("it works");
    let mut after = before.clone();
    for v in after.get_mut("table").expect("it works").values_mut() {
        *v = b"new".to_vec();
    }
    let n = number + 1;
    let cp = owner.begin(n, owner.newest()).expect("it works");
    let w = crate::common::write_changes(&cp, "c", &before, &after).expect("it works");
    owner.publish(n, vec![w], vec![], 0).expect("it works");
    assert_eq!(read(&store, n).expect("it works"), after);
    let number = n;
    let before = after.clone();
    let cp = owner.begin(number + 1, owner.newest()).expect("it works");
    let w = crate::common::write_changes(&cp, "c", &before, &after).expect("it works");
    let r = owner.publish(number + 1, vec![w, merged], vec![], 0);
    if r.is_ok() {
        let got = read(&store, number + 1).expect("it works");
        let wrong =
            got["table"].iter().filter(|(k, v)| before["table"].get(*k) != Some(*v)).count();
        assert_eq!(wrong, 0, "wrong values");
    }
}

#[test]
fn a_local_publish_that_fails_removes_nobody_elses_manifest() {
    let inner = memory();
    let store = Hooked::new(Arc::clone(&inner), true);
    let a = Owner::claim(Arc::clone(&store) as Arc<dyn Store>, gentle_claim()).expect("a");
    publish(&a, 1, &model(10)).expect("1");
    let inner2 = Arc::clone(&inner);
    let kept: Arc<Mutex<Option<Owner>>> = Arc::default();
    let kept2 = Arc::clone(&kept);
    store.on("create", "/chk-2/", move || {
        let b = Owner::claim(Arc::clone(&inner2), taking_over()).expect("b");
        eprintln!("b begins with {}", b.first_checkpoint());
        // The packs of a's 2 are there, so b begins with 3; nothing collides unless there is no trace.
        let n = b.first_checkpoint();
        publish(&b, n, &model(20)).expect("b's");
        *kept2.lock() = Some(b);
    });
    store.fail.lock().push(("create", "/chk-2/".to_owned()));
    a.begin(2, None).expect("2");
    // nothing written: no trace of 2.
    let error = a.publish(2, vec![], vec![], 0).expect_err("the disk is full");
    assert_eq!(error.kind(), ErrorKind::Io);
    let listed: Vec<u64> =
        history(&inner, job()).expect("h").iter().map(|l| l.checkpoint).collect();
    assert_eq!(listed, [1, 2], "b's checkpoint was published");
}

#[test]
fn every_part_that_is_lost_is_named() {
    let store = memory();
    let owner = Owner::claim(Arc::clone(&store), gentle_claim()).expect("a");
    let same = entries(100, 100);
    let model = Model::from([("one".to_owned(), same.clone()), ("two".to_owned(), same)]);
    publish(&owner, 1, &model).expect("1");
    let pack = store
        .list("")
        .expect("it works")
        .into_iter()
        .find(|o| o.path.ends_with(".pack"))
        .expect("it works");
    let mut bytes =
        store.read(&pack.path, 0, usize::try_from(pack.bytes).expect("small")).expect("it works");
    bytes[40] ^= 1;
    store.delete(&pack.path).expect("it works");
    store.create(&pack.path, &bytes).expect("it works");
    let report = verify(&store, job(), 1).expect("it works");
    let lost: Vec<_> =
        report.problems.iter().filter_map(|p| p.lost.as_ref().map(|l| l.section.clone())).collect();
    assert_eq!(lost, ["one", "two"]);
}

#[test]
fn an_owner_that_took_over_is_not_overtaken_as_soon_as_the_old_one_dies() {
    let folder = tempfile::tempdir().expect("it works");
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()));
    let a = Owner::claim(Arc::clone(&store), gentle_claim()).expect("a");
    let b = Owner::claim(Arc::clone(&store), taking_over()).expect("b");
    drop(a);
    b.renew(0).expect("alive");
    let c = Owner::claim(Arc::clone(&store), gentle_claim());
    assert!(c.is_err(), "b is alive");
}

#[test]
fn fence_of_the_greatest_number() {
    let store = memory();
    store.create(&format!("{}/fence/18446744073709551615", job()), b"junk").expect("it works");
    let error = Owner::claim(Arc::clone(&store), gentle_claim()).expect_err("tokens have an end");
    assert!(error.to_string().contains("18446744073709551615"), "{error}");
}

#[test]
fn a_fresh_start_is_always_possible() {
    for part in ["/lease/", "/accepted/"] {
        let store = memory();
        let a = Owner::claim(Arc::clone(&store), gentle_claim()).expect("a");
        publish(&a, 1, &model(10)).expect("1");
        std::mem::forget(a);
        for o in store.list("").expect("it works").into_iter().filter(|o| o.path.contains(part)) {
            store.delete(&o.path).expect("it works");
            store.create(&o.path, b"junk").expect("it works");
        }
        let owner = Owner::claim(Arc::clone(&store), Claim { fresh: true, ..taking_over() });
        let owner = owner.expect("it needs nothing of what was before");
        publish(&owner, owner.first_checkpoint(), &model(10)).expect("it goes on");
        let listed = history(&store, job()).expect("what is damaged is not read any more");
        assert_eq!(listed.len(), 1, "{part}");
    }
}

#[test]
fn a_long_savepoint_name_does_not_close_the_job() {
    let store = memory();
    let long = Claim { savepoint: Some("x".repeat(70_000)), ..gentle_claim() };
    let error = Owner::claim(Arc::clone(&store), long).expect_err("it could not be read again");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let next = Claim { take_over: true, ..gentle_claim() };
    assert!(Owner::claim(Arc::clone(&store), next).is_ok());
}

/// A manifest that is given up, and whose write comes late, after a sweep.
#[test]
fn what_was_given_up_stays_so() {
    let inner = memory();
    let store = Hooked::new(Arc::clone(&inner), false);
    let a = Owner::claim(Arc::clone(&store) as Arc<dyn Store>, gentle_claim()).expect("a");
    publish(&a, 1, &model(10)).expect("1");
    let c2 = a.begin(2, a.newest()).expect("it works");
    let c3 = a.begin(3, a.newest()).expect("it works");
    let w2 = write(&c2, "all", &model(20)).expect("it works");
    let w3 = write(&c3, "all", &model(30)).expect("it works");
    // 3 first: its PUT times out, and its name is occupied.
    store.fail.lock().push(("create", "/chk-3/".to_owned()));
    a.publish(3, vec![w3], vec![], 0).expect_err("it timed out");
    a.abandon(3).expect("it works");
    a.publish(2, vec![w2], vec![], 0).expect("it works");
    a.retain(1, 0).expect("it works");
    let there = inner.size(&format!("{}/chk-3/_metadata", job())).is_ok();
    assert!(
        there,
        "the name is free again: the late manifest would be the newest checkpoint, without packs"
    );
}
