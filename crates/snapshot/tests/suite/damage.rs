//! Every kind of file, damaged in every way: an error that names it, or a reading that does not
//! touch it; never a panic, never a wrong value.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{Model, claim, entries, job, publish, read};
use strandline_snapshot::{ErrorKind, LocalStore, Snapshot, Store, history, verify};

struct Scene {
    folder: tempfile::TempDir,
    store: Arc<dyn Store>,
    model: Model,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()));
        let model = Model::from([
            ("counts".to_owned(), entries(3_000, 40)),
            ("splits".to_owned(), entries(3, 10)),
        ]);
        let owner = claim(&store, false).expect("nobody else has it");
        publish(&owner, 1, &model).expect("it can be published");
        Self { folder, store, model }
    }

    fn job_folder(&self) -> PathBuf {
        self.folder.path().join(job().to_string())
    }

    fn manifest(&self) -> PathBuf {
        self.job_folder().join("chk-1/_metadata")
    }

    fn pack(&self) -> PathBuf {
        let packs = fs::read_dir(self.job_folder().join("shared")).expect("there are packs");
        packs.map(|entry| entry.expect("it can be listed").path()).next().expect("there is a pack")
    }

    /// Reading either gives what was written or an error that names the file; verify reports it.
    fn check(&self, file: &Path, what: &str) {
        let name = file.display().to_string();
        match read(&self.store, 1) {
            Ok(model) => assert_eq!(model, self.model, "{what}"),
            Err(error) => {
                assert!(error.to_string().contains(&name), "{what}: {name} is not in: {error}");
                assert_ne!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
            }
        }
        match verify(&self.store, job(), 1) {
            Ok(report) => {
                let named = report.problems.iter().all(|problem| problem.object == name);
                assert!(named, "{what}: {report:?}");
                let intact = read(&self.store, 1).is_ok_and(|model| model == self.model);
                // A pack's header is verified and otherwise not read.
                assert!(intact || !report.problems.is_empty(), "{what}: {report:?}");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {error}"),
        }
        // Listing goes on, whatever is damaged.
        assert!(history(&self.store, job()).is_ok(), "{what}");
    }
}

fn damage_and_check(scene: &Scene, file: &Path) {
    let whole = fs::read(file).expect("it can be read");
    let check = |bytes: &[u8], what: &str| {
        fs::write(file, bytes).expect("it can be written");
        scene.check(file, what);
    };
    check(&[], "0 bytes");
    let first = |len: usize| whole.get(..len).expect("the file is long");
    check(first(1), "1 byte");
    check(first(whole.len() / 2), "half");
    check(first(whole.len() - 1), "one byte less");
    check(&[&whole[..], &[0]].concat(), "one byte more");
    for step in 0..200 {
        let at = step * (whole.len() - 1) / 199;
        let mut flipped = whole.clone();
        *flipped.get_mut(at).expect("within the file") ^= 1 << (step % 8);
        check(&flipped, &format!("a bit flipped at {at}"));
    }
    fs::remove_file(file).expect("it can be removed");
    scene.check(file, "removed");
    fs::create_dir(file).expect("a folder can be made");
    scene.check(file, "a folder");
    fs::remove_dir(file).expect("it can be removed");
    check(&whole, "put back");
    assert_eq!(read(&scene.store, 1).expect("it is whole again"), scene.model);
}

#[test]
fn a_damaged_manifest() {
    let scene = Scene::new();
    damage_and_check(&scene, &scene.manifest());
}

#[test]
fn a_damaged_pack() {
    let scene = Scene::new();
    damage_and_check(&scene, &scene.pack());
}

#[test]
fn files_in_each_others_place() {
    let scene = Scene::new();
    let (manifest, pack) = (scene.manifest(), scene.pack());
    let (a, b) = (fs::read(&manifest).expect("a file"), fs::read(&pack).expect("a file"));
    fs::write(&manifest, &b).expect("it can be written");
    scene.check(&manifest, "a pack as manifest");
    fs::write(&manifest, &a).expect("it can be written");
    fs::write(&pack, &a).expect("it can be written");
    scene.check(&pack, "a manifest as pack");
}

#[test]
fn a_manifest_of_another_checkpoint_or_version_is_refused() {
    let scene = Scene::new();
    let other = scene.job_folder().join("chk-2");
    fs::create_dir(&other).expect("a folder can be made");
    fs::copy(scene.manifest(), other.join("_metadata")).expect("it can be copied");
    let error = Snapshot::open(&scene.store, job(), 2).expect_err("it is checkpoint 1's");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let mut bytes = fs::read(scene.manifest()).expect("a file");
    bytes[4] += 1;
    fs::write(scene.manifest(), bytes).expect("it can be written");
    let error = Snapshot::open(&scene.store, job(), 1).expect_err("it is newer");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("needs version 2"), "{error}");
}

#[test]
fn a_damaged_checkpoint_is_not_deleted_before_newer_ones_are_whole() {
    let scene = Scene::new();
    fs::write(scene.manifest(), "nonsense").expect("it can be written");
    let owner = claim(&scene.store, false).expect("nobody else has it");
    let numbers = || -> Vec<u64> {
        let listed = history(&scene.store, job()).expect("it can be listed");
        listed.iter().map(|listed| listed.checkpoint).collect()
    };
    assert_eq!(owner.accepted().map(|listed| listed.damaged.is_some()), Some(true));
    publish(&owner, 2, &scene.model).expect("it can be published");
    owner.retain(2, 0).expect("nothing is to be deleted");
    assert_eq!(numbers(), [1, 2]);
    publish(&owner, 3, &scene.model).expect("it can be published");
    owner.retain(2, 0).expect("the damaged one can be deleted");
    assert_eq!(numbers(), [2, 3]);
    assert_eq!(read(&scene.store, 2).expect("it is whole"), scene.model);
}
