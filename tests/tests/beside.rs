//! Readers beside a job that checkpoints every 100 ms and retains one: whatever they read is whole,
//! or is said to be subsumed; nothing is ever called damaged.

use std::path::Path;
use std::time::Duration;

use strandline_tests::{Ended, Program, build, records_noted, wait_until};

const ROUNDS: usize = 75;

/// How readers ended.
#[derive(Debug, Default)]
struct Tally {
    whole: usize,
    subsumed: usize,
    missing: usize,
}

impl Tally {
    /// A reader of the newest has another try; one of a named checkpoint may come too late.
    fn add(&mut self, ended: &Ended, named: bool) {
        let said = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
        // JSON has a field of that name, which is null.
        let said = said.replace("\"damaged\": null", "");
        assert!(!said.contains("damaged") && !said.contains("panicked"), "{ended:?}");
        match ended.code {
            Some(0) => self.whole += 1,
            Some(1) if said.contains("subsumed") => self.subsumed += 1,
            Some(2) if named && said.contains("has no checkpoint") => self.missing += 1,
            _ => panic!("{ended:?}"),
        }
    }
}

/// The number of the newest checkpoint.
fn newest(command: &Program, uri: &str) -> u64 {
    let listed = command.run(&["checkpoints", "list", uri, "--json"]);
    listed.expect_code(0);
    let rows: serde_json::Value = serde_json::from_str(&listed.stdout).expect("it is JSON");
    let last = rows.as_array().and_then(|rows| rows.last());
    // All that were listed may be gone by the time they are opened.
    last.and_then(|row| row["checkpoint"].as_u64()).unwrap_or(1)
}

fn export(command: &Program, uri: &str, folder: &Path, round: usize) -> Ended {
    let file = folder.join(format!("{round}.tar")).display().to_string();
    let exported = command.run(&["checkpoints", "export", uri, "--output", &file]);
    if exported.code == Some(0) {
        let target = folder.join("imported").display().to_string();
        command.run(&["checkpoints", "import", &file, "--target", &target]).expect_code(0);
    }
    exported
}

#[test]
fn what_is_read_beside_a_job_is_whole_or_subsumed() {
    let words = build("strandline", "--example", "wordcount");
    let command = build("strandline-cli", "--bin", "strandline");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let uri = path("checkpoints");
    let job = ["--output", &path("output"), "--checkpoints", &uri];
    // As many lines as take it longer than the readers do.
    let slow = ["--rate", "60", "--interval", "100ms", "--num-retained", "1"];
    let mut job = words.start(&[&job[..], &slow].concat());
    wait_until("a checkpoint is there", Duration::from_secs(30), || {
        records_noted(&folder.path().join("checkpoints")) > 20
    });
    let first = newest(&command, &uri);
    let (mut of_newest, mut named) = (Tally::default(), Tally::default());
    // A quick machine reads faster than the job makes checkpoints.
    let goes_on = |round| round < ROUNDS || newest(&command, &uri) < first + 15;
    for round in (0..20 * ROUNDS).take_while(|round| goes_on(*round)) {
        match round % 5 {
            0 => of_newest.add(&command.run(&["checkpoints", "verify", &uri]), false),
            1 => of_newest.add(&export(&command, &uri, folder.path(), round), false),
            2 => of_newest.add(&command.run(&["checkpoints", "show", &uri, "--entries"]), false),
            3 => of_newest.add(&command.run(&["checkpoints", "du", &uri, "--json"]), false),
            _ => {
                let number = newest(&command, &uri).to_string();
                let verify = ["checkpoints", "verify", &uri, "--checkpoint", &number];
                named.add(&command.run(&verify), true);
            }
        }
    }
    assert!(job.is_running(), "the job must be at work while it is read");
    job.signal("TERM");
    job.wait().expect_code(143);
    command.run(&["checkpoints", "verify", &uri]).expect_code(0);
    let made = newest(&command, &uri).saturating_sub(first);
    assert!(made >= 10, "the job must make checkpoints while it is read: {made}");
    println!("{made} checkpoints; newest: {of_newest:?}, named: {named:?}");
    assert!(of_newest.whole * 10 >= ROUNDS * 6, "readers come through: {of_newest:?}");
}
