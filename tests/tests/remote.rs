//! Jobs whose checkpoints are far away give the same result however often they are killed.
//!
//! The variables are those of `cargo xtask services up`; a test whose variable isn't set says so and
//! does nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::id;
use std::time::Duration;

use strandline_tests::{Program, Random, build_with, committed_lines, committed_parts, repository};

/// A job with its checkpoints in a folder of a server that no other test uses.
struct Job {
    program: Program,
    folder: tempfile::TempDir,
    checkpoints: String,
}

/// How a job is treated: killed so often, after so many milliseconds each time.
struct Kills {
    count: u32,
    after_ms: (u64, u64),
    /// Records per second of each task.
    rate: u64,
}

/// SeaweedFS and Azurite answer within milliseconds.
const OBJECTS: Kills = Kills { count: 8, after_ms: (200, 1_200), rate: 3_000 };
/// A file of HDFS takes half a second, and a start some of them.
const FILES: Kills = Kills { count: 4, after_ms: (6_000, 9_000), rate: 1_000 };

impl Job {
    /// Nothing where there is no server.
    fn new(example: &str, variable: &str) -> Option<Self> {
        let Ok(uri) = std::env::var(variable) else {
            skipped(variable);
            return None;
        };
        let program = build_with("strandline", "--example", example, &["object-stores"]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let unique = folder.path().file_name().expect("a folder has a name").to_string_lossy();
        let checkpoints = format!("{uri}/{example}-{}-{}", id(), unique.trim_start_matches('.'));
        Some(Self { program, folder, checkpoints })
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("output")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn arguments(&self, rate: Option<u64>) -> Vec<String> {
        let output = self.output().display().to_string();
        let mut arguments: Vec<String> =
            ["--interval", "200ms", "--parallelism", "2", "--lease", "2s"].map(String::from).into();
        arguments.extend(["--output".to_owned(), output]);
        arguments.extend(["--cache".to_owned(), self.cache().display().to_string()]);
        arguments.extend(["--checkpoints".to_owned(), self.checkpoints.clone()]);
        arguments.extend(rate.into_iter().flat_map(|r| ["--rate".to_owned(), r.to_string()]));
        arguments
    }

    /// Kills it at random moments, starts it again each time, and at last lets it end.
    fn survive(&self, kills: &Kills, expected: &[String]) {
        let mut random = Random::from_env("remote checkpoints");
        let mut parts = BTreeMap::new();
        let (mut killed, mut resumed) = (0, 0);
        for _ in 0..kills.count {
            // Whoever starts it knows that the process before is dead.
            let mut arguments = self.arguments(Some(kills.rate));
            arguments.push("--take-over".to_owned());
            let run = self.program.start(&arguments);
            let (low, high) = kills.after_ms;
            let ended = run.kill_after(Duration::from_millis(random.between(low, high)));
            killed += u32::from(ended.code.is_none());
            resumed += u32::from(ended.stderr.contains("goes on from checkpoint"));
            parts = unchanged(&self.output(), parts);
        }
        assert!(killed * 2 > kills.count, "it must be slow enough to be killed: {killed}");
        assert!(resumed * 2 >= kills.count, "it must have gone on from checkpoints: {resumed}");
        // The last start doesn't: it waits for a lease to run out.
        self.program.run(&self.arguments(None)).expect_code(0);
        unchanged(&self.output(), parts);
        assert_eq!(committed_lines(&self.output()), expected);
        let kept = std::fs::read_dir(self.cache()).expect("the cache was used");
        assert!(kept.count() > 0, "what was restored must have been kept");
    }
}

#[expect(clippy::print_stdout, reason = "a test that does nothing says so")]
fn skipped(variable: &str) {
    println!("skipped: {variable} is not set; `cargo xtask services up` starts servers");
}

/// What was committed before is there as it was; the parts there are now.
fn unchanged(output: &Path, before: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let now = committed_parts(output);
    for (name, text) in before {
        assert_eq!(now.get(&name), Some(&text), "{name} has changed");
    }
    now
}

fn flights(variable: &str, kills: &Kills) {
    let Some(job) = Job::new("flights", variable) else { return };
    let path = repository().join("data/expected/flights-2013-01.hourly.csv");
    let text = std::fs::read_to_string(path).expect("the expected result is in the repository");
    let mut expected: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
    expected.sort();
    job.survive(kills, &expected);
}

/// What must come out is what comes out of one run with its checkpoints in a folder.
fn wordcount(variable: &str, kills: &Kills) {
    let Some(mut job) = Job::new("wordcount", variable) else { return };
    let local = tempfile::tempdir().expect("a temporary folder");
    let remote = std::mem::replace(&mut job.checkpoints, local.path().display().to_string());
    job.program.run(&job.arguments(None)).expect_code(0);
    let expected = committed_lines(&job.output());
    assert_eq!(expected.len(), 37_078);
    std::fs::remove_dir_all(job.output()).expect("the output can be removed");
    job.checkpoints = remote;
    job.survive(kills, &expected);
}

#[test]
fn flights_on_s3() {
    flights("STRANDLINE_TEST_S3", &OBJECTS);
}

#[test]
fn flights_on_azure() {
    flights("STRANDLINE_TEST_AZURE", &OBJECTS);
}

#[test]
fn flights_on_hdfs() {
    flights("STRANDLINE_TEST_HDFS", &FILES);
}

#[test]
fn wordcount_on_s3() {
    wordcount("STRANDLINE_TEST_S3", &Kills { rate: 300, ..OBJECTS });
}

#[test]
fn wordcount_on_hdfs() {
    wordcount("STRANDLINE_TEST_HDFS", &Kills { rate: 100, ..FILES });
}
