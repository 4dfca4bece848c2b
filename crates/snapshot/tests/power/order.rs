//! The order of syncs around the commit point, as the disk sees it.

use crate::disk::{Op, SimDisk, What};
use crate::world::{claim, job, publish, store};

/// One published checkpoint, and the operations that it took.
fn ops_of_one_checkpoint() -> Vec<Op> {
    let disk = SimDisk::default();
    let owner = claim(&store(&disk)).expect("nobody else has it");
    let before = disk.ops_count();
    publish(&owner, 1, 1).expect("it can be published");
    disk.ops().split_off(before)
}

/// Where an operation is; it is there once.
fn at(ops: &[Op], what: What, path: impl Fn(&str) -> bool) -> usize {
    let found = |(_, op): &(usize, &Op)| op.what == what && path(&op.path);
    let mut all = ops.iter().enumerate().filter(found);
    let (index, _) = all.next().unwrap_or_else(|| panic!("no {what:?} in {ops:#?}"));
    assert!(all.next().is_none(), "{what:?} more than once in {ops:#?}");
    index
}

#[test]
fn the_manifest_gets_its_name_after_all_data_is_durable_and_is_durable_itself_before_the_report() {
    let ops = ops_of_one_checkpoint();
    let folder = format!("/{}/chk-1", job());
    let manifest = at(&ops, What::Link, |path| path.ends_with("/_metadata"));
    let temporary = format!("{folder}/.tmp-");
    let data = at(&ops, What::SyncFile, |path| path.contains(&temporary));
    let name = at(&ops, What::SyncDir, |path| path.ends_with(&folder));
    let made = at(&ops, What::CreateDir, |path| path.ends_with(&folder));
    let above = ops
        .iter()
        .skip(made)
        .position(|op| op.what == What::SyncDir && op.path.ends_with(&job().to_string()));
    assert!(data < manifest && manifest < name, "{ops:#?}");
    assert!(above.is_some_and(|above| made + above < name), "{ops:#?}");
    let packs = ops.iter().enumerate().filter(|(_, op)| op.path.contains("/shared"));
    let durable = [What::SyncFile, What::SyncDir];
    let synced: Vec<usize> =
        packs.filter(|(_, op)| durable.contains(&op.what)).map(|(index, _)| index).collect();
    assert!(synced.len() >= 4, "two packs and their names: {ops:#?}");
    assert!(synced.iter().all(|synced| *synced < manifest), "{ops:#?}");
}

/// A file for each object: made, written, synced, named, its folder synced.
#[test]
fn a_file_never_has_its_name_before_its_bytes_are_durable() {
    let mut synced = None;
    for op in ops_of_one_checkpoint() {
        match op.what {
            What::Create | What::Write => synced = None,
            What::SyncFile => synced = Some(op.path),
            What::Link => {
                let folder =
                    |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
                let temporary = synced.take().expect("a sync before each name");
                assert_eq!(folder(&temporary), folder(&op.path));
            }
            What::Remove | What::CreateDir | What::RemoveDir | What::SyncDir => {}
        }
    }
}
