//! What is damaged is found, and made good from live state; never passed on.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{Model, claim, entries, job, publish, publish_changes, read};
use strandline_snapshot::{Contents, ErrorKind, LocalStore, Owner, Store, verify};

struct Scene {
    folder: tempfile::TempDir,
    store: Arc<dyn Store>,
    owner: Owner,
    model: Model,
}

impl Scene {
    /// One checkpoint of many chunks, one of which is damaged on disk.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()));
        let owner = claim(&store, false).expect("nobody else has it");
        let model = Model::from([("table".to_owned(), entries(20_000, 60))]);
        publish(&owner, 1, &model).expect("it can be published");
        let scene = Self { folder, store, owner, model };
        let mut bytes = fs::read(scene.pack()).expect("a pack");
        let middle = bytes.len() / 2;
        *bytes.get_mut(middle).expect("it is long") ^= 1;
        fs::write(scene.pack(), bytes).expect("it can be written");
        scene
    }

    fn pack(&self) -> PathBuf {
        let shared = self.folder.path().join(job().to_string()).join("shared");
        let mut packs: Vec<PathBuf> = fs::read_dir(shared)
            .expect("there are packs")
            .map(|entry| entry.expect("it can be listed").path())
            .collect();
        packs.sort();
        packs.swap_remove(0)
    }

    fn is_whole(&self, number: u64) -> bool {
        let whole = verify(&self.store, job(), number).expect("it is there").problems.is_empty();
        let read = read(&self.store, number);
        assert_eq!(whole, read.as_ref().is_ok_and(|read| *read == self.model));
        whole
    }
}

#[test]
fn what_is_written_in_full_is_whole_once_the_damage_is_known() {
    let scene = Scene::new();
    let report = verify(&scene.store, job(), 1).expect("it is there");
    assert_eq!(report.damaged_chunks().count(), 1, "{report:?}");
    publish(&scene.owner, 2, &scene.model).expect("it can be published");
    assert!(!scene.is_whole(2), "the damaged chunk was named again: nobody knew");
    scene.owner.distrust(report.damaged_chunks());
    publish(&scene.owner, 3, &scene.model).expect("it can be published");
    assert!(scene.is_whole(3));
}

#[test]
fn what_is_lost_is_rewritten_from_live_state() {
    let mut scene = Scene::new();
    let report = verify(&scene.store, job(), 1).expect("it is there");
    let lost = report.problems[0].lost.clone().expect("a part of a section");
    assert_eq!(lost.section, "table");
    // A change within the lost part, too.
    let before = scene.model.clone();
    let table = scene.model.get_mut("table").expect("it is there");
    let key = table.keys().find(|key| lost.ranges[0].holds(key)).cloned().expect("it held keys");
    table.insert(key.clone(), b"new".to_vec());
    let checkpoint = scene.owner.begin(2, Some(1)).expect("a new number");
    let mut pack = checkpoint.writer("all").expect("a fine label");
    let mut changes = pack.section("table", Contents::Changed, Vec::new()).expect("a fine name");
    changes.push(&key, b"new").expect("one change");
    changes.finish().expect("it can be written");
    for range in &lost.ranges {
        let mut part = pack.rewrite("table", range.clone(), Vec::new()).expect("a fine name");
        for (key, value) in scene.model["table"].iter().filter(|(key, _)| range.holds(key)) {
            part.push(key, value).expect("it is in the part");
        }
        let outside = before["table"].keys().rfind(|key| !range.holds(key)).expect("there are");
        let error = part.push(outside, b"").expect_err("it is not in the part");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        part.finish().expect("it can be written");
    }
    let written = pack.finish().expect("it can be written");
    scene.owner.publish(2, vec![written], Vec::new(), 0).expect("it can be published");
    assert!(scene.is_whole(2));
}

#[test]
fn damage_is_not_passed_on_by_a_merge() {
    let scene = Scene::new();
    let mut after = scene.model.clone();
    let table = after.get_mut("table").expect("it is there");
    table.values_mut().for_each(|value| value.push(1));
    // The changes have outgrown the base: the merge after this wants to read it.
    publish_changes(&scene.owner, 2, &scene.model, &after).expect("it can be published");
    let mut before = after.clone();
    before.get_mut("table").expect("it is there").values_mut().for_each(|value| value.push(2));
    let checkpoint = scene.owner.begin(3, Some(2)).expect("a new number");
    let error = checkpoint.merge().expect_err("the base is damaged");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let pack = scene.pack().display().to_string();
    assert!(error.to_string().contains(&pack), "{pack} is not in: {error}");
    scene.owner.abandon(3).expect("it can be given up");
}
