//! What a program that is one job says and does at the edges: signals, starts over, bad arguments,
//! output in the way.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strandline_tests::{
    Program, build, committed_lines, committed_parts, records_noted, wait_until,
};

struct Words {
    program: Program,
    folder: tempfile::TempDir,
}

impl Words {
    fn new() -> Self {
        let program = build("strandline", "--example", "wordcount");
        Self { program, folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Arguments with this job's own folders, and more.
    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let folder = |name: &str| self.path(name).display().to_string();
        let own = ["--output", &folder("output"), "--checkpoints", &folder("checkpoints")];
        own.iter().chain(more).map(ToString::to_string).collect()
    }

    fn run(&self, more: &[&str]) -> strandline_tests::Ended {
        self.program.run(&self.arguments(more))
    }
}

/// The error is one line, has exit code 2, and names these.
#[track_caller]
fn check_refused(ended: &strandline_tests::Ended, names: &[&str]) {
    ended.expect_code(2);
    let text = ended.stderr.trim_end();
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    for name in names {
        assert!(text.contains(name), "{name:?} is not named in: {text}");
    }
}

#[test]
fn suspends_at_a_signal_and_goes_on() {
    let words = Words::new();
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let before = records_noted(&words.path("checkpoints"));
        // No periodic checkpoint in between: what is kept is kept by the last one.
        let run = words.program.start(&words.arguments(&["--rate", "1500", "--interval", "1h"]));
        wait_until("some lines have been read", Duration::from_secs(30), || {
            records_noted(&words.path("checkpoints")) >= before + 300
        });
        run.signal(signal);
        let ended = run.wait();
        ended.expect_code(code);
        assert!(ended.stderr.contains("suspended with checkpoint"), "{}", ended.stderr);
    }
    let ended = words.run(&[]);
    ended.expect_code(0);
    assert!(ended.stderr.contains("goes on from checkpoint"), "{}", ended.stderr);
    assert!(ended.stderr.contains("; 0 records are read again"), "{}", ended.stderr);
    assert_eq!(committed_lines(&words.path("output")).len(), 37_078);
}

#[test]
fn a_finished_job_says_so() {
    let words = Words::new();
    words.run(&[]).expect_code(0);
    let parts = committed_parts(&words.path("output"));
    let again = words.run(&[]);
    again.expect_code(0);
    let output = words.path("output").display().to_string();
    for part in ["already finished", &output, "--fresh"] {
        assert!(again.stderr.contains(part), "{part:?} is not in: {}", again.stderr);
    }
    assert_eq!(committed_parts(&words.path("output")), parts);
}

#[test]
fn committed_output_is_not_mixed_with_a_fresh_start() {
    let words = Words::new();
    words.run(&[]).expect_code(0);
    let output = words.path("output").display().to_string();
    check_refused(&words.run(&["--fresh"]), &[&output, "--overwrite"]);
    // The refusal has changed nothing: the job is still known to have finished.
    assert!(words.run(&[]).stderr.contains("already finished"));
    words.run(&["--fresh", "--overwrite"]).expect_code(0);
    assert_eq!(committed_lines(&words.path("output")).len(), 37_078);
    std::fs::remove_dir_all(words.path("checkpoints")).expect("the checkpoints can be removed");
    check_refused(&words.run(&[]), &[&output, "--overwrite"]);
}

#[test]
fn a_fresh_start_that_dies_early_stays_fresh() {
    let words = Words::new();
    words.run(&[]).expect_code(0);
    let fresh = words.arguments(&["--fresh", "--overwrite", "--rate", "500", "--interval", "1h"]);
    let run = words.program.start(&fresh);
    wait_until("the fresh run has begun", Duration::from_secs(30), || {
        committed_parts(&words.path("output")).is_empty()
    });
    drop(run.kill_after(Duration::from_millis(300)));
    // No checkpoint of the new history yet: the old one must not come back.
    words.run(&[]).expect_code(0);
    assert_eq!(committed_lines(&words.path("output")).len(), 37_078);
}

