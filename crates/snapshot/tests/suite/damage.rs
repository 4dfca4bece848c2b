//! Every kind of file, damaged in every way: an error that names it, or a reading that does not
//! touch it; never a panic, never a wrong value. And a job goes on whatever is damaged, or says why
//! not.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use crate::common::{Model, claim, entries, job, publish, publish_changes, read, write};
use strandline_snapshot::{
    Claim, Compression, ErrorKind, JobId, LocalStore, MemoryStore, Owner, Pin, Result, Snapshot,
    Store, history, list_jobs, pieces, verify,
};

/// The two checkpoints that are kept.
const NEWEST: u64 = 14;
const PREVIOUS: u64 = 13;

type Objects = BTreeMap<String, Vec<u8>>;

/// A job of three owners, with objects of every kind.
struct Scene {
    objects: Objects,
    models: BTreeMap<u64, Model>,
}

impl Scene {
    fn make(compression: Compression) -> Result<Self> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let mut models = BTreeMap::new();
        let mut owner = claim_with(&store, compression)?;
        for number in 1..=NEWEST {
            models.insert(number, model(number));
            match models.get(&(number - 1)) {
                None => publish(&owner, number, &model(number))?,
                Some(before) => drop(publish_changes(&owner, number, before, &model(number))?),
            }
            if number == 5 || number == 9 {
                owner = claim_with(&store, compression)?;
            }
        }
        owner.retain(2, 0)?;
        drop(owner);
        Owner::claim(Arc::clone(&store), Claim::new("another"))?;
        // Held until the objects have been read: they are among them.
        let _pins =
            [1, 2].map(|expires_ms| Pin::open(&store, job(), NEWEST, "a reader", expires_ms));
        models.retain(|number, _| *number >= PREVIOUS);
        let all = store.list("")?.into_iter().map(|object| {
            let bytes =
                store.read(&object.path, 0, usize::try_from(object.bytes).expect("small"))?;
            Ok((object.path, bytes))
        });
        Ok(Self { objects: all.collect::<Result<_>>()?, models })
    }

    fn of(compression: Compression) -> &'static Self {
        static SCENES: [OnceLock<Scene>; 3] = [const { OnceLock::new() }; 3];
        let [none, lz4, zstd] = &SCENES;
        let scene = match compression {
            Compression::None => none,
            Compression::Lz4 => lz4,
            Compression::Zstd => zstd,
        };
        scene.get_or_init(|| Self::make(compression).expect("memory does not fail"))
    }

    fn memory(&self) -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        for (path, bytes) in &self.objects {
            store.create(path, bytes).expect("a new object");
        }
        store
    }

    /// The same in a folder.
    fn folder(&self) -> (tempfile::TempDir, Arc<dyn Store>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (path, bytes) in &self.objects {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().expect("it has one")).expect("it can be made");
            fs::write(file, bytes).expect("it can be written");
        }
        let store = Arc::new(LocalStore::new(folder.path()));
        (folder, store)
    }

    /// The first object of the job whose path below its folder begins and ends so.
    fn path(&self, begin: &str, end: &str) -> &str {
        let begin = format!("{}/{begin}", job());
        let found =
            self.objects.keys().find(|path| path.starts_with(&begin) && path.ends_with(end));
        found.expect("there is one of every kind")
    }

    /// Other objects of the same kind.
    fn alike(&self, path: &str) -> Vec<&[u8]> {
        let kind = |path: &str| {
            let (folder, name) = path.rsplit_once('/').unwrap_or_default();
            let folder = folder.split('/').nth(1).unwrap_or_default().to_owned();
            let folder = folder.split('-').next().unwrap_or_default().to_owned();
            (folder, name.starts_with('_'))
        };
        let others = self.objects.iter().filter(|(other, _)| *other != path);
        let alike = others.filter(|(other, _)| kind(other) == kind(path));
        alike.map(|(_, bytes)| &bytes[..]).collect()
    }
}

fn claim_with(store: &Arc<dyn Store>, compression: Compression) -> Result<Owner> {
    let claim = Claim { take_over: true, compression, ..Claim::new("test") };
    Owner::claim(Arc::clone(store), claim)
}

