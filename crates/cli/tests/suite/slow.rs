//! Readers that take their time: interrupted, cut off, and beside a job that goes on.

use std::io::Read;
use std::process::Child;

use strandline::snapshot::{Contents, Owner};

use crate::fixture::{Ended, Root, files, interrupt, publish, start};

const ENTRIES: usize = 20_000;

/// A root with a checkpoint 1 that has more entries than a pipe takes, and more bytes than are read
/// at a time.
fn with_many_entries() -> (Root, Owner) {
    let root = Root::with_checkpoints(0);
    let owner = root.claim(false);
    let checkpoint = owner.begin(1, None).expect("the first number");
    let mut pack = checkpoint.writer("only").expect("a fine label");
    let mut run = pack.section("many", Contents::All, Vec::new()).expect("a section");
    let mut state = 1_u64;
    for key in 0..ENTRIES {
        // Values that can't be compressed, by Marsaglia's xorshift.
        let mut value = Vec::new();
        for _ in 0..16 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            value.extend_from_slice(&state.to_le_bytes());
        }
        run.push(format!("{key:08}").as_bytes(), &value).expect("an entry");
    }
    run.finish().expect("a run");
    let written = pack.finish().expect("a pack");
    owner.publish(1, vec![written], Vec::new(), 0).expect("it is published");
    (root, owner)
}

fn has_pins(root: &Root) -> bool {
    files(&root.job_folder()).iter().any(|name| name.starts_with("pins/"))
}

/// A reader of all entries that has come to the first, and waits for somebody to take more.
struct Reader(Child);

impl Reader {
    fn start(root: &Root) -> Self {
        let mut reader = Self(start(&["checkpoints", "show", &root.uri(), "--entries"]));
        let out = reader.0.stdout.as_mut().expect("a pipe");
        out.read_exact(&mut [0]).expect("there is a first entry");
        reader
    }

    fn finish(self) -> Ended {
        Ended::of(self.0)
    }
}

#[test]
fn one_that_is_interrupted_lets_go_of_its_pin() {
    let (root, _owner) = with_many_entries();
    let reader = Reader::start(&root);
    assert!(has_pins(&root));
    interrupt(&reader.0);
    let ended = reader.finish().expect(130);
    assert!(ended.out.lines().count() < ENTRIES && !has_pins(&root));
}

#[test]
fn one_that_nobody_listens_to_ends_quietly() {
    let (root, _owner) = with_many_entries();
    let mut reader = Reader::start(&root);
    drop(reader.0.stdout.take());
    let ended = reader.finish().expect(0);
    assert_eq!(ended.err, "");
    assert!(!has_pins(&root));
}

#[test]
fn what_is_pinned_is_read_to_its_end_though_newer_ones_are_there() {
    let (root, owner) = with_many_entries();
    let reader = Reader::start(&root);
    publish(&owner, 2, 1);
    let swept = owner.retain(1, 0).expect("nobody has taken over");
    assert_eq!((swept.checkpoints, swept.packs), (1, 0), "1 is gone, and its pack is pinned");
    let ended = reader.finish().expect(0);
    assert_eq!(ended.out.lines().count(), ENTRIES);
    let swept = owner.retain(1, 0).expect("nobody has taken over");
    assert_eq!(swept.packs, 1, "nobody reads it any more");
}

#[test]
fn without_a_pin_it_is_subsumed_and_not_damaged() {
    let (root, owner) = with_many_entries();
    // A file where the folder of pins would be.
    std::fs::write(root.job_folder().join("pins"), "").expect("a file can be written");
    let reader = Reader::start(&root);
    publish(&owner, 2, 1);
    let first = format!("shared/{:020}-", 1);
    for name in files(&root.job_folder()) {
        if name.starts_with("chk-1/") || name.starts_with(&first) {
            std::fs::remove_file(root.job_folder().join(name)).expect("it can be removed");
        }
    }
    let ended = reader.finish().expect(1);
    assert!(!ended.err.contains("damaged"), "{}", ended.err);
    ended.says(&["warning: reading without a pin", "subsumed while reading: newer checkpoints"]);
}