#[test]
fn bad_arguments_get_one_line() {
    let words = Words::new();
    check_refused(&words.run(&["--interval", "soon"]), &["--interval", "soon"]);
    check_refused(&words.run(&["--interval", "1ms"]), &["interval", "10"]);
    check_refused(&words.run(&["--parallelism", "0"]), &["parallelism"]);
    check_refused(&words.run(&["--parallelism", "129"]), &["parallelism", "128"]);
    check_refused(&words.run(&["--rate", "0"]), &["rate"]);
    check_refused(&words.run(&["--num-retained", "0"]), &["retained"]);
    check_refused(&words.run(&["--mode", "at-most-once"]), &["at-most-once"]);
    check_refused(&words.run(&["--colour", "red"]), &["--colour"]);
    check_refused(&words.run(&["--input", "/nowhere/at all"]), &["/nowhere/at all"]);
    let output = words.path("output").display().to_string();
    let gopher = ["--output", &output, "--checkpoints", "gopher://x/y"];
    check_refused(&words.program.run(&gopher), &["gopher"]);
}

#[test]
fn an_unusable_folder_gets_one_line() {
    let words = Words::new();
    let file = words.path("a file");
    std::fs::File::create(&file).expect("a file can be made");
    let name = file.display().to_string();
    let output = ["--output", &name, "--checkpoints", "memory:behaviour"].map(String::from);
    check_refused(&words.program.run(&output), &[&name]);
    let inside = file.join("checkpoints").display().to_string();
    let outside = words.path("output").display().to_string();
    let checkpoints = ["--checkpoints", &inside, "--output", &outside].map(String::from);
    check_refused(&words.program.run(&checkpoints), &[&name]);
    // At the first start too, where there is nothing to restore yet.
    check_refused(&words.run(&["--cache", &name]), &[&name, "cache"]);
}

#[test]
fn checkpoints_of_another_job_are_refused() {
    let words = Words::new();
    words.run(&[]).expect_code(0);
    let job = only_folder(&words.path("checkpoints"));
    let flights = build("strandline", "--example", "flights");
    let output = words.path("flights").display().to_string();
    let ended = flights.run(&["--output", &output, "--checkpoints", &job.display().to_string()]);
    check_refused(&ended, &["flights", &job.file_name().unwrap_or_default().to_string_lossy()]);
    // The same folder does for the job that it belongs to.
    let words_output = words.path("output").display().to_string();
    let own = ["--output", &words_output, "--checkpoints", &job.display().to_string()];
    let ended = words.program.run(&own);
    ended.expect_code(0);
    assert!(ended.stderr.contains("already finished"), "{}", ended.stderr);
}

#[test]
fn a_second_start_beside_a_live_one_is_refused() {
    let words = Words::new();
    let run = words.program.start(&words.arguments(&["--rate", "1000", "--interval", "100ms"]));
    wait_until("the first run has begun", Duration::from_secs(30), || {
        records_noted(&words.path("checkpoints")) > 0
    });
    check_refused(&words.run(&[]), &["wordcount", "process"]);
    run.signal("TERM");
    run.wait().expect_code(143);
    words.run(&[]).expect_code(0);
    assert_eq!(committed_lines(&words.path("output")).len(), 37_078);
}

#[test]
fn a_bad_record_fails_the_job_or_is_skipped() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sample = strandline_tests::repository().join("data/flights/flights-2013-01.csv");
    let text = std::fs::read_to_string(sample).expect("the sample is in the repository");
    let mut lines: Vec<&str> = text.lines().take(1000).collect();
    lines[500] = "2013-01-01T10:17:00Z,yesterday,EWR,IAH,UA,1545,N14228,2,11,1400";
    std::fs::write(path("flights.csv"), lines.join("\n")).expect("a file can be written");
    let flights = build("strandline", "--example", "flights");
    let arguments = |more: &[&str]| -> Vec<String> {
        let own = [
            "--input".to_owned(),
            path("flights.csv"),
            "--output".to_owned(),
            path("output"),
            "--checkpoints".to_owned(),
            path("checkpoints"),
        ];
        own.into_iter().chain(more.iter().map(ToString::to_string)).collect()
    };
    let failed = flights.run(&arguments(&[]));
    failed.expect_code(1);
    assert!(failed.stderr.contains("flights.csv:501"), "{}", failed.stderr);
    let skipped = flights.run(&arguments(&["--on-bad-record", "skip"]));
    skipped.expect_code(0);
    assert!(skipped.stderr.contains("flights.csv:501"), "{}", skipped.stderr);
    assert!(skipped.stderr.contains("1 skipped"), "{}", skipped.stderr);
}

