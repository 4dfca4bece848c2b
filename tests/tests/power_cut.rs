//! A real power cut: checkpoints are published on an ext4 file system in an image file, the image is
//! copied in the middle, and the copy, which has what had reached the "disk" by then and nothing of
//! the page cache above it, is mounted and looked at.
//!
//! Needs root, loop devices and `mkfs.ext4`; elsewhere it says so and passes.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use strandline::snapshot::{Claim, JobId, LocalStore, Owner, Snapshot, Store, history, verify};
use strandline_tests::{Program, Random, build, wait_until};

const IMAGE_BYTES: u64 = 32 << 20;

const ROUNDS: u64 = 4;

/// A file system in a file, mounted until it is dropped.
struct Mounted {
    at: PathBuf,
}

impl Mounted {
    fn new(image: &Path, at: PathBuf) -> Result<Self, String> {
        fs::create_dir_all(&at).map_err(|error| error.to_string())?;
        command(
            "mount",
            [OsStr::new("-o"), OsStr::new("loop"), image.as_os_str(), at.as_os_str()],
        )?;
        Ok(Self { at })
    }
}

impl Drop for Mounted {
    /// Detaches the loop device too. Lazily if somebody still has a file open there.
    fn drop(&mut self) {
        if command("umount", [&self.at]).is_err() {
            drop(command("umount", [OsStr::new("-l"), self.at.as_os_str()]));
        }
    }
}

fn command<S: AsRef<OsStr>>(
    name: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Result<(), String> {
    let output = Command::new(name).args(arguments).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn file_system(image: &Path) -> Result<(), String> {
    let file = File::create(image).map_err(|error| error.to_string())?;
    file.set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
    // Nothing is left to be written later by the kernel on its own.
    let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"].map(OsStr::new);
    command("mkfs.ext4", options.into_iter().chain([image.as_os_str()]))
}

/// What a process has noted.
#[derive(Debug, Default)]
struct Notes {
    /// Checkpoint → number of entries and sum of their bytes.
    published: BTreeMap<u64, (u64, u64)>,
    /// Older ones may be gone.
    oldest: u64,
}

impl Notes {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut notes = Self::default();
        // A last line without its end is one in the making.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |word: &str| word.parse().expect("a note has numbers");
            match words[..] {
                ["published", checkpoint, entries, sum] => {
                    let content = (number(entries), number(sum));
                    notes.published.insert(number(checkpoint), content);
                }
                ["deleting-below", oldest] => notes.oldest = number(oldest),
                _ => panic!("no note: {line:?}"),
            }
        }
        notes
    }
}

/// The bytes of an image at one moment: nothing has changed between the end of the first reading and
/// the beginning of the second, for both are the same.
fn copy_of(image: &Path) -> Vec<u8> {
    let read = || fs::read(image).expect("the image can be read");
    let mut before = read();
    for _ in 0..100 {
        let after = read();
        if before == after {
            return after;
        }
        before = after;
    }
    panic!("the image changes though nobody writes");
}

/// What a power cut in a run has left, and what the run had noted before it and by then.
struct Cut {
    image: PathBuf,
    before: Notes,
    oldest: u64,
}

/// Lets the program publish for a while, and cuts. `Err` with the reason where that can't be done.
fn cut(folder: &Path, program: &Program, random: &mut Random) -> Result<Cut, String> {
    let (image, left) = (folder.join("image"), folder.join("left"));
    let path = folder.join("notes");
    file_system(&image)?;
    let mounted = Mounted::new(&image, folder.join("mounted"))?;
    let root = mounted.at.join("checkpoints").display().to_string();
    let seed = random.between(0, u64::MAX - 1).to_string();
    let mut running = program.start(&[root, path.display().to_string(), seed]);
    let enough = usize::try_from(random.between(1, 60)).expect("a small number");
    wait_until("some checkpoints are published", Duration::from_secs(60), || {
        assert!(running.is_running(), "it must go on until it is killed");
        Notes::read(&path).published.len() >= enough
    });
    // Stopped between two system calls, so that the image can be read as it is at one moment.
    running.signal("STOP");
    let before = Notes::read(&path);
    fs::write(&left, copy_of(&image)).expect("there is space for a copy");
    let oldest = Notes::read(&path).oldest;
    running.signal("KILL");
    drop((running, mounted));
    Ok(Cut { image: left, before, oldest })
}

impl Cut {
    /// Everything that was noted is there and whole, and the job goes on.
    fn check(&self, folder: &Path) {
        let mounted = Mounted::new(&self.image, folder.join("left-mounted"));
        let mounted = mounted.expect("what is left is a file system");
        let store: Arc<dyn Store> = Arc::new(LocalStore::new(mounted.at.join("checkpoints")));
        let job = JobId::for_name("power-cut");
        let listed = history(&store, job).expect("it can be listed");
        let numbers: Vec<u64> = listed.iter().map(|listed| listed.checkpoint).collect();
        for number in self.before.published.keys().filter(|number| **number >= self.oldest) {
            assert!(numbers.contains(number), "{number} was published: {numbers:?}");
        }
        for number in &numbers {
            let report = verify(&store, job, *number).expect("it can be verified");
            assert_eq!(report.problems, [], "checkpoint {number}");
            if let Some(expected) = self.before.published.get(number) {
                assert_eq!(content(&store, job, *number), *expected, "checkpoint {number}");
            }
        }
        goes_on(&store, job, &numbers);
    }
}

/// The number of entries, and the sum of their bytes as the program sums them.
fn content(store: &Arc<dyn Store>, job: JobId, number: u64) -> (u64, u64) {
    let snapshot = Snapshot::open(store, job, number).expect("it can be opened");
    let (mut entries, mut sum) = (0, 0);
    for section in ["a", "b"] {
        let visited = snapshot.visit(section, &mut |_, value| {
            entries += 1;
            sum = value.iter().fold(sum, |sum: u64, byte| sum.rotate_left(5) ^ u64::from(*byte));
            ControlFlow::Continue(())
        });
        visited.expect("it can be read");
    }
    (entries, sum)
}

fn goes_on(store: &Arc<dyn Store>, job: JobId, numbers: &[u64]) {
    let owner =
        Owner::claim(Arc::clone(store), Claim::new("power-cut")).expect("its owner is dead");
    let next = owner.first_checkpoint();
    assert!(numbers.iter().all(|number| *number < next), "{next} after {numbers:?}");
    owner.begin(next, owner.newest()).expect("a new number");
    owner.publish(next, Vec::new(), Vec::new(), 0).expect("it goes on");
    owner.retain(1, 0).expect("it cleans up");
    let listed = history(store, job).expect("it can be listed");
    let left: Vec<u64> = listed.iter().map(|listed| listed.checkpoint).collect();
    assert_eq!(left, [next]);
}

#[test]
fn what_was_published_is_there_after_a_power_cut() {
    let program = build("strandline-tests", "--bin", "publish-until-cut");
    let mut random = Random::from_env("power cut");
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a temporary folder");
        match cut(folder.path(), &program, &mut random) {
            Ok(cut) => cut.check(folder.path()),
            Err(reason) if round == 0 => {
                println!("left out: no power can be cut here, for want of root or loops: {reason}");
                return;
            }
            Err(reason) => panic!("it could be mounted before: {reason}"),
        }
    }
}
