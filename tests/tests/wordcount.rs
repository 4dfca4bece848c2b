//! `wordcount` counts each word exactly once however often it is killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use strandline_tests::{Random, build, committed_lines, repository};

/// What must come out: for each word of the samples the counts 1 to k, each once.
fn expected() -> Vec<String> {
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut lines = Vec::new();
    let folder = repository().join("data/licences");
    for entry in std::fs::read_dir(folder).expect("the samples are in the repository") {
        let path = entry.expect("a folder can be listed").path();
        let text = std::fs::read_to_string(path).expect("a sample can be read");
        for word in words(&text) {
            let total = totals.entry(word.clone()).or_default();
            *total += 1;
            lines.push(format!("{word}\t{total}"));
        }
    }
    lines.sort();
    lines
}

/// A naive reading of what a word is, character by character.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut run = String::new();
    for c in text.chars().chain([' ']) {
        if c.is_alphabetic() || c == '\'' {
            run.push(c);
        } else {
            if run.chars().any(|c| c != '\'') {
                words.push(run.to_lowercase());
            }
            run.clear();
        }
    }
    words
}

fn arguments(folder: &Path, rate: Option<&str>) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    let mut arguments: Vec<String> =
        ["--interval", "60ms", "--parallelism", "2"].map(String::from).into();
    arguments.extend(["--output".to_owned(), path("output")]);
    arguments.extend(["--checkpoints".to_owned(), path("checkpoints")]);
    if let Some(rate) = rate {
        arguments.extend(["--rate".to_owned(), rate.to_owned()]);
    }
    arguments
}

#[test]
fn every_count_once_in_one_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = build("strandline", "--example", "wordcount");
    program.run(&arguments(folder.path(), None)).expect_code(0);
    let lines = committed_lines(&folder.path().join("output"));
    assert_eq!(lines.len(), 37_078);
    assert_eq!(lines, expected());
}

#[test]
fn every_count_once_after_twenty_kills() {
    let mut random = Random::from_env("wordcount killed");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = build("strandline", "--example", "wordcount");
    let slow = arguments(folder.path(), Some("1200"));
    let mut killed_at_work = 0;
    for _ in 0..20 {
        let run = program.start(&slow);
        let ended = run.kill_after(Duration::from_millis(random.between(60, 420)));
        killed_at_work += u32::from(ended.code.is_none());
    }
    assert!(killed_at_work >= 10, "the job must be slow enough to be killed: {killed_at_work}");
    program.run(&arguments(folder.path(), None)).expect_code(0);
    assert_eq!(committed_lines(&folder.path().join("output")), expected());
}
