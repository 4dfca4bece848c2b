//! The Python package and the reference reader read what a job has written as the library does.
//!
//! They need Python and a few wheels. `STRANDLINE_PYTHON` names an interpreter that has them;
//! without it `python3` is tried, and where that one lacks them, the tests say that they are skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use strandline::snapshot::{
    Claim, Compression, Contents, JobId, Owner, SaveOptions, Snapshot, Store, history, open_store,
    resolve, savepoint_name,
};
use strandline_tests::{Program, Random, build, records_noted, repository, wait_until};

/// An interpreter with the wheels that the package and its tests need.
struct Python {
    program: String,
}

impl Python {
    /// # Panics
    /// The interpreter that is named lacks them.
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn find() -> Option<Self> {
        let named = std::env::var("STRANDLINE_PYTHON").ok();
        let python = Self { program: named.clone().unwrap_or_else(|| "python3".to_owned()) };
        let wheels = python.command(&["-c", "import blake3, lz4.block, msgpack, zstandard"]);
        if wheels.is_ok() {
            return Some(python);
        }
        assert!(named.is_none(), "{}: {wheels:?}", python.program);
        println!("SKIPPED: python3 lacks blake3, lz4, msgpack or zstandard; set STRANDLINE_PYTHON");
        None
    }

    /// What it prints, if it ends with 0; else what it complains of.
    fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<String, String> {
        self.command_with(arguments, &[])
    }

    fn command_with<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
        environment: &[(&str, &Path)],
    ) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(repository().join("python"));
        command.envs(environment.iter().copied());
        let output = command.output().map_err(|error| error.to_string())?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let said = (text(&output.stdout), text(&output.stderr));
        if output.status.success() { Ok(said.0) } else { Err(format!("{}{}", said.0, said.1)) }
    }

    /// A command of the package.
    fn read(&self, command: &str, folder: &Path) -> String {
        let folder = folder.display().to_string();
        let read = self.command(&["-m", "strandline_snapshot", command, &folder]);
        read.unwrap_or_else(|complaint| panic!("{command} {folder}: {complaint}"))
    }
}

#[test]
fn the_package_passes_its_own_tests() {
    let Some(python) = Python::find() else { return };
    let reference = build("strandline-snapshot", "--example", "reference_reader");
    let environment = [("STRANDLINE_REFERENCE_READER", reference.path())];
    let tests = python.command_with(&["-m", "unittest"], &environment);
    assert!(tests.is_ok(), "{}", tests.unwrap_err());
}

/// The root of the checkpoints of a job that was suspended after some of them.
fn suspended(folder: &Path) -> PathBuf {
    let flights = build("strandline", "--example", "flights");
    let path = |name: &str| folder.join(name).display().to_string();
    let (output, checkpoints) = (path("output"), path("checkpoints"));
    let run = flights.start(&[
        "--output",
        &output,
        "--checkpoints",
        &checkpoints,
        "--interval",
        "100ms",
        "--parallelism",
        "2",
        "--rate",
        "4000",
    ]);
    let checkpoints = PathBuf::from(checkpoints);
    wait_until("some input has been read", Duration::from_secs(60), || {
        records_noted(&checkpoints) > 4_000
    });
    run.signal("TERM");
    run.wait().expect_code(143);
    checkpoints
}

/// The entries of a checkpoint as the library reads them, as lines.
fn entries(snapshot: &Snapshot) -> String {
    let mut lines = String::new();
    for section in snapshot.sections() {
        let visit = &mut |key: &[u8], value: &[u8]| {
            writeln!(lines, "{section}\t{}\t{}", hex(key), hex(value)).expect("a string takes it");
            ControlFlow::Continue(())
        };
        snapshot.visit(section, visit).expect("the checkpoint is whole");
    }
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[test]
fn what_a_job_has_written() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = suspended(folder.path());
    let found = resolve(&root.display().to_string()).expect("there is a job");
    let job: JobId = found.jobs.first().expect("there is a job").id;
    let numbers: Vec<u64> = history(&found.store, job)
        .expect("the job can be listed")
        .iter()
        .map(|listed| listed.checkpoint)
        .collect();
    assert!(!numbers.is_empty(), "a suspended job has a checkpoint");
    let list = python.read("list", &root);
    assert_eq!(list.lines().count(), numbers.len(), "{list}");
    let reference = build("strandline-snapshot", "--example", "reference_reader");
    let command = build("strandline-cli", "--bin", "strandline");
    for number in numbers {
        assert!(list.contains(&format!("  chk-{number}  ")), "{list}");
        let snapshot = Snapshot::open(&found.store, job, number).expect("the checkpoint is whole");
        let expected = entries(&snapshot);
        assert!(!expected.is_empty(), "a job that has read something has state");
        let folder = root.join(job.to_string()).join(format!("chk-{number}"));
        check(&python, &reference, &folder, &expected);
        let shown = command.run(&[
            "checkpoints",
            "show",
            "--entries",
            "--checkpoint",
            &number.to_string(),
            &root.display().to_string(),
        ]);
        shown.expect_code(0);
        assert!(shown.stdout == expected, "the command shows other entries");
    }
}

#[track_caller]
fn check(python: &Python, reference: &Program, folder: &Path, expected: &str) {
    let verdict = python.read("verify", folder);
    assert!(verdict.contains(": whole: "), "{verdict}");
    // Long texts: which line differs is looked up by hand.
    assert!(python.read("entries", folder) == expected, "the Python reader reads other entries");
    let ended = reference.run(&[folder]);
    ended.expect_code(0);
    assert!(ended.stdout == expected, "the reference reader reads other entries");
}