#[test]
fn late_records_are_counted_and_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let flights = build("strandline", "--example", "flights");
    let arguments = [
        "--output",
        &path("output"),
        "--checkpoints",
        &path("checkpoints"),
        "--max-lateness",
        "1h",
        "--late",
        &path("late"),
        "--parallelism",
        "1",
    ];
    let ended = flights.run(&arguments);
    ended.expect_code(0);
    let late = committed_lines(Path::new(&path("late")));
    assert!(!late.is_empty(), "the sample has flights that are more than an hour late");
    assert!(late.iter().all(|line| line.split(',').count() == 10), "whole lines: {late:?}");
    let counted = format!("{} late", late.len());
    assert!(ended.stderr.contains(&counted), "{counted:?} is not in: {}", ended.stderr);
    // Nothing is lost: what was not late has been counted in a window.
    let counted: u64 = committed_lines(Path::new(&path("output")))
        .iter()
        .flat_map(|line| line.split(',').skip(2).take(2))
        .map(|count| count.parse::<u64>().expect("a count is a number"))
        .sum();
    assert_eq!(counted + late.len() as u64, 26_865);
}

#[test]
fn output_in_the_place_of_input_or_of_other_output_is_refused() {
    let words = Words::new();
    let input = words.path("input");
    std::fs::create_dir(&input).expect("a folder can be made");
    let precious = input.join("part-00000");
    std::fs::write(&precious, "to be or not to be").expect("a file can be written");
    let name = input.display().to_string();
    let checkpoints = words.path("checkpoints").display().to_string();
    for input in [&name, &precious.display().to_string()] {
        let arguments =
            ["--input", input, "--output", &name, "--checkpoints", &checkpoints, "--overwrite"];
        check_refused(&words.program.run(&arguments), &["input", &name]);
    }
    assert!(precious.exists(), "the input is still there");
    let flights = build("strandline", "--example", "flights");
    let output = words.path("both").display().to_string();
    let arguments = ["--output", &output, "--late", &output, "--checkpoints", &checkpoints];
    check_refused(&flights.run(&arguments), &[&output]);
}

#[test]
fn input_that_was_cut_short_is_named_and_the_checkpoint_is_not_blamed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sample = strandline_tests::repository().join("data/flights/flights-2013-01.csv");
    let whole = std::fs::read(sample).expect("the sample is in the repository");
    std::fs::write(path("flights.csv"), &whole).expect("a file can be written");
    let flights = build("strandline", "--example", "flights");
    let own = [path("flights.csv"), path("output"), path("checkpoints")];
    let arguments = ["--input", &own[0], "--output", &own[1], "--checkpoints", &own[2]];
    let run = flights.start(&[&arguments[..], &["--rate", "5000"]].concat());
    wait_until("some lines have been read", Duration::from_secs(30), || {
        records_noted(Path::new(&own[2])) >= 500
    });
    run.signal("TERM");
    run.wait().expect_code(143);
    std::fs::write(path("flights.csv"), whole.get(..1000).unwrap_or_default())
        .expect("a file can be written");
    let cut = flights.run(&arguments);
    cut.expect_code(1);
    assert!(cut.stderr.contains("flights.csv has been cut short"), "{}", cut.stderr);
    assert!(!cut.stderr.contains("older checkpoint"), "{}", cut.stderr);
    std::fs::write(path("flights.csv"), &whole).expect("a file can be written");
    flights.run(&arguments).expect_code(0);
    assert_eq!(committed_lines(Path::new(&own[1])).len(), 1_631);
}

