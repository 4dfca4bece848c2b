//! `flights` gives the published result whatever happens to its process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strandline_tests::{
    Program, Random, build, committed_lines, committed_parts, records_noted, repository, wait_until,
};

const INTERVAL_MS: u64 = 300;
const RATE: u64 = 4_000;

struct Flights {
    program: Program,
    folder: tempfile::TempDir,
    parallelism: u32,
}

impl Flights {
    fn new(parallelism: u32) -> Self {
        let program = build("strandline", "--example", "flights");
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { program, folder, parallelism }
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("output")
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.path().join("checkpoints")
    }

    fn arguments(&self, rate: Option<u64>) -> Vec<String> {
        let mut arguments = vec![
            "--output".to_owned(),
            self.output().display().to_string(),
            "--checkpoints".to_owned(),
            self.checkpoints().display().to_string(),
            "--interval".to_owned(),
            format!("{INTERVAL_MS}ms"),
            "--parallelism".to_owned(),
            self.parallelism.to_string(),
        ];
        if let Some(rate) = rate {
            arguments.extend(["--rate".to_owned(), rate.to_string()]);
        }
        arguments
    }
}

/// The published result without its header, sorted.
fn expected() -> Vec<String> {
    let path = repository().join("data/expected/flights-2013-01.hourly.csv");
    let text = std::fs::read_to_string(path).expect("the expected result is in the repository");
    let mut lines: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
    lines.sort();
    lines
}

fn uninterrupted(parallelism: u32) {
    let flights = Flights::new(parallelism);
    flights.program.run(&flights.arguments(None)).expect_code(0);
    assert_eq!(committed_lines(&flights.output()), expected());
}

#[test]
fn uninterrupted_at_parallelism_1() {
    uninterrupted(1);
}

#[test]
fn uninterrupted_at_parallelism_2() {
    uninterrupted(2);
}

#[test]
fn uninterrupted_at_parallelism_8() {
    uninterrupted(8);
}

/// Kills a throttled job ten times at random moments, resumes it each time, and lets it end.
fn killed(parallelism: u32) {
    let mut random = Random::from_env("flights killed");
    let flights = Flights::new(parallelism);
    let mut parts = BTreeMap::new();
    let mut resumed = 0;
    for _ in 0..10 {
        let run = flights.program.start(&flights.arguments(Some(RATE)));
        let ended = run.kill_after(Duration::from_millis(random.between(100, 1000)));
        resumed += u32::from(check_resumed(&ended.stderr));
        parts = check_parts_unchanged(&flights.output(), parts);
    }
    assert!(resumed >= 5, "most of the runs must have gone on from a checkpoint: {resumed}");
    let ended = flights.program.run(&flights.arguments(None));
    ended.expect_code(0);
    check_parts_unchanged(&flights.output(), parts);
    assert_eq!(committed_lines(&flights.output()), expected());
}

/// Whether the run went on from a checkpoint; then it must say how many records it reads again,
/// and those must be less than two intervals' worth.
fn check_resumed(log: &str) -> bool {
    let Some(line) = log.lines().find(|line| line.contains("goes on from checkpoint")) else {
        return false;
    };
    let (_, again) = line.rsplit_once("; ").expect("the line ends with what is read again");
    let digits: String = again.chars().filter(char::is_ascii_digit).collect();
    let again: u64 = digits.parse().unwrap_or_else(|_| panic!("a number of records in: {line}"));
    assert!(again < 2 * RATE * INTERVAL_MS / 1000, "two intervals' worth or more: {line}");
    true
}

/// What was committed before is there as it was; the parts there are now.
fn check_parts_unchanged(
    output: &Path,
    before: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let now = committed_parts(output);
    for (name, text) in before {
        assert_eq!(now.get(&name), Some(&text), "{name} has changed");
    }
    now
}

#[test]
fn killed_at_parallelism_1() {
    killed(1);
}

#[test]
fn killed_at_parallelism_2() {
    killed(2);
}

#[test]
fn killed_at_parallelism_8() {
    killed(8);
}

#[test]
fn results_come_while_the_input_is_being_read() {
    let flights = Flights::new(2);
    let run = flights.program.start(&flights.arguments(Some(2_000)));
    let half = 26_865 / 2;
    wait_until("half of the input has been read", Duration::from_secs(60), || {
        records_noted(&flights.checkpoints()) >= half
    });
    let committed = committed_lines(&flights.output()).len();
    drop(run);
    println!("{committed} lines at half the input");
    assert!(committed * 100 >= expected().len() * 40, "only {committed} lines at half the input");
}
