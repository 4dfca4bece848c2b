//! Faults that were once there.

use std::fs;
use std::path::Path;

use strandline_connectors::file::{FileLines, FileSink, Position};
use strandline_connectors::generator::Generator;
use strandline_connectors::memory::CollectSink;
use strandline_runtime::sink::{Committable, Sink, SinkOwner, SinkWriter};
use strandline_runtime::source::{Source, SplitReader};
use strandline_runtime::{CheckpointId, Environment, ErrorKind};

const JOB: &str = "0123456789abcdef0123456789abcdef";

fn owner(token: u64) -> SinkOwner {
    SinkOwner { job: JOB.to_owned(), token }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn written(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        text += &fs::read_to_string(entry.expect("an entry").path()).expect("it can be read");
    }
    text
}

/// Two sinks of one job share a folder by mistake: that may be an error, never a loss.
#[test]
fn two_sinks_in_one_folder_lose_nothing_silently() {
    let folder = folder();
    let sinks = [FileSink::<u64>::new(folder.path()), FileSink::<u64>::new(folder.path())];
    let mut all_fine = true;
    for (number, sink) in (1_u64..).zip(&sinks) {
        let mut writer = sink.writer(&owner(1), 0).expect("a writer");
        writer.write(&mut vec![number]).expect("it is kept in memory");
        all_fine &= writer.prepare(CheckpointId(1)).is_ok();
    }
    let text = written(folder.path());
    assert!(!all_fine || text.contains('1') && text.contains('2'), "no error, and left: {text:?}");
}

/// The same while both are open.
#[test]
fn two_open_files_of_one_name_lose_nothing_silently() {
    let folder = folder();
    let sinks = [FileSink::<String>::new(folder.path()), FileSink::<String>::new(folder.path())];
    let mut all_fine = true;
    for (sink, letter) in sinks.iter().zip(["a", "b"]) {
        let mut writer = sink.writer(&owner(1), 0).expect("a writer");
        all_fine &= writer.write(&mut vec![letter.repeat(70_000)]).is_ok();
    }
    let text = written(folder.path());
    assert!(!all_fine || text.contains('a') && text.contains('b'), "no error, and one is lost");
}

/// A file that only looks like one of ours stays.
#[test]
fn strangers_with_our_prefix_are_left_alone() {
    let folder = folder();
    let strangers = [format!(".open-{JOB}-notes.txt"), format!(".open-{JOB}-1-0-0.bak")];
    for name in &strangers {
        fs::write(folder.path().join(name), "kept").expect("a file can be written");
    }
    FileSink::<u64>::new(folder.path()).start_fresh(&owner(1)).expect("it starts");
    for name in &strangers {
        assert!(folder.path().join(name).exists(), "{name} was removed");
    }
}

/// The probe for a writable folder takes no name that is in use.
#[test]
fn the_probe_replaces_nothing() {
    let folder = folder();
    let probe = folder.path().join(format!(".probe-{}", std::process::id()));
    fs::write(&probe, "kept").expect("a file can be written");
    drop(FileSink::<u64>::new(folder.path()).check_fresh());
    assert_eq!(fs::read_to_string(&probe).ok().as_deref(), Some("kept"));
}

/// A name from a checkpoint leads nowhere but into the folder.
#[test]
fn a_committable_never_leads_out_of_the_folder() {
    let root = folder();
    let output = root.path().join("output");
    // Folders that make the path resolve.
    for inner in [".staged-0000000001-00000-1-", "part-0000000001-00000-1-"] {
        fs::create_dir_all(output.join(inner)).expect("a folder can be made");
    }
    let victim = root.path().join("victim");
    fs::write(&victim, "kept").expect("a file can be written");
    let name = "part-0000000001-00000-1-/../../victim".to_owned();
    let pending = vec![Committable { checkpoint: CheckpointId(1), name }];
    let recovered = FileSink::<u64>::new(&output).recover(&owner(1), CheckpointId(1), pending);
    assert!(victim.exists(), "a file outside of the folder was removed");
    assert_eq!(recovered.expect_err("it is no name of ours").kind(), ErrorKind::Sink);
}