/// What checkpoint `number` holds: a base of some chunks under changes, and a little section.
fn model(number: u64) -> Model {
    static BASE: OnceLock<BTreeMap<Vec<u8>, Vec<u8>>> = OnceLock::new();
    // Half of a value can be compressed.
    let base = BASE.get_or_init(|| {
        let long = |(key, value): (Vec<u8>, Vec<u8>)| (key, [&value[..], &[b'v'; 75]].concat());
        entries(450, 100).into_iter().map(long).collect()
    });
    let mut all = base.clone();
    let keys: Vec<&Vec<u8>> = base.keys().collect();
    for round in 1..=number {
        let first = usize::try_from(round).expect("small");
        for key in keys.iter().skip(first).step_by(56) {
            all.insert((*key).clone(), round.to_le_bytes().to_vec());
        }
        keys.get(first * 20).and_then(|key| all.remove(*key)).expect("no round removes it twice");
    }
    let few = (0..number).map(|at| (at.to_le_bytes().to_vec(), vec![1]));
    Model::from([("counts".to_owned(), all), ("splits".to_owned(), few.collect())])
}

/// What stands in an object's place.
#[derive(Clone, Copy)]
enum Instead<'a> {
    Bytes(&'a [u8]),
    Nothing,
}

/// Calls `check` with every damage of some bytes.
fn every_damage(whole: &[u8], alike: &[&[u8]], check: &mut dyn FnMut(Instead<'_>, &str)) {
    check(Instead::Nothing, "removed");
    check(Instead::Bytes(&[]), "0 bytes");
    let mut first = |bytes: usize, what: &str| {
        check(Instead::Bytes(whole.get(..bytes).expect("it has more")), what);
    };
    first(1, "1 byte");
    first(whole.len() / 2, "half");
    first(whole.len() - 1, "one byte less");
    check(Instead::Bytes(&[whole, &[0]].concat()), "one byte more");
    for (number, other) in alike.iter().enumerate() {
        check(Instead::Bytes(other), &format!("another of its kind, {number}"));
    }
    for step in 0..200 {
        let at = step * (whole.len() - 1) / 199;
        let mut flipped = whole.to_vec();
        *flipped.get_mut(at).expect("within the bytes") ^= 1 << (step % 8);
        check(Instead::Bytes(&flipped), &format!("a bit flipped at {at}"));
    }
}

/// Damages one object of a scene in every way.
fn check_object(scene: &Scene, path: &str) {
    let touched = touched_by(scene, path);
    let whole = scene.objects.get(path).expect("it is of the scene");
    every_damage(whole, &scene.alike(path), &mut |instead, what| {
        let store = scene.memory();
        store.delete(path).expect("memory does not fail");
        if let Instead::Bytes(bytes) = instead {
            store.create(path, bytes).expect("memory does not fail");
        }
        let case = Case { store, models: &scene.models, path, what, touched: &touched };
        case.check_readers();
        case.check_owner();
    });
}

/// The checkpoints that can't do without an object.
fn touched_by(scene: &Scene, path: &str) -> Vec<u64> {
    let store = scene.memory();
    store.delete(path).expect("memory does not fail");
    let is_whole = |number: &u64| {
        verify(&store, job(), *number).is_ok_and(|report| report.problems.is_empty())
    };
    [PREVIOUS, NEWEST].into_iter().filter(|number| !is_whole(number)).collect()
}

/// A store in which one object is damaged.
struct Case<'a> {
    store: Arc<dyn Store>,
    models: &'a BTreeMap<u64, Model>,
    path: &'a str,
    what: &'a str,
    touched: &'a [u64],
}

