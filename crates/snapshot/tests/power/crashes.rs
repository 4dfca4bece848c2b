//! A power cut at every operation of the disk, and the same after a kill.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::disk::{Fault, Op, SimDisk, What};
use crate::image::{Image, Moment};
use crate::random::Random;
use crate::world::{Events, check, run, store};

/// A process from its first operation to its last, and the state of the disk before each.
struct Recorded {
    moments: Vec<Moment>,
    ops: Vec<Op>,
    events: Events,
}

fn record(disk: &SimDisk, by: u8) -> Recorded {
    disk.record();
    let events = run(disk, by).expect("nothing goes wrong");
    Recorded { moments: disk.moments(), ops: disk.ops(), events }
}

impl Recorded {
    /// A moment, and how many operations had been done by then.
    fn any_moment(&self, random: &mut Random) -> (usize, &Moment) {
        let ops = random.below(self.moments.len());
        (ops, self.moments.get(ops).expect("it is one of them"))
    }

    /// Cuts at every operation; the first thing that is wrong.
    fn cut_everywhere(&self, random: &mut Random) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for (ops, moment) in self.moments.iter().enumerate() {
            let cut = self.cut(ops, moment, &mut seen, random);
            cut.map_err(|error| format!("cut before {:?}: {error}", self.ops.get(ops)))?;
        }
        Ok(())
    }

    /// `seen` are hashes of what has been checked: from one moment to the next little changes.
    fn cut(
        &self,
        ops: usize,
        moment: &Moment,
        seen: &mut BTreeSet<u64>,
        random: &mut Random,
    ) -> Result<(), String> {
        let required = self.events.required(ops);
        let mut is_new = |image: &Image| {
            let mut hasher = DefaultHasher::new();
            (image.visible(), &required).hash(&mut hasher);
            seen.insert(hasher.finish())
        };
        for image in moment.after_cut(random).into_iter().filter(|image| is_new(image)) {
            let checked = check(&SimDisk::of_image(&image), &required);
            checked.map_err(|error| {
                format!("{error}\npending: {:?}\nleft: {image:?}", moment.pending)
            })?;
        }
        Ok(())
    }

    /// The same, for some moments only.
    fn cut_somewhere(&self, times: usize, random: &mut Random) -> Result<(), String> {
        for _ in 0..times {
            let (ops, moment) = self.any_moment(random);
            let image = moment.one_after_cut(random);
            check(&SimDisk::of_image(&image), &self.events.required(ops))
                .map_err(|error| format!("cut before {:?}: {error}", self.ops.get(ops)))?;
        }
        Ok(())
    }
}

#[test]
fn a_power_cut_at_any_operation_leaves_all_that_was_published_whole() {
    let mut random = Random::from_env("power cut");
    let recorded = record(&SimDisk::default(), 1);
    assert!(recorded.moments.len() > 60, "there are many operations to cut at");
    recorded.cut_everywhere(&mut random).expect("nothing is lost");
}

#[test]
fn a_power_cut_in_a_job_that_goes_on_loses_nothing_either() {
    let mut random = Random::from_env("power cut later");
    let first = record(&SimDisk::default(), 1);
    let last = first.moments.last().expect("there are moments");
    let second = record(&SimDisk::of_image(&last.one_after_cut(&mut random)), 2);
    second.cut_everywhere(&mut random).expect("nothing is lost");
}

/// What a killed process has not synced is still there for the next one to see, who builds on it:
/// then a power cut must not take it away.
#[test]
fn a_power_cut_after_a_kill_takes_nothing_away_that_the_next_process_has_built_on() {
    let mut random = Random::from_env("power cut after a kill");
    let killed = record(&SimDisk::default(), 1);
    for (ops, moment) in killed.moments.iter().enumerate() {
        let next = record(&SimDisk::of_moment(moment.clone()), 2);
        let cut = next.cut_somewhere(8, &mut random);
        cut.unwrap_or_else(|error| panic!("killed before {:?}: {error}", killed.ops.get(ops)));
    }
}

/// Cut after cut, at random moments, with what each one left.
#[test]
fn power_cuts_in_a_row() {
    let mut random = Random::from_env("power cuts in a row");
    for _ in 0..10 {
        let mut disk = SimDisk::default();
        for by in 0..6 {
            let recorded = record(&disk, by);
            recorded.cut_somewhere(3, &mut random).expect("nothing is lost");
            let (_, moment) = recorded.any_moment(&mut random);
            disk = if random.coin() {
                SimDisk::of_image(&moment.one_after_cut(&mut random))
            } else {
                SimDisk::of_moment(moment.clone())
            };
        }
    }
}

/// The contract of a store in one line each: what has been made is there, what has been deleted is
/// not, in a folder of its own and in one that stays.
#[test]
fn what_a_store_has_made_or_deleted_is_so_after_a_power_cut() {
    let mut random = Random::from_env("store contract");
    let disk = SimDisk::default();
    let store = store(&disk);
    let mut expected = Vec::new();
    for (path, delete) in
        [("a/1", false), ("a/2", false), ("a/2", true), ("b/1", false), ("b/1", true)]
    {
        if delete {
            store.delete(path).expect("it can be deleted");
            expected.retain(|of| *of != path);
        } else {
            store.create(path, path.as_bytes()).expect("it can be made");
            expected.push(path);
        }
        let now = disk.moments().pop().expect("there is a last moment");
        for image in now.after_cut(&mut random) {
            let left = self::store(&SimDisk::of_image(&image));
            let listed = left.list("").expect("it can be listed");
            let paths: Vec<&str> = listed.iter().map(|object| object.path.as_str()).collect();
            assert_eq!(paths, expected);
            for path in paths {
                assert_eq!(left.read(path, 0, 3).expect("it is whole"), path.as_bytes());
            }
        }
    }
}

/// These tests can fail: a disk whose syncs do nothing loses checkpoints, and that is seen.
#[test]
fn a_disk_that_lies_is_found_out() {
    let mut random = Random::from_env("lying disk");
    for what in [What::SyncFile, What::SyncDir] {
        let disk = SimDisk::default();
        disk.set(Fault::Lying(what));
        let recorded = record(&disk, 1);
        let error = recorded.cut_everywhere(&mut random).expect_err("checkpoints are lost");
        assert!(error.contains("checkpoint"), "{error}");
    }
}
