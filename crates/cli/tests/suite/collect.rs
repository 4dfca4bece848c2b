//! `gc`: what nothing names is listed, then deleted, unless a job runs.

use crate::fixture::{Root, files, publish, release, run};

/// A root whose first two checkpoints were made void by a fresh start, and a third one.
fn with_garbage() -> Root {
    let root = Root::with_checkpoints(2);
    let owner = root.claim(true);
    publish(&owner, 3, 1);
    release(owner);
    root
}

#[test]
fn a_dry_run_lists_what_a_run_deletes() {
    let root = with_garbage();
    let uri = root.uri();
    let before = files(&root.path("checkpoints"));
    let dry = run(&["checkpoints", "gc", &uri, "--dry-run", "--json"]).expect(0).json();
    assert_eq!(files(&root.path("checkpoints")), before, "a dry run claims and deletes nothing");
    let of = |json: &serde_json::Value, field: &str| json[0][field].clone();
    assert_eq!(of(&dry, "manifests").as_array().map(Vec::len), Some(2));
    assert_eq!(of(&dry, "packs").as_array().map(Vec::len), Some(2));
    let real = run(&["checkpoints", "gc", &uri, "--json"]).expect(0).json();
    for field in ["manifests", "packs", "bytes"] {
        assert_eq!(of(&real, field), of(&dry, field), "{field}");
    }
    run(&["checkpoints", "verify", &uri, "--checkpoint", "3"]).expect(0);
    let nothing = run(&["checkpoints", "gc", &uri]).expect(0);
    assert!(nothing.out.contains("deleted 0 files"), "{nothing:?}");
    // The job can go on from there.
    let owner = root.claim(false);
    assert_eq!(owner.accepted().map(|listed| listed.checkpoint), Some(3));
}

#[test]
fn beside_a_running_job_it_is_refused() {
    let root = with_garbage();
    let owner = root.claim(false);
    let before = files(&root.job_folder());
    let refused = run(&["checkpoints", "gc", &root.uri()]).expect(2);
    refused.says(&["the running job collects by itself", "process", "on here", "last_renewal"]);
    assert_eq!(files(&root.job_folder()), before);
    run(&["checkpoints", "gc", &root.uri(), "--dry-run"]).expect(0);
    release(owner);
}

#[test]
fn a_savepoint_is_left_to_its_user() {
    let root = Root::with_checkpoints(1);
    let savepoint = root.savepoint();
    run(&["checkpoints", "gc", &savepoint]).expect(2).says(&[&savepoint]);
    run(&["checkpoints", "gc", &root.uri()]).expect(0);
    run(&["checkpoints", "verify", &savepoint]).expect(0);
}

#[test]
fn what_a_killed_writer_has_left_goes() {
    let root = Root::with_checkpoints(1);
    let left = root.job_folder().join("shared/.tmp-1-1");
    std::fs::write(&left, "half").expect("a file can be written");
    run(&["checkpoints", "gc", &root.uri()]).expect(0);
    assert!(!left.exists());
}