impl Case<'_> {
    /// For messages.
    fn name(&self) -> String {
        format!("{}: {}", self.path, self.what)
    }

    /// An error is one that a person can do something with.
    fn check_error(&self, error: &strandline_snapshot::Error) {
        let (name, text) = (self.name(), error.to_string());
        assert!(text.contains(self.path), "{name}: not named: {text}");
        let kinds = [ErrorKind::Damaged, ErrorKind::NotFound, ErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{name}: {:?}: {text}", error.kind());
    }

    fn check_readers(&self) {
        let name = self.name();
        for (number, model) in self.models {
            let found = read(&self.store, *number);
            self.check_verify(*number, found.is_ok());
            match found {
                Ok(found) => assert!(found == *model, "{name}: {number} reads as something else"),
                Err(error) => {
                    self.check_error(&error);
                    assert!(self.touched.contains(number), "{name}: {number}: {error}");
                }
            }
            self.check_get(*number, model);
        }
        let listed = history(&self.store, job());
        match listed {
            Ok(listed) => {
                let numbers: Vec<u64> = listed.iter().map(|listed| listed.checkpoint).collect();
                let gone = |number: &u64| self.store.size(&manifest(*number)).is_err();
                let expected: Vec<u64> =
                    self.models.keys().copied().filter(|number| !gone(number)).collect();
                assert_eq!(numbers, expected, "{name}");
            }
            Err(error) => self.check_error(&error),
        }
        let jobs = list_jobs(&self.store).expect("memory does not fail");
        let found = jobs.iter().find(|entry| entry.id == job()).expect("it has objects");
        assert!(found.name == "test" || found.name.is_empty(), "{name}: {found:?}");
    }

    fn check_verify(&self, number: u64, whole: bool) {
        let name = self.name();
        match verify(&self.store, job(), number) {
            Ok(report) => {
                let object = self.store.describe(self.path);
                let named = report.problems.iter().all(|problem| problem.object == object);
                assert!(named, "{name}: {report:?}");
                // A pack's header and what nobody names are no part of what is read.
                assert!(whole || !report.problems.is_empty(), "{name}: {number}: {report:?}");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{name}: {error}"),
        }
    }

    fn check_get(&self, number: u64, model: &Model) {
        let Ok(snapshot) = Snapshot::open(&self.store, job(), number) else { return };
        for (section, entries) in model {
            for (key, value) in entries.iter().step_by(entries.len() / 4 + 1) {
                match snapshot.get(section, key) {
                    Ok(found) => assert_eq!(found.as_ref(), Some(value), "{}", self.name()),
                    Err(error) => self.check_error(&error),
                }
            }
        }
    }

    /// The next owner goes on, or says what keeps it; and what it writes anew is whole.
    fn check_owner(&self) {
        let name = self.name();
        let owner = match claim(&self.store, false) {
            Ok(owner) => owner,
            Err(error) => return self.check_error(&error),
        };
        let number = owner.first_checkpoint();
        assert!(number > NEWEST, "{name}: {number} has been used");
        self.check_changes(&owner, number);
        let all = self.models[&NEWEST].clone();
        let checkpoint = owner.begin(number + 1, None).expect("a new number");
        let written = write(&checkpoint, "all", &all).expect("memory does not fail");
        owner.publish(number + 1, vec![written], Vec::new(), 1).expect("memory does not fail");
        assert!(
            read(&self.store, number + 1).is_ok_and(|found| found == all),
            "{name}: written anew"
        );
        for count in [3, 1] {
            if let Err(error) = owner.retain(count, 2) {
                self.check_error(&error);
            }
        }
        let listed = history(&self.store, job()).unwrap_or_default();
        assert!(
            read(&self.store, number + 1).is_ok_and(|found| found == all),
            "{name}: after retain"
        );
        for listed in listed.iter().filter(|listed| !self.touched.contains(&listed.checkpoint)) {
            if let Some(model) = self.models.get(&listed.checkpoint) {
                let kept = read(&self.store, listed.checkpoint);
                assert!(kept.is_ok_and(|found| found == *model), "{name}: {}", listed.checkpoint);
            }
        }
    }

    /// A checkpoint of changes is as good as what it goes on from.
    fn check_changes(&self, owner: &Owner, number: u64) {
        let name = self.name();
        let Some(before) = owner.newest() else { return };
        let after = model(number);
        match publish_changes(owner, number, &self.models[&before], &after) {
            Ok(_) => match read(&self.store, number) {
                Ok(found) => assert!(found == after, "{name}: {number} reads as something else"),
                Err(error) => self.check_error(&error),
            },
            Err(error) => self.check_error(&error),
        }
    }
}

fn manifest(number: u64) -> String {
    format!("{}/chk-{number}/_metadata", job())
}

#[test]
fn a_damaged_manifest() {
    let scene = Scene::of(Compression::Zstd);
    check_object(scene, &manifest(NEWEST));
    check_object(scene, &manifest(PREVIOUS));
}

/// The pack of a base: chunks, filter, index.
#[test]
fn a_damaged_pack() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let scene = Scene::of(compression);
        check_object(scene, scene.path("shared/", "all.pack"));
    }
}

#[test]
fn a_damaged_pack_of_changes() {
    let scene = Scene::of(Compression::Lz4);
    check_object(scene, scene.path(&format!("shared/{NEWEST:020}"), "changes.pack"));
    check_object(scene, scene.path(&format!("shared/{PREVIOUS:020}"), "changes.pack"));
}

#[test]
fn a_damaged_pack_of_merged_runs() {
    let scene = Scene::of(Compression::Zstd);
    check_object(scene, scene.path("shared/", "merge.pack"));
}

#[test]
fn a_damaged_fence() {
    let scene = Scene::of(Compression::Zstd);
    check_object(scene, scene.path("fence/", "3"));
    check_object(scene, scene.path("fence/", "1"));
}

