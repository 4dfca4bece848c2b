//! One fault at a time.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use strandline_snapshot::store::conformance;
use strandline_snapshot::{ErrorKind, Result, Store};
use strandline_store_object::{CloudStore, Options};

use crate::faulty::{Fate, Faulty};

const PART_BYTES: usize = 5 << 20;

pub(crate) fn open(service: &Faulty) -> CloudStore {
    let options = Options {
        request_timeout: Duration::from_millis(200),
        total_timeout: Duration::from_secs(1),
        attempts: 2,
        part_bytes: PART_BYTES,
    };
    let service = Arc::new(service.clone());
    CloudStore::new(service, "mem://bucket", "a prefix/%20", options).expect("fine settings")
}

fn upload(store: &CloudStore, path: &str, bytes: &[u8]) -> Result<u64> {
    let mut upload = store.put(path)?;
    for piece in bytes.chunks(1 << 20) {
        upload.write(piece)?;
    }
    upload.finish()
}

fn large() -> Vec<u8> {
    (0_u8..=250).cycle().take(2 * PART_BYTES + 7).collect()
}

#[test]
fn the_suite_passes() {
    let service = Faulty::new(&[], &[]);
    conformance::check(&open(&service), "suite").expect("the store works");
    let bare = Arc::new(service.clone());
    let bare =
        CloudStore::new(bare, "mem://bucket", "", Options::default()).expect("fine settings");
    conformance::check(&bare, "suite").expect("the store works without a prefix");
    assert_eq!(bare.describe("a/b"), "mem://bucket/a/b");
}

/// `ended` is what a create of `ours` says where `before` is; then `after` is there.
#[track_caller]
fn check(writes: &[Fate], before: Option<&str>, ended: Option<ErrorKind>, after: Option<&str>) {
    let service = Faulty::new(&[], &[]);
    let store = open(&service);
    if let Some(before) = before {
        store.create("a", before.as_bytes()).expect("the service works so far");
    }
    service.destine(writes, &[]);
    assert_eq!(store.create("a", b"ours").err().map(|error| error.kind()), ended);
    let there = after.map(|after| store.read("a", 0, after.len()).expect("it can be read"));
    assert_eq!(there.as_deref(), after.map(str::as_bytes));
    assert_eq!(store.size("a").ok(), after.map(|after| after.len() as u64));
}

#[test]
fn creates_whose_reply_is_lost() {
    check(&[Fate::LosesReply], None, None, Some("ours"));
    check(&[Fate::RepeatsItself], None, None, Some("ours"));
    check(&[Fate::Hangs], None, None, Some("ours"));
}

#[test]
fn creates_that_fail_for_a_while() {
    check(&[Fate::Fails], None, None, Some("ours"));
    check(&[Fate::Conflicts], None, None, Some("ours"));
    check(&[Fate::Fails, Fate::LosesReply], None, None, Some("ours"));
    check(&[Fate::Fails, Fate::Fails], None, Some(ErrorKind::Io), None);
    check(&[Fate::Conflicts, Fate::Conflicts], None, Some(ErrorKind::Io), None);
}

#[test]
fn creates_of_a_taken_path() {
    let taken = Some(ErrorKind::AlreadyExists);
    check(&[], Some("other"), taken, Some("other"));
    check(&[], Some("else"), taken, Some("else"));
    check(&[Fate::Fails], Some("else"), taken, Some("else"));
    check(&[Fate::Hangs], Some("else"), taken, Some("else"));
    check(&[], Some("ours"), None, Some("ours"));
}

#[test]
fn an_outcome_that_can_not_be_read_back_is_unknown() {
    let service = Faulty::new(&[Fate::Fails; 2], &[Fate::Fails; 2]);
    let error = open(&service).create("a", b"ours").expect_err("nothing answers");
    assert_eq!(error.kind(), ErrorKind::Io);
    let text = error.to_string();
    assert!(text.starts_with("mem://bucket/a prefix/%20/a: whether it was written is"), "{text}");
    let cause = std::error::Error::source(&error).expect("the reply that was no help");
    let cause = cause.source().expect("what the service said").to_string();
    assert!(cause.contains("503 slow down"), "{cause}");
}

#[track_caller]
fn check_upload(writes: &[Fate], ended: Option<ErrorKind>) {
    let service = Faulty::new(writes, &[]);
    let store = open(&service);
    let bytes = large();
    assert_eq!(upload(&store, "a", &bytes).err().map(|error| error.kind()), ended);
    if ended.is_none() {
        assert_eq!(store.read("a", 0, bytes.len()).expect("it is there"), bytes);
    } else {
        assert!(store.list("").expect("a list").is_empty(), "what failed is not there");
        wait_for_abort(&service);
    }
}

#[test]
fn uploads_of_several_parts() {
    use Fate::{Conflicts, Fails, Fine, LosesReply, RepeatsItself};
    check_upload(&[], None);
    check_upload(&[Fine, Fine, Fine, LosesReply], None);
    check_upload(&[Fine, Fine, Fine, RepeatsItself], None);
    check_upload(&[Fine, Fine, Fine, Fails], Some(ErrorKind::Io));
    check_upload(&[Fine, Fine, Fine, Conflicts], Some(ErrorKind::Io));
    check_upload(&[Fine, Fails], Some(ErrorKind::Io));
}

#[test]
fn a_part_that_is_taken_is_no_object_that_is() {
    check_upload(&[Fate::Conflicts], Some(ErrorKind::Io));
    check_upload(&[Fate::Fine, Fate::RepeatsItself], Some(ErrorKind::Io));
}

/// Takes back are not waited for by those who drop an upload.
#[track_caller]
fn wait_for_abort(service: &Faulty) {
    for _ in 0..1_000 {
        if service.aborted() == 1 {
            return;
        }
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("nothing was taken back");
}

#[test]
fn an_upload_that_is_dropped_is_taken_back() {
    let service = Faulty::new(&[], &[]);
    let mut upload = open(&service).put("a").expect("it begins");
    upload.write(&large()).expect("it is written");
    drop(upload);
    wait_for_abort(&service);
}

#[test]
fn a_large_upload_does_not_replace() {
    let service = Faulty::new(&[], &[]);
    let store = open(&service);
    store.create("a", b"other").expect("it is free");
    let error = upload(&store, "a", &large()).expect_err("it is taken");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(store.size("a").expect("it is there"), 5);
    wait_for_abort(&service);
}

#[test]
fn a_service_that_hangs_is_left() {
    let service = Faulty::new(&[], &[Fate::Hangs]);
    let error = open(&service).size("a").expect_err("nothing answers");
    assert!(error.to_string().contains("no answer in time"), "{error}");
}

#[test]
fn a_failing_list_is_no_short_list() {
    let service = Faulty::new(&[], &[]);
    let store = open(&service);
    store.create("a/b", b"x").expect("it is free");
    service.destine(&[], &[Fate::Fails]);
    assert_eq!(store.list("a/").expect_err("the list failed").kind(), ErrorKind::Io);
    assert_eq!(store.list("a/").expect("a list").len(), 1);
}

#[test]
fn objects_outside_of_the_prefix_are_not_seen() {
    let service = Faulty::new(&[], &[]);
    let store = open(&service);
    let outside = async { service.inner.put(&Path::from("a prefix"), "x".into()).await };
    futures_util::FutureExt::now_or_never(outside).expect("it is in memory").expect("it is put");
    store.create("a", b"x").expect("it is free");
    let listed: Vec<String> =
        store.list("").expect("a list").into_iter().map(|object| object.path).collect();
    assert_eq!(listed, ["a"]);
}
