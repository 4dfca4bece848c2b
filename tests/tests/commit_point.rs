//! Killed around the commit point: between "all acknowledged" and "manifest published", and
//! between published and "sinks committed".

use std::collections::BTreeMap;
use std::path::Path;

use strandline_tests::{Program, build, committed_lines, repository};

fn arguments(folder: &Path, when: &str, number: u32) -> Vec<String> {
    let input = repository().join("data/licences");
    let paths = [input, folder.join("output"), folder.join("checkpoints")];
    let mut arguments: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    arguments.extend([when.to_owned(), number.to_string()]);
    arguments
}

/// Each word has the counts 1 to k, each once, and there are as many lines as words.
fn check_exact(lines: &[String]) {
    assert_eq!(lines.len(), 37_078);
    let mut counts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in lines {
        let (word, count) = line.split_once('\t').expect("a line is word, tab, count");
        counts.entry(word).or_default().push(count.parse().expect("a count is a number"));
    }
    for (word, mut counts) in counts {
        counts.sort_unstable();
        let expected: Vec<u64> = (1..=counts.len() as u64).collect();
        assert_eq!(counts, expected, "{word}");
    }
}

/// Kills the first run around its n-th publication, the second around its first, and lets the
/// third one end.
fn check(when: &str, number: u32) {
    let program: Program = build("strandline-tests", "--bin", "wordcount-killed-at-commit");
    let folder = tempfile::tempdir().expect("a temporary folder");
    for number in [number, 1] {
        let ended = program.run(&arguments(folder.path(), when, number));
        assert_eq!(ended.code, None, "{when} {number}: must be killed: {}", ended.stderr);
    }
    program.run(&arguments(folder.path(), "never", 0)).expect_code(0);
    check_exact(&committed_lines(&folder.path().join("output")));
}

#[test]
fn before_the_manifest_is_published() {
    for number in [1, 2, 5] {
        check("before", number);
    }
}

#[test]
fn after_the_manifest_is_published_and_before_sinks_commit() {
    for number in [1, 2, 5] {
        check("after", number);
    }
}

#[test]
fn around_the_last_checkpoint() {
    let program = build("strandline-tests", "--bin", "wordcount-killed-at-commit");
    for when in ["before", "after"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Each run dies at its third publication, until one has fewer: the last kills are around
        // the job's last checkpoint.
        let mut kills = 0;
        while program.run(&arguments(folder.path(), when, 3)).code.is_none() {
            kills += 1;
            assert!(kills < 40, "the job must get on");
        }
        assert!(kills > 0, "the job must be killed at least once");
        check_exact(&committed_lines(&folder.path().join("output")));
    }
}