#[test]
fn a_damaged_record_of_what_is_accepted() {
    let scene = Scene::of(Compression::Zstd);
    check_object(scene, scene.path("accepted/", "3"));
    check_object(scene, scene.path("accepted/", "1"));
}

#[test]
fn a_damaged_lease() {
    let scene = Scene::of(Compression::Zstd);
    check_object(scene, scene.path("lease/", ""));
}

#[test]
fn a_damaged_pin() {
    let scene = Scene::of(Compression::Zstd);
    check_object(scene, scene.path("pins/", ""));
}

#[test]
fn a_damaged_record_of_a_job() {
    let scene = Scene::of(Compression::Zstd);
    check_object(scene, scene.path("_job", ""));
}

/// A folder where a file should be, and what only folders have.
#[test]
fn a_folder_in_the_place_of_a_file() {
    let scene = Scene::of(Compression::Zstd);
    let places = [
        ("chk-14/", ""),
        ("chk-13/", ""),
        ("shared/", "all.pack"),
        ("shared/", "merge.pack"),
        ("fence/", "3"),
        ("accepted/", "3"),
        ("lease/", ""),
        ("pins/", ""),
        ("_job", ""),
    ];
    for (begin, end) in places {
        let path = scene.path(begin, end);
        let (folder, store) = scene.folder();
        let touched = touched_by(scene, path);
        fs::remove_file(folder.path().join(path)).expect("it can be removed");
        fs::create_dir(folder.path().join(path)).expect("it can be made");
        let what = "a folder";
        let case = Case { store, models: &scene.models, path, what, touched: &touched };
        case.check_readers();
        case.check_owner();
    }
}

/// What is in the file that is locked does not matter; that it is a file does.
#[test]
fn a_damaged_lock() {
    let scene = Scene::of(Compression::Zstd);
    let path = format!("{}/owner.lock", job());
    for content in [&b""[..], b"x", &[0; 1000]] {
        let (folder, store) = scene.folder();
        fs::write(folder.path().join(&path), content).expect("it can be written");
        let (models, what, touched) = (&scene.models, "other bytes", &[][..]);
        let case = Case { store, models, path: &path, what, touched };
        case.check_readers();
        case.check_owner();
    }
    let (folder, store) = scene.folder();
    fs::create_dir(folder.path().join(&path)).expect("it can be made");
    let error = claim(&store, false).expect_err("a folder can't be locked");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("owner.lock"), "{error}");
    assert!(read(&store, NEWEST).is_ok());
}

#[test]
fn a_manifest_of_another_version_is_refused() {
    let scene = Scene::of(Compression::Zstd);
    let store = scene.memory();
    let path = manifest(NEWEST);
    let mut bytes = scene.objects[&path].clone();
    bytes[4] += 1;
    store.delete(&path).expect("memory does not fail");
    store.create(&path, &bytes).expect("memory does not fail");
    let error = Snapshot::open(&store, job(), NEWEST).expect_err("it is newer");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("needs version 2"), "{error}");
}

#[test]
fn a_damaged_checkpoint_is_not_deleted_before_newer_ones_are_whole() {
    let scene = Scene::of(Compression::Zstd);
    let store = scene.memory();
    let path = manifest(NEWEST);
    store.delete(&path).expect("memory does not fail");
    store.create(&path, b"nonsense").expect("memory does not fail");
    let owner = claim(&store, false).expect("nobody else has it");
    let numbers = || -> Vec<u64> {
        let listed = history(&store, job()).expect("it can be listed");
        listed.iter().map(|listed| listed.checkpoint).collect()
    };
    assert_eq!(owner.accepted().map(|listed| listed.damaged.is_some()), Some(true));
    publish(&owner, 15, &model(15)).expect("it can be published");
    owner.retain(2, 0).expect("nothing is to be deleted");
    assert_eq!(numbers(), [13, 14, 15]);
    publish(&owner, 16, &model(16)).expect("it can be published");
    owner.retain(2, 0).expect("the damaged one can be deleted");
    assert_eq!(numbers(), [15, 16]);
    assert!(read(&store, 15).is_ok_and(|found| found == model(15)));
}