type Table = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table that changes from checkpoint to checkpoint, and what each of them must read as.
struct History {
    store: Arc<dyn Store>,
    random: Random,
    table: Table,
    /// Changed since the newest checkpoint.
    changed: BTreeSet<Vec<u8>>,
    expected: BTreeMap<u64, String>,
}

impl History {
    /// Puts and deletes, mostly near each other.
    fn change(&mut self, count: u64) {
        let near = self.random.between(0, 60_000);
        for _ in 0..count {
            let number = match self.random.between(0, 3) {
                0 => self.random.between(0, 65_535),
                _ => near + self.random.between(0, 5_000),
            };
            let key = format!("{number:05}").into_bytes();
            if self.random.between(0, 3) == 0 {
                self.table.remove(&key);
            } else {
                let byte = u8::try_from(self.random.between(0, 255)).expect("a byte");
                let bytes = self.random.between(0, 600);
                self.table.insert(key.clone(), vec![byte; usize::try_from(bytes).expect("few")]);
            }
            self.changed.insert(key);
        }
    }

    /// What has changed, with a merge beside it; the first time everything.
    fn publish(&mut self, owner: &Owner, number: u64) -> strandline::snapshot::Result<()> {
        let contents = if owner.newest().is_some() { Contents::Changed } else { Contents::All };
        let checkpoint = owner.begin(number, owner.newest())?;
        let merged = checkpoint.merge()?;
        let mut pack = checkpoint.writer("only")?;
        let mut run = pack.section("table", contents, Vec::new())?;
        for key in std::mem::take(&mut self.changed) {
            match self.table.get(&key) {
                Some(value) => run.push(&key, value)?,
                None if contents == Contents::Changed => run.delete(&key)?,
                None => {}
            }
        }
        run.finish()?;
        let written = pack.finish()?;
        owner.publish(number, vec![written, merged], Vec::new(), number)?;
        let lines = self.table.iter();
        let lines = lines.map(|(key, value)| format!("table\t{}\t{}\n", hex(key), hex(value)));
        self.expected.insert(number, lines.collect());
        Ok(())
    }

    /// An owner that publishes some checkpoints and keeps a few.
    fn run(&mut self, compression: Compression) -> strandline::snapshot::Result<()> {
        let claim = Claim { compression, ..Claim::new("history") };
        let owner = Owner::claim(Arc::clone(&self.store), claim)?;
        for number in owner.first_checkpoint()..owner.first_checkpoint() + 14 {
            self.change(300);
            self.publish(&owner, number)?;
        }
        owner.retain(2, 0)?;
        while self.expected.len() > 2 {
            self.expected.pop_first();
        }
        Ok(())
    }
}

#[test]
fn a_history_with_merges_in_every_compression() {
    let Some(python) = Python::find() else { return };
    let reference = build("strandline-snapshot", "--example", "reference_reader");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = open_store(&folder.path().display().to_string()).expect("a local store");
    let mut history = History {
        store: Arc::clone(&store),
        random: Random::from_env("a history with merges"),
        table: Table::new(),
        changed: BTreeSet::new(),
        expected: BTreeMap::new(),
    };
    history.change(8_000);
    let job = JobId::for_name("history");
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        history.run(compression).expect("it can be written");
        for (number, expected) in &history.expected {
            let checkpoint = folder.path().join(job.to_string()).join(format!("chk-{number}"));
            check(&python, &reference, &checkpoint, expected);
        }
        let (number, expected) = history.expected.last_key_value().expect("it is kept");
        let snapshot = Snapshot::open(&store, job, *number).expect("it is whole");
        let name = savepoint_name(job);
        let options = SaveOptions { compression, now_ms: 0 };
        let proceed = &mut |_| ControlFlow::Continue(());
        snapshot.save(&store, &name, options, proceed).expect("it can be saved");
        check(&python, &reference, &folder.path().join(&name), expected);
    }
}

/// As many subtasks write splits of a source: each has keys among those of the others.
#[test]
fn many_writers_of_one_section() {
    let Some(python) = Python::find() else { return };
    let reference = build("strandline-snapshot", "--example", "reference_reader");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = open_store(&folder.path().display().to_string()).expect("a local store");
    let claim = Claim::new("many writers");
    let job = claim.job;
    let owner = Owner::claim(store, claim).expect("nobody else has it");
    let number = owner.first_checkpoint();
    let checkpoint = owner.begin(number, None).expect("a new number");
    let writers = 0..32_u8;
    let written = writers.clone().map(|writer| {
        let mut pack = checkpoint.writer(&format!("task-{writer}"))?;
        let mut run = pack.section("splits", Contents::All, Vec::new())?;
        run.push(&[writer], b"first")?;
        run.push(&[writer + 32], b"second")?;
        run.finish()?;
        pack.finish()
    });
    let written: strandline::snapshot::Result<Vec<_>> = written.collect();
    let published = owner.publish(number, written.expect("it can be written"), Vec::new(), 0);
    published.expect("it can be published");
    let lines = |first: u8, value: &[u8]| -> String {
        let keys = writers.clone().map(|writer| hex(&[first + writer]));
        keys.map(|key| format!("splits\t{key}\t{}\n", hex(value))).collect()
    };
    let expected = lines(0, b"first") + &lines(32, b"second");
    let checkpoint = folder.path().join(job.to_string()).join(format!("chk-{number}"));
    check(&python, &reference, &checkpoint, &expected);
}
