//! A sync that fails once, at each place; and a disk that is full, at each place.

use std::sync::Arc;

use strandline_snapshot::{Error, ErrorKind, Owner, Result, Store};

use crate::disk::{Fault, SimDisk};
use crate::random::Random;
use crate::world::{Events, ROOT, check, claim, no_leftovers, publish, store, whole_checkpoints};

/// A job that takes a failure as one does: what has failed is given up, and the next number is
/// tried.
struct Job {
    disk: SimDisk,
    store: Arc<dyn Store>,
    events: Events,
    published: Vec<u64>,
    errors: Vec<Error>,
}

impl Job {
    fn new(disk: SimDisk) -> Self {
        let store = store(&disk);
        Self { disk, store, events: Events::default(), published: Vec::new(), errors: Vec::new() }
    }

    /// Tries until it succeeds; `failed` does what helps.
    fn insist<T>(&mut self, what: impl Fn() -> Result<T>, failed: impl Fn(&SimDisk)) -> T {
        for _ in 0..3 {
            match what() {
                Ok(done) => return done,
                Err(error) => {
                    failed(&self.disk);
                    self.errors.push(error);
                }
            }
        }
        panic!("it fails again and again: {:?}", self.errors);
    }

    /// A number after the other, until three are published.
    fn publish_three(&mut self, owner: &Owner, failed: impl Fn(&SimDisk)) {
        let first = owner.first_checkpoint();
        for number in first..first + 6 {
            if self.published.len() == 3 {
                break;
            }
            match publish(owner, number, 1) {
                Ok(()) => {
                    self.events.there(&self.disk, number);
                    self.published.push(number);
                }
                Err(error) => {
                    let there = whole_checkpoints(&self.store).expect("all is whole");
                    assert_eq!(there, self.published, "after {error}");
                    failed(&self.disk);
                    self.errors.push(error);
                }
            }
        }
        assert_eq!(self.published.len(), 3, "{:?}", self.errors);
    }

    /// From a claim to a retention.
    fn run(&mut self, failed: impl Fn(&SimDisk)) {
        let store = Arc::clone(&self.store);
        let owner = self.insist(|| claim(&store), &failed);
        self.publish_three(&owner, &failed);
        let newest = *self.published.last().expect("three are published");
        self.events.deleting_below(&self.disk, newest);
        self.insist(|| owner.retain(1, 0), &failed);
        assert_eq!(whole_checkpoints(&self.store).expect("all is whole"), [newest]);
        no_leftovers(&self.disk).expect("all is tidy");
    }

    fn check_errors(&self) {
        for error in &self.errors {
            assert!(error.to_string().contains(ROOT), "the file is named: {error}");
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        }
    }
}

#[test]
fn a_sync_that_fails_costs_one_checkpoint_and_nothing_else() {
    let mut random = Random::from_env("failing sync");
    for sync in 0.. {
        let disk = SimDisk::default();
        disk.set(Fault::Sync(sync));
        disk.record();
        let mut job = Job::new(disk.clone());
        job.run(|_| ());
        if disk.fault() != Fault::Never {
            assert!(sync > 20, "there are many syncs to fail: {sync}");
            break;
        }
        assert!(job.errors.len() <= 1, "one failure: {:?}", job.errors);
        job.check_errors();
        let moments = disk.moments();
        for _ in 0..12 {
            let ops = random.below(moments.len());
            let image = moments[ops].one_after_cut(&mut random);
            check(&SimDisk::of_image(&image), &job.events.required(ops)).unwrap_or_else(|error| {
                panic!("sync {sync} failed, cut before {:?}: {error}", disk.ops().get(ops))
            });
        }
    }
}

/// Space that runs out at the n-th operation that needs some, after so many more bytes.
fn check_full(after: usize, bytes: usize, random: &mut Random) -> bool {
    let disk = SimDisk::default();
    disk.set(Fault::Full { after, bytes });
    let mut job = Job::new(disk.clone());
    let free = |disk: &SimDisk| {
        no_leftovers(disk).expect("temporary files are gone");
        disk.set(Fault::Never);
    };
    job.run(free);
    job.check_errors();
    assert!(job.errors.len() <= 1, "one failure: {:?}", job.errors);
    let last = disk.moments().pop().expect("there is a last moment");
    let required = job.events.required(usize::MAX);
    check(&SimDisk::of_image(&last.one_after_cut(random)), &required).expect("all is whole");
    !job.errors.is_empty()
}

#[test]
fn a_full_disk_costs_one_checkpoint_and_nothing_else() {
    let mut random = Random::from_env("full disk");
    for bytes in [0, 1, 2000, 4096] {
        let failed = (0..).take_while(|after| check_full(*after, bytes, &mut random)).count();
        assert!(failed > 20, "there are many operations that need space: {failed}");
    }
}

#[test]
fn old_checkpoints_can_be_deleted_on_a_full_disk() {
    let disk = SimDisk::default();
    let mut job = Job::new(disk.clone());
    let owner = claim(&job.store).expect("nobody else has it");
    job.publish_three(&owner, |_| ());
    disk.set(Fault::Full { after: 0, bytes: 0 });
    let next = owner.first_checkpoint() + 3;
    publish(&owner, next, 1).expect_err("the disk is full");
    owner.retain(1, 0).expect("deleting needs no space");
    assert_eq!(whole_checkpoints(&job.store).expect("all is whole"), [next - 1]);
    disk.set(Fault::Never);
    publish(&owner, next + 1, 1).expect("there is space again");
    assert_eq!(whole_checkpoints(&job.store).expect("all is whole"), [next - 1, next + 1]);
}

/// A file whose sync has failed is thrown away: finishing is the only sync there is, and it is over.
#[test]
fn a_file_whose_sync_or_write_has_failed_never_gets_a_name() {
    for fault in [Fault::Sync(0), Fault::Full { after: 0, bytes: 0 }] {
        let disk = SimDisk::default();
        let store = store(&disk);
        store.create("job/there", b"x").expect("it can be made");
        let mut upload = store.put("job/object").expect("it can be begun");
        upload.write(b"some bytes").expect("it can be written");
        disk.set(fault);
        if fault != Fault::Sync(0) {
            upload.write(b"more bytes").expect_err("the disk is full");
            disk.set(Fault::Never);
        }
        let error = upload.finish().expect_err("it is of no use any more");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        let error = store.size("job/object").expect_err("it never was");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        no_leftovers(&disk).expect("it is removed");
    }
}

/// A name that is gone from sight and not for good: what is deleted because of that waits until it
/// is.
#[test]
fn nothing_is_built_on_a_deletion_whose_sync_has_failed() {
    let mut random = Random::from_env("failed deletion");
    let disk = SimDisk::default();
    let store = store(&disk);
    store.create("names/manifest", b"names the pack").expect("it can be made");
    store.create("packs/pack", b"is named").expect("it can be made");
    disk.set(Fault::Sync(0));
    store.delete("names/manifest").expect_err("its sync fails");
    assert!(store.list("names/").expect("it can be listed").is_empty(), "it is not seen any more");
    store.delete("packs/pack").expect("nothing fails any more");
    let last = disk.moments().pop().expect("there is a last moment");
    for image in last.after_cut(&mut random) {
        let left = self::store(&SimDisk::of_image(&image)).list("names/");
        assert!(left.expect("it can be listed").is_empty(), "it would name what is gone");
    }
}