/// What a fresh start has made void stays void, or it is said which record is not what it should be.
#[test]
fn what_is_void_does_not_come_back() {
    let make = || {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let first = claim(&store, false).expect("a new job");
        publish(&first, 1, &model(1)).expect("memory does not fail");
        publish(&first, 9, &model(9)).expect("memory does not fail");
        drop(first);
        let second = claim(&store, true).expect("the first has gone");
        publish(&second, 10, &model(10)).expect("memory does not fail");
        store
    };
    let record = |token: u64| format!("{}/accepted/{token:020}", job());
    let check = |store: &Arc<dyn Store>, what: &str| match history(store, job()) {
        Ok(listed) => {
            let numbers: Vec<u64> = listed.iter().map(|listed| listed.checkpoint).collect();
            assert_eq!(numbers, [10], "{what}");
        }
        Err(error) => assert!(error.to_string().contains(&record(2)), "{what}: {error}"),
    };
    check(&make(), "as it is");
    let store = make();
    let len = store.size(&record(1)).expect("it is there");
    let other = store.read(&record(1), 0, usize::try_from(len).expect("small")).expect("a record");
    store.delete(&record(2)).expect("memory does not fail");
    store.create(&record(2), &other).expect("memory does not fail");
    check(&store, "that of another owner");
}

/// Where a fence is gone, what its owner has recorded still counts: the next owner is above it.
#[test]
fn an_owner_is_above_every_trace_of_others() {
    let scene = Scene::of(Compression::Zstd);
    let store = scene.memory();
    for token in 2..=3 {
        store.delete(&format!("{}/fence/{token:020}", job())).expect("memory does not fail");
    }
    let owner = claim(&store, false).expect("nobody else has it");
    assert_eq!(owner.token(), 4);
    let number = owner.first_checkpoint();
    publish(&owner, number, &model(number)).expect("memory does not fail");
    let listed = history(&store, job()).expect("it can be listed");
    assert_eq!(listed.last().map(|listed| listed.checkpoint), Some(number));
}

/// A name that no owner can have made ends in an error, not in a number that begins anew.
#[test]
fn there_is_no_token_above_the_last() {
    let store = Scene::of(Compression::Zstd).memory();
    store.create(&format!("{}/fence/{}", job(), u64::MAX), b"").expect("memory does not fail");
    let error = claim(&store, false).expect_err("no number is left");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(&u64::MAX.to_string()), "{error}");
}

/// Two jobs whose records have been exchanged are not taken for each other.
#[test]
fn the_record_of_another_job_is_not_believed() {
    let scene = Scene::of(Compression::Zstd);
    let store = scene.memory();
    let other = JobId::for_name("another");
    let path = |id: JobId| format!("{id}/_job");
    store.delete(&path(job())).expect("memory does not fail");
    store.create(&path(job()), &scene.objects[&path(other)]).expect("memory does not fail");
    let jobs = list_jobs(&store).expect("it can be listed");
    let names: Vec<&str> =
        jobs.iter().filter(|entry| entry.id == job()).map(|entry| &entry.name[..]).collect();
    assert_eq!(names, [""]);
}

#[test]
fn a_visit_that_is_broken_off_reads_no_damage_behind() {
    let scene = Scene::of(Compression::None);
    let store = scene.memory();
    let snapshot = Snapshot::open(&store, job(), NEWEST).expect("it is there");
    let mut first = None;
    let visited = snapshot.visit("counts", &mut |key, _| {
        first = Some(key.to_vec());
        ControlFlow::Break(())
    });
    visited.expect("it can be read");
    assert_eq!(first.as_ref(), scene.models[&NEWEST]["counts"].keys().next());
}

/// Who looks for a section finds one.
#[test]
fn a_section_that_is_there_twice_is_refused() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let owner = claim(&store, false).expect("a new job");
    let section = |name: &str| (name.to_owned(), entries(3, 5));
    publish(&owner, 1, &Model::from([section("table-a"), section("table-b")])).expect("memory");
    let len = usize::try_from(store.size(&manifest(1)).expect("it is there")).expect("small");
    let bytes = store.read(&manifest(1), 0, len).expect("it is there");
    let payload = bytes.get(16..len - 32).expect("a frame has more");
    assert_eq!(pieces::manifest_of_payload(payload).expect("as it was written"), bytes);
    for name in [&b"table-a"[..], b""] {
        let at = payload.windows(7).position(|part| part == b"table-b").expect("it is named");
        let (before, behind) = payload.split_at(at);
        // Before a text of less than 32 bytes there is its length.
        let (before, _) = before.split_at(at - 1);
        let length = 0xA0 + u8::try_from(name.len()).expect("short");
        let edited = [before, &[length], name, behind.get(7..).expect("it is longer")].concat();
        let error = pieces::manifest_of_payload(&edited).expect_err("no such name");
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    }
}