#[test]
fn a_place_inside_a_jobs_folder_is_no_root() {
    let words = Words::new();
    words.run(&[]).expect_code(0);
    let inside = only_folder(&words.path("checkpoints")).join("chk-1").display().to_string();
    let output = words.path("other").display().to_string();
    let arguments = ["--output", &output, "--checkpoints", &inside];
    check_refused(&words.program.run(&arguments), &[&inside]);
}

#[test]
fn the_id_of_another_job_is_refused() {
    let words = Words::new();
    words.run(&[]).expect_code(0);
    let folder = only_folder(&words.path("checkpoints"));
    let id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let flights = build("strandline", "--example", "flights");
    let output = words.path("flights").display().to_string();
    let checkpoints = words.path("checkpoints").display().to_string();
    let own = ["--output", &output, "--checkpoints", &checkpoints];
    let ended = flights.run(&[&own[..], &["--job-id", &id]].concat());
    check_refused(&ended, &["`wordcount`", &id]);
    check_refused(&flights.run(&[&own[..], &["--job-id", "x"]].concat()), &["--job-id"]);
    // An id of the user's choice: the folder alone is enough to find it again.
    let chosen = "0123456789abcdef0123456789abcdef";
    flights.run(&[&own[..], &["--job-id", chosen]].concat()).expect_code(0);
    let its_folder = format!("{checkpoints}/{chosen}");
    let again = flights.run(&["--output", &output, "--checkpoints", &its_folder]);
    again.expect_code(0);
    assert!(again.stderr.contains("already finished"), "{}", again.stderr);
}

#[test]
fn the_command_says_what_it_can_not_find() {
    let words = Words::new();
    words.run(&[]).expect_code(0);
    let command = build("strandline-cli", "--bin", "strandline");
    let uri = words.path("checkpoints").display().to_string();
    for what in ["list", "show", "verify"] {
        command.run(&["checkpoints", what, &uri]).expect_code(0);
        let missing = command.run(&["checkpoints", what, &uri, "--checkpoint", "99"]);
        check_refused(&missing, &["99", &uri]);
        check_refused(
            &command.run(&["checkpoints", what, "/nowhere at all"]),
            &["/nowhere at all"],
        );
        check_refused(&command.run(&["checkpoints", what]), &["<URI>"]);
        let json = command.run(&["checkpoints", what, &uri, "--json"]);
        json.expect_code(0);
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&json.stdout);
        assert!(parsed.is_ok(), "{what}: {}", json.stdout);
    }
}

#[test]
fn a_line_that_is_not_utf8_is_a_bad_record() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sample = strandline_tests::repository().join("data/flights/flights-2013-01.csv");
    let mut bytes = std::fs::read(sample).expect("the sample is in the repository");
    bytes.truncate(10_000);
    bytes.extend_from_slice(
        b"\n2013-01-01T10:17:00Z,2013-01-01T10:15:00Z,EWR,I\xFFH,UA,1,N1,2,11,1\n",
    );
    std::fs::write(path("flights.csv"), bytes).expect("a file can be written");
    let flights = build("strandline", "--example", "flights");
    let own = [path("flights.csv"), path("output"), path("checkpoints")];
    let arguments = ["--input", &own[0], "--output", &own[1], "--checkpoints", &own[2]];
    let failed = flights.run(&arguments);
    failed.expect_code(1);
    assert!(failed.stderr.contains("flights.csv:"), "{}", failed.stderr);
    let skipped = flights.run(&[&arguments[..], &["--on-bad-record", "skip"]].concat());
    skipped.expect_code(0);
    // The line that was cut off in the middle, and this one.
    assert!(skipped.stderr.contains("2 skipped"), "{}", skipped.stderr);
}

/// The only folder in a folder.
fn only_folder(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("a folder can be listed");
    let mut folders = entries.filter_map(|entry| entry.ok()).map(|entry| entry.path());
    folders.find(|path| path.is_dir()).expect("there is a folder")
}