/// After a bad line the position is behind the last record that was appended.
#[test]
fn a_position_does_not_pass_a_bad_line() {
    let folder = folder();
    fs::write(folder.path().join("f"), b"fine\n\xFF\nmore\n").expect("a file can be written");
    let source = FileLines::new(folder.path()).expect("there is a file");
    let mut reader = source.open("f", None).expect("it opens");
    reader.read(10, &mut Vec::new()).expect_err("line 2 is not UTF-8");
    assert_eq!(reader.position(), Position { offset: 5, line: 1, ended: false });
    reader.read(10, &mut Vec::new()).expect_err("asked again, it is still not UTF-8");
}

/// 16 MiB of text are allowed whichever way the line ends.
#[test]
fn the_longest_line_may_end_in_two_bytes() {
    let folder = folder();
    let text = "x".repeat(16 << 20) + "\r\n";
    fs::write(folder.path().join("f"), text).expect("a file can be written");
    let source = FileLines::new(folder.path()).expect("there is a file");
    let mut lines = Vec::new();
    source.open("f", None).expect("it opens").read(1, &mut lines).expect("it is not too long");
    assert_eq!(lines[0].text.len(), 16 << 20);
}

/// A file that was there at the checkpoint and is gone is a failed restore.
#[test]
fn a_file_that_is_gone_at_a_restore_is_named_as_that() {
    let folder = folder();
    fs::write(folder.path().join("f"), "one\n").expect("a file can be written");
    let source = FileLines::new(folder.path()).expect("there is a file");
    fs::remove_file(folder.path().join("f")).expect("it can be removed");
    let at = Position { offset: 4, line: 1, ended: false };
    let error = source.open("f", Some(&at)).expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::Restore);
}

/// A position that isn't at the end doesn't say so.
#[test]
fn reading_on_after_the_end_is_not_ended() {
    let folder = folder();
    fs::write(folder.path().join("f"), "one\ntwo\n").expect("a file can be written");
    let source = FileLines::new(folder.path()).expect("there is a file");
    let at = Position { offset: 4, line: 1, ended: true };
    let mut reader = source.open("f", Some(&at)).expect("it opens");
    let mut lines = Vec::new();
    reader.read(1, &mut lines).expect("it reads");
    assert!(lines.is_empty() == reader.position().ended, "{lines:?} at {}", reader.position());
}

/// An unknown split is not the first one.
#[test]
fn an_unknown_split_is_refused() {
    let source = Generator::new(2, Some(3), |split, index| (split, index));
    assert!(source.open("00002", None).is_err(), "there is no third split");
    assert!(source.open("flights.csv", None).is_err(), "that is no split");
}

/// As every sink: going back behind what is committed is refused.
#[test]
fn a_collecting_sink_refuses_to_go_back() {
    let sink = CollectSink::<u64>::new();
    let mut writer = sink.writer(&owner(1), 0).expect("a writer");
    writer.write(&mut vec![1]).expect("it can be written");
    let prepared = writer.prepare(CheckpointId(2)).expect("it can be staged");
    writer.commit(&prepared.committables).expect("it can be committed");
    let recovered = sink.recover(&owner(2), CheckpointId(1), Vec::new());
    assert_eq!(recovered.expect_err("it would commit twice").kind(), ErrorKind::Refused);
}

/// As every sink: where nothing was written there is nothing to commit.
#[test]
fn a_collecting_sink_stages_nothing_where_nothing_was_written() {
    let sink = CollectSink::<u64>::new();
    let mut writer = sink.writer(&owner(1), 0).expect("a writer");
    let prepared = writer.prepare(CheckpointId(1)).expect("it can be staged");
    assert_eq!(prepared.committables, []);
}

/// The same through a job: refused before it starts.
#[test]
fn a_job_with_two_sinks_in_one_folder_says_so() {
    let folder = folder();
    let output = folder.path().join("output");
    let mut env = Environment::new();
    for (uid, base) in [("small", 0), ("large", 1000)] {
        env.from_source(Generator::new(1, Some(10), move |_, index| base + index))
            .uid(uid)
            .sink_to(FileSink::<u64>::new(&output))
            .uid(&format!("{uid}-out"));
    }
    let error = env.start("two sinks").expect_err("one would overwrite the other");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(&output.display().to_string()), "{error}");
}
