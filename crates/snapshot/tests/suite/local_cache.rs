//! A local folder between a reader and a store that is far away: fewer reads, never other entries,
//! whatever becomes of the folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Model, claim, job, publish, publish_changes, read_all};
use strandline_snapshot::{
    ErrorKind, LocalCache, MemoryStore, Object, Result, Snapshot, Store, Upload,
};

/// Counts the reads of packs.
#[derive(Debug, Default)]
struct Far {
    store: MemoryStore,
    reads: AtomicU64,
}

impl Store for Far {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.store.create(path, bytes)
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        self.store.put(path)
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        if path.ends_with(".pack") {
            // Relaxed: one thread counts and looks.
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
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

fn model(count: u32, salt: u32) -> Model {
    let entry = |n: u32| {
        let value = spread(n ^ salt).repeat(4);
        (spread(n), value)
    };
    Model::from([("s".to_owned(), (0..count).map(entry).collect())])
}

/// Bytes that are spread and don't compress.
fn spread(n: u32) -> Vec<u8> {
    strandline_snapshot::Hash::of(&n.to_le_bytes()).0.to_vec()
}

/// A store with a checkpoint of a base and changes, some 5 MB, and the model of it.
fn scene() -> (Arc<Far>, Model) {
    let far = Arc::new(Far::default());
    let store: Arc<dyn Store> = Arc::<Far>::clone(&far);
    let owner = claim(&store, false).expect("nobody has it");
    let before = model(30_000, 0);
    publish(&owner, 1, &before).expect("storage works");
    let mut after = before.clone();
    for (name, changed) in model(3_000, 7) {
        after.entry(name).or_default().extend(changed);
    }
    publish_changes(&owner, 2, &before, &after).expect("storage works");
    (far, after)
}

/// Opens checkpoint 2 anew, with a cache opened anew.
fn open(far: &Arc<Far>, folder: &Path, limit_bytes: u64) -> (Snapshot, Arc<LocalCache>) {
    let store: Arc<dyn Store> = Arc::<Far>::clone(far);
    let cache = Arc::new(LocalCache::open(folder, limit_bytes).expect("the folder works"));
    let snapshot = Snapshot::open(&store, job(), 2).expect("it is there");
    (snapshot.with_local_cache(Arc::clone(&cache)), cache)
}

/// Reads all entries and some keys; how often packs were read for it.
fn check(far: &Arc<Far>, folder: &Path, limit_bytes: u64, model: &Model) -> u64 {
    let before = far.reads.load(Ordering::Relaxed);
    let (snapshot, cache) = open(far, folder, limit_bytes);
    assert_eq!(&read_all(&snapshot).expect("it is whole"), model);
    for (key, value) in model.values().flatten().step_by(997) {
        assert_eq!(snapshot.get("s", key).expect("it is whole").as_ref(), Some(value));
    }
    assert!(cache.bytes() <= limit_bytes);
    far.reads.load(Ordering::Relaxed) - before
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let parts = fs::read_dir(folder).expect("it is there").map(|part| part.expect("it is").path());
    let inner = |part: PathBuf| fs::read_dir(part).expect("it is a folder");
    parts.flat_map(inner).map(|file| file.expect("it is").path()).collect()
}

type Damage = fn(&Path);

const ROOM: u64 = 1 << 30;

#[test]
fn what_has_been_read_is_not_read_again() {
    let (far, model) = scene();
    let folder = tempfile::tempdir().expect("there is room");
    assert!(check(&far, folder.path(), ROOM, &model) > 0);
    assert_eq!(check(&far, folder.path(), ROOM, &model), 0);
    // A folder without room is none.
    let other = tempfile::tempdir().expect("there is room");
    assert!(check(&far, other.path(), 0, &model) > 0);
    assert!(files(other.path()).is_empty());
    // One with room for some of it serves some of it.
    assert!(check(&far, other.path(), 1 << 20, &model) > 0);
    assert!(check(&far, other.path(), 1 << 20, &model) > 0);
}

#[test]
fn a_lookup_keeps_what_it_has_read() {
    let (far, model) = scene();
    let folder = tempfile::tempdir().expect("there is room");
    let (key, value) = model["s"].iter().nth(4_321).expect("there are as many");
    for expected in [true, false] {
        let before = far.reads.load(Ordering::Relaxed);
        let (snapshot, _) = open(&far, folder.path(), ROOM);
        assert_eq!(snapshot.get("s", key).expect("it is whole").as_ref(), Some(value));
        assert_eq!(far.reads.load(Ordering::Relaxed) > before, expected);
    }
}

#[test]
fn damage_in_the_folder_is_read_around() {
    let (far, model) = scene();
    let damages: [(&str, Damage); 6] = [
        ("flipped", |file| {
            let mut bytes = fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(file, bytes).unwrap();
        }),
        ("empty", |file| fs::write(file, "").unwrap()),
        ("short", |file| {
            let bytes = fs::read(file).unwrap();
            fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("long", |file| {
            let bytes = fs::read(file).unwrap();
            fs::write(file, [bytes, vec![0; 9]].concat()).unwrap();
        }),
        ("removed", |file| fs::remove_file(file).unwrap()),
        ("a folder", |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let folder = tempfile::tempdir().expect("there is room");
        check(&far, folder.path(), ROOM, &model);
        files(folder.path()).iter().for_each(|file| damage(file));
        assert!(check(&far, folder.path(), ROOM, &model) > 0, "{what}");
        if what != "a folder" {
            assert_eq!(check(&far, folder.path(), ROOM, &model), 0, "{what}");
        }
    }
}

#[test]
fn a_deleted_checkpoint_is_subsumed_and_not_damaged() {
    let (far, _) = scene();
    let folder = tempfile::tempdir().expect("there is room");
    let (snapshot, _) = open(&far, folder.path(), ROOM);
    for object in far.list("").expect("storage works") {
        far.delete(&object.path).expect("storage works");
    }
    let error = read_all(&snapshot).expect_err("nothing of it has been read");
    assert_eq!(error.kind(), ErrorKind::Subsumed);
}
