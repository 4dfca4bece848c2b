//! A folder with checkpoints, and the command.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use strandline::checkpointing::JobMetadata;
use strandline::snapshot::{Claim, Contents, JobId, LocalStore, Owner, Store};

/// The name of the only job.
pub(crate) const JOB: &str = "numbers";

/// A root with a job whose checkpoint n has the keys 1 to n, each with the value n in `changing`,
/// and the key `k` with always the same value in `same`.
pub(crate) struct Root {
    pub(crate) folder: tempfile::TempDir,
}

/// How the command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Root {
    pub(crate) fn with_checkpoints(count: u64) -> Self {
        let root = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        let owner = root.claim(false);
        for number in 1..=count {
            publish(&owner, number, number);
        }
        release(owner);
        root
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(LocalStore::new(self.path("checkpoints")))
    }

    pub(crate) fn claim(&self, fresh: bool) -> Owner {
        let host = "here".to_owned();
        let claim = Claim { fresh, host, ..Claim::new(JOB) };
        Owner::claim(self.store(), claim).expect("nobody has the job")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn uri(&self) -> String {
        self.path("checkpoints").display().to_string()
    }

    pub(crate) fn job_folder(&self) -> PathBuf {
        self.path("checkpoints").join(JobId::for_name(JOB).to_string())
    }

    /// A savepoint of the newest checkpoint.
    pub(crate) fn savepoint(&self) -> String {
        let made = run(&["savepoint", "create", &self.uri(), "--json"]).expect(0).json();
        let place = made.get("place").and_then(|place| place.as_str());
        place.expect("it says where it is").to_owned()
    }
}

/// Publishes a checkpoint with so many keys.
pub(crate) fn publish(owner: &Owner, number: u64, keys: u64) {
    let checkpoint = owner.begin(number, owner.newest()).expect("the next number");
    let mut pack = checkpoint.writer("only").expect("a fine label");
    let mut run = pack.section("changing", Contents::All, Vec::new()).expect("a section");
    for key in 1..=keys {
        let key = u8::try_from(key).expect("few keys");
        run.push(&[key], &number.to_le_bytes()).expect("an entry");
    }
    run.finish().expect("a run");
    let mut run = pack.section("same", Contents::All, Vec::new()).expect("a section");
    run.push(b"k", b"value").expect("an entry");
    run.finish().expect("a run");
    let written = pack.finish().expect("a pack");
    owner.publish(number, vec![written], metadata(), 1_700_000_000_000).expect("it is published");
}

fn metadata() -> Vec<u8> {
    let metadata = JobMetadata {
        job_name: JOB.to_owned(),
        triggered_ms: 0,
        duration_ms: 5,
        finished: false,
        max_parallelism: 128,
        records_read: 7,
        operators: Vec::new(),
        splits: Vec::new(),
    };
    rmp_serde::to_vec_named(&metadata).expect("metadata can be encoded")
}

/// A child that has been forked and is not yet the command holds all files of this process, locks
/// among them. So none is being started while an owner lets go of its job.
static STARTING: Mutex<()> = Mutex::new(());

/// Starts the command.
pub(crate) fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let _alone = STARTING.lock();
    command.spawn().expect("the command can be started")
}

/// Lets go of a job.
pub(crate) fn release(owner: Owner) {
    let _alone = STARTING.lock();
    drop(owner);
}

/// Interrupts a process.
pub(crate) fn interrupt(child: &Child) {
    let mut kill = Command::new("kill");
    kill.args(["-INT", &child.id().to_string()]);
    let signal = {
        let _alone = STARTING.lock();
        kill.spawn().expect("there is a kill command")
    };
    let signal = signal.wait_with_output().expect("it ends");
    assert!(signal.status.success());
}

/// Runs the command.
pub(crate) fn run(arguments: &[&str]) -> Ended {
    Ended::of(start(arguments))
}

impl Ended {
    /// Waits for its end.
    pub(crate) fn of(child: Child) -> Self {
        let output = child.wait_with_output().expect("it ends");
        Self {
            code: output.status.code().expect("no signal ended it"),
            out: String::from_utf8(output.stdout).expect("it prints text"),
            err: String::from_utf8(output.stderr).expect("it prints text"),
        }
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// All these words are in what it said beside its output.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.err.contains(word), "{word:?} is missing: {self:?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// All files below a folder, relative to it.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("a folder can be listed") {
            let path = entry.expect("a folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is below the folder");
                found.push(name.display().to_string());
            }
        }
    }
    found.sort();
    found
}
