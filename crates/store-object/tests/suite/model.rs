//! Any sequence of calls, with any faults, against a map.
//!
//! What a call says must be true, and what it can't say must be one of two things: done or not done.

use std::collections::BTreeMap;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use proptest::prelude::*;
use strandline_snapshot::{ErrorKind, Result, Store};

use crate::faults::open;
use crate::faulty::{Fate, Faulty};

const PATHS: [&str; 4] = ["a", "a/b", "a b/ü", "c/%41"];
const PREFIX: &str = "a prefix/%20/";

#[derive(Clone, Debug)]
enum Call {
    Create(&'static str),
    /// With so many MiB: one part, or more.
    Upload(&'static str, usize),
    Read(&'static str),
    List,
    Delete(&'static str),
}

type Objects = BTreeMap<String, Vec<u8>>;

fn call() -> impl Strategy<Value = Call> {
    let path = || proptest::sample::select(&PATHS[..]);
    prop_oneof![
        6 => path().prop_map(Call::Create),
        1 => (path(), prop_oneof![Just(1_usize), Just(6)]).prop_map(|(path, mib)| Call::Upload(path, mib)),
        3 => path().prop_map(Call::Read),
        1 => Just(Call::List),
        3 => path().prop_map(Call::Delete),
    ]
}

/// A fault in every tenth request.
fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        36 => Just(Fate::Fine),
        1 => Just(Fate::Fails),
        1 => Just(Fate::LosesReply),
        1 => Just(Fate::Conflicts),
        1 => Just(Fate::RepeatsItself),
    ]
}

/// What is really there.
fn truth(service: &Faulty) -> Objects {
    let read = async |path: &Path| {
        let bytes = service.inner.get(path).await.expect("memory works").bytes().await;
        bytes.expect("memory works").to_vec()
    };
    let all = async {
        let mut objects = Objects::new();
        let listed: Vec<_> = futures_util::StreamExt::collect(service.inner.list(None)).await;
        for meta in listed {
            let path = meta.expect("memory works").location;
            let name =
                path.as_ref().strip_prefix(PREFIX).expect("it is under the prefix").to_owned();
            objects.insert(name, read(&path).await);
        }
        objects
    };
    futures_util::FutureExt::now_or_never(all).expect("memory doesn't wait")
}

fn upload(store: &dyn Store, path: &str, bytes: &[u8]) -> Result<()> {
    let mut upload = store.put(path)?;
    upload.write(bytes)?;
    assert_eq!(upload.finish()?, bytes.len() as u64);
    Ok(())
}

/// What must be there after a write of this outcome, given what is.
#[track_caller]
fn check_write(model: &mut Objects, path: &str, bytes: &[u8], ended: Result<()>, now: &Objects) {
    match ended.map_err(|error| error.kind()) {
        Ok(()) => {
            assert_eq!(model.insert(path.to_owned(), bytes.to_vec()), None, "{path} replaced");
        }
        Err(ErrorKind::AlreadyExists) => assert!(model.contains_key(path), "{path} was free"),
        Err(ErrorKind::Io) if now.get(path).is_some_and(|there| there == bytes) => {
            assert_eq!(model.insert(path.to_owned(), bytes.to_vec()), None, "{path} replaced");
        }
        Err(kind) => assert_eq!(kind, ErrorKind::Io),
    }
}

#[track_caller]
fn check_read(model: &Objects, path: &str, read: Result<Vec<u8>>) {
    match (read.map_err(|error| error.kind()), model.get(path)) {
        (Ok(bytes), Some(there)) => assert!(there.starts_with(&bytes)),
        (Err(ErrorKind::NotFound), None) | (Err(ErrorKind::Io), _) => {}
        (read, there) => panic!("{path}: {read:?}, but there is {:?}", there.map(Vec::len)),
    }
}

#[track_caller]
fn check_delete(model: &mut Objects, path: &str, ended: Result<()>, now: &Objects) {
    let failed = ended.is_err();
    if !failed || !now.contains_key(path) {
        model.remove(path);
    }
}

fn run(calls: &[Call], writes: &[Fate], reads: &[Fate]) {
    let service = Faulty::new(writes, reads);
    let store = open(&service);
    let mut model = Objects::new();
    for (number, call) in calls.iter().enumerate() {
        // No two writes write the same.
        let mut bytes = (number as u64).to_le_bytes().to_vec();
        match *call {
            Call::Create(path) => {
                let ended = store.create(path, &bytes);
                check_write(&mut model, path, &bytes, ended, &truth(&service));
            }
            Call::Upload(path, mib) => {
                bytes.resize(mib << 20, 7);
                let ended = upload(&store, path, &bytes);
                check_write(&mut model, path, &bytes, ended, &truth(&service));
            }
            Call::Read(path) => check_read(&model, path, store.read(path, 0, 8)),
            Call::List => {
                if let Ok(listed) = store.list("") {
                    let there = listed.iter().map(|object| (object.path.as_str(), object.bytes));
                    assert!(
                        there.eq(model.iter().map(|(path, b)| (path.as_str(), b.len() as u64)))
                    );
                }
            }
            Call::Delete(path) => {
                let ended = store.delete(path);
                check_delete(&mut model, path, ended, &truth(&service));
            }
        }
        assert!(truth(&service) == model, "after {call:?}: {:?}", truth(&service).keys());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_calls_say_is_true(
        calls in proptest::collection::vec(call(), 1..16),
        writes in proptest::collection::vec(fate(), 32),
        reads in proptest::collection::vec(fate(), 32),
    ) {
        run(&calls, &writes, &reads);
    }
}
