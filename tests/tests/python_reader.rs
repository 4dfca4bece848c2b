//! The Python package and the reference reader read what a job has written as the library does.
//!
//! They need Python and a few wheels. `STRANDLINE_PYTHON` names an interpreter that has them;
//! without it `python3` is tried, and where that one lacks them, the tests say that they are skipped.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use strandline::snapshot::{JobId, Snapshot, history, resolve};
use strandline_tests::{Program, build, records_noted, repository, wait_until};

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
    for number in numbers {
        assert!(list.contains(&format!("  chk-{number}  ")), "{list}");
        let snapshot = Snapshot::open(&found.store, job, number).expect("the checkpoint is whole");
        let expected = entries(&snapshot);
        assert!(!expected.is_empty(), "a job that has read something has state");
        let folder = root.join(job.to_string()).join(format!("chk-{number}"));
        check(&python, &reference, &folder, &expected);
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
