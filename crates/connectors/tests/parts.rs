//! Writing files from outside: what lies in the folder after any history of crashes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use strandline_connectors::file::{FileSink, PartWriter};
use strandline_runtime::sink::{Committable, Sink, SinkOwner, SinkWriter};
use strandline_runtime::{CheckpointId, ErrorKind};

const JOB: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";
const SUBTASKS: u32 = 3;

fn owner_of(job: &str, token: u64) -> SinkOwner {
    SinkOwner { job: job.to_owned(), token }
}

fn owner(token: u64) -> SinkOwner {
    owner_of(JOB, token)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn sink(folder: &Path) -> FileSink<u64> {
    FileSink::new(folder)
}

/// Every file of the folder with its bytes.
fn image(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).expect("the folder can be listed");
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        (name, fs::read_to_string(entry.path()).expect("it can be read"))
    };
    entries.map(file).collect()
}

/// The records of all committed parts, sorted.
fn committed(folder: &Path) -> Vec<u64> {
    let image = image(folder);
    let parts = image.iter().filter(|(name, _)| name.starts_with("part-") && name.ends_with(JOB));
    let mut records: Vec<u64> = parts
        .flat_map(|(_, text)| text.lines().map(|line| line.parse().expect("a number")))
        .collect();
    records.sort_unstable();
    records
}

fn stage(writer: &mut PartWriter<u64>, id: u64, mut records: Vec<u64>) -> Vec<Committable> {
    writer.write(&mut records).expect("it can be written");
    assert!(records.is_empty(), "the batch is drained");
    let prepared = writer.prepare(CheckpointId(id)).expect("it can be staged");
    (prepared.make_durable)().expect("it can be synced");
    prepared.committables
}

/// One part of checkpoint 1, staged; its name and its staged name.
fn one_staged(folder: &Path) -> (Vec<Committable>, String, String) {
    let mut writer = sink(folder).writer(&owner(1), 0).expect("a writer");
    let pending = stage(&mut writer, 1, vec![7]);
    let name = pending.first().expect("one part").name.clone();
    let staged = name.replacen("part-", ".staged-", 1);
    (pending, name, staged)
}

#[test]
fn names_are_as_documented() {
    let folder = folder();
    let (pending, name, staged) = one_staged(folder.path());
    assert_eq!(name, format!("part-0000000001-00000-1-{JOB}"));
    assert_eq!(image(folder.path()), [(staged, "7\n".to_owned())].into());
    let mut writer = sink(folder.path()).writer(&owner(34), 2).expect("a writer");
    assert_eq!(stage(&mut writer, 2, vec![8])[0].name, format!("part-0000000002-00002-34-{JOB}"));
    sink(folder.path()).recover(&owner(2), CheckpointId(1), pending).expect("it recovers");
    assert_eq!(image(folder.path()), [(name, "7\n".to_owned())].into());
}

#[test]
fn no_record_no_file() {
    let folder = folder();
    let mut writer = sink(folder.path()).writer(&owner(1), 0).expect("a writer");
    assert_eq!(stage(&mut writer, 1, vec![]), []);
    assert_eq!(image(folder.path()), BTreeMap::new());
}

#[test]
fn many_records_are_written_whole_and_in_order() {
    let folder = folder();
    let mut writer = sink(folder.path()).writer(&owner(1), 0).expect("a writer");
    // More than the writer keeps to itself, in more than one piece.
    writer.write(&mut (0..30_000).collect()).expect("it can be written");
    let pending = stage(&mut writer, 1, (30_000..40_000).collect());
    writer.commit(&pending).expect("it can be committed");
    let expected: String = (0..40_000).map(|number| format!("{number}\n")).collect();
    assert!(image(folder.path()).into_values().eq([expected]));
}

#[test]
fn a_commit_goes_on_from_any_point() {
    for point in ["staged", "both", "final"] {
        for by_recovery in [false, true] {
            let folder = folder();
            let (pending, name, staged) = one_staged(folder.path());
            let (from, to) = (folder.path().join(&staged), folder.path().join(&name));
            match point {
                "both" => fs::hard_link(from, to).expect("a link can be made"),
                "final" => fs::rename(from, to).expect("a file can be renamed"),
                _ => {}
            }
            if by_recovery {
                let sink = sink(folder.path());
                sink.recover(&owner(2), CheckpointId(1), pending).expect("it recovers");
            } else {
                let mut writer = sink(folder.path()).writer(&owner(1), 0).expect("a writer");
                writer.commit(&pending).expect("it can be committed");
            }
            let expected = [(name, "7\n".to_owned())].into();
            assert_eq!(image(folder.path()), expected, "{point}, recovery {by_recovery}");
        }
    }
}

#[test]
fn a_commit_never_replaces() {
    let folder = folder();
    let (pending, name, _) = one_staged(folder.path());
    fs::write(folder.path().join(&name), "of somebody else").expect("a file can be written");
    let before = image(folder.path());
    let mut writer = sink(folder.path()).writer(&owner(1), 0).expect("a writer");
    let error = writer.commit(&pending).expect_err("the name is taken");
    assert_eq!(error.kind(), ErrorKind::Sink);
    assert!(error.to_string().contains(&name), "{error}");
    assert_eq!(image(folder.path()), before);
}

#[test]
fn what_is_nowhere_is_named_and_commits_nothing_after_it() {
    let folder = folder();
    let (mut pending, name, staged) = one_staged(folder.path());
    let mut writer = sink(folder.path()).writer(&owner(1), 1).expect("a writer");
    pending.extend(stage(&mut writer, 1, vec![8]));
    fs::remove_file(folder.path().join(staged)).expect("it can be removed");
    let before = image(folder.path());
    // In order of (checkpoint, name), however they are given.
    pending.reverse();
    let recovered = sink(folder.path()).recover(&owner(2), CheckpointId(1), pending);
    let error = recovered.expect_err("one part is lost");
    assert_eq!(error.kind(), ErrorKind::Sink);
    assert!(error.to_string().contains(&name), "{error}");
    assert_eq!(image(folder.path()), before, "a refused recovery removes nothing");
}

#[test]
fn a_restore_touches_nothing_of_others() {
    let folder = folder();
    let mut other = sink(folder.path()).writer(&owner_of(OTHER, 9), 0).expect("a writer");
    let of_other = stage(&mut other, 5, vec![1]);
    other.commit(&of_other).expect("it can be committed");
    drop(stage(&mut other, 6, vec![2]));
    for name in ["notes", ".hidden", "part-", "part-0000000009", "staged-x", ".staged-", ".open-"] {
        fs::write(folder.path().join(name), "kept").expect("a file can be written");
    }
    let before = image(folder.path());
    let mut writer = sink(folder.path()).writer(&owner(1), 0).expect("a writer");
    drop(stage(&mut writer, 3, vec![3]));
    let sink = sink(folder.path()).withdraw_later(true);
    sink.recover(&owner(2), CheckpointId(1), Vec::new()).expect("it recovers");
    assert_eq!(image(folder.path()), before);
}

#[test]
fn later_parts_are_named_three_at_most() {
    let folder = folder();
    for id in 1..=5 {
        let mut writer = sink(folder.path()).writer(&owner(id), 0).expect("a writer");
        let pending = stage(&mut writer, id, vec![id]);
        writer.commit(&pending).expect("it can be committed");
    }
    let before = image(folder.path());
    let refused = sink(folder.path()).recover(&owner(6), CheckpointId(1), Vec::new());
    let error = refused.expect_err("four later parts are there");
    assert_eq!(error.kind(), ErrorKind::Refused);
    let text = error.to_string();
    for (id, named) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
        assert_eq!(text.contains(&format!("part-{id:010}")), named, "{text}");
    }
    assert_eq!(image(folder.path()), before, "a refusal changes nothing");
    let withdrawing = sink(folder.path()).withdraw_later(true);
    withdrawing.recover(&owner(6), CheckpointId(1), Vec::new()).expect("they are withdrawn");
    assert_eq!(committed(folder.path()), [1]);
}

#[test]
fn a_fresh_start_removes_unfinished_work_of_its_job_alone() {
    let folder = folder();
    for job in [JOB, OTHER] {
        let mut writer = sink(folder.path()).writer(&owner_of(job, 1), 0).expect("a writer");
        drop(stage(&mut writer, 1, vec![1]));
        writer.write(&mut (0..20_000).collect()).expect("it can be written");
    }
    assert_eq!(image(folder.path()).len(), 4, "one staged and one open file of each");
    let sink = sink(folder.path());
    sink.check_fresh().expect("nothing is committed");
    assert_eq!(image(folder.path()).len(), 4, "a check changes nothing");
    sink.start_fresh(&owner(2)).expect("it starts");
    let left = image(folder.path());
    assert!(left.len() == 2 && left.keys().all(|name| name.contains(OTHER)), "{left:?}");
}

#[test]
fn a_refused_start_names_count_and_way_out() {
    let folder = folder();
    for id in [1, 2] {
        let mut writer = sink(folder.path()).writer(&owner_of(OTHER, 1), 0).expect("a writer");
        let pending = stage(&mut writer, id, vec![1]);
        writer.commit(&pending).expect("it can be committed");
    }
    let before = image(folder.path());
    let error = sink(folder.path()).check_fresh().expect_err("there is output");
    assert_eq!(error.kind(), ErrorKind::Refused);
    for part in ["2 committed files", "part-0000000001", "--overwrite"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(image(folder.path()), before, "a refusal changes nothing");
}

/// How far the commit of one part has come when the process dies.
#[derive(Clone, Copy, Debug)]
enum Reached {
    Staged,
    Both,
    Final,
}

#[derive(Clone, Debug)]
enum Op {
    /// So many records from the source, to one subtask.
    Write { subtask: u32, count: u64 },
    /// A barrier passes all subtasks. Only a completed checkpoint can be restored; a failed one's
    /// parts wait for the next.
    Checkpoint { completes: bool },
    /// The subtasks are told of the last completed checkpoint.
    Commit,
    /// The process dies, somewhere in the commit of what may be committed, and comes back.
    Crash(Vec<Reached>),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let reached = prop_oneof![Just(Reached::Staged), Just(Reached::Both), Just(Reached::Final)];
    let op = prop_oneof![
        4 => (0..SUBTASKS, 1_u64..4).prop_map(|(subtask, count)| Op::Write { subtask, count }),
        3 => prop::bool::weighted(0.6).prop_map(|completes| Op::Checkpoint { completes }),
        2 => Just(Op::Commit),
        2 => prop::collection::vec(reached, 1..6).prop_map(Op::Crash),
    ];
    prop::collection::vec(op, 0..30)
}

/// A job of one source and three writers, as far as its sink can tell.
struct Job<'a> {
    folder: &'a Path,
    token: u64,
    id: u64,
    next: u64,
    writers: Vec<PartWriter<u64>>,
    pending: Vec<Committable>,
    completed: Completed,
}

/// What a restore goes back to.
#[derive(Clone, Default)]
struct Completed {
    id: u64,
    next: u64,
    pending: Vec<Committable>,
}

impl<'a> Job<'a> {
    fn new(folder: &'a Path) -> Self {
        let completed = Completed::default();
        let mut job =
            Self { folder, token: 1, id: 0, next: 0, writers: vec![], pending: vec![], completed };
        job.start();
        job
    }

    fn start(&mut self) {
        let sink = sink(self.folder);
        let writer = |subtask| sink.writer(&owner(self.token), subtask).expect("a writer");
        self.writers = (0..SUBTASKS).map(writer).collect();
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Write { subtask, count } => {
                let mut batch = (self.next..self.next + count).collect();
                self.next += count;
                let writer = self.writers.get_mut(subtask as usize).expect("a subtask");
                writer.write(&mut batch).expect("it can be written");
            }
            Op::Checkpoint { completes } => self.checkpoint(completes),
            Op::Commit => self.commit(),
            Op::Crash(reached) => self.crash(&reached),
        }
    }

    fn checkpoint(&mut self, completes: bool) {
        self.id += 1;
        for writer in &mut self.writers {
            self.pending.extend(stage(writer, self.id, vec![]));
        }
        if completes {
            let pending = self.pending.clone();
            self.completed = Completed { id: self.id, next: self.next, pending };
        }
    }

    fn commit(&mut self) {
        let id = CheckpointId(self.completed.id);
        let (now, later) =
            std::mem::take(&mut self.pending).into_iter().partition(|part| part.checkpoint <= id);
        self.pending = later;
        let now: Vec<Committable> = now;
        self.writers.first_mut().expect("a subtask").commit(&now).expect("it can be committed");
    }

    fn crash(&mut self, reached: &[Reached]) {
        for (part, reached) in self.completed.pending.iter().zip(reached) {
            let name = self.folder.join(&part.name);
            let staged = self.folder.join(part.name.replacen("part-", ".staged-", 1));
            match reached {
                Reached::Both if !name.exists() => fs::hard_link(staged, name).expect("a link"),
                Reached::Final if !name.exists() => fs::rename(staged, name).expect("a rename"),
                Reached::Staged | Reached::Both | Reached::Final => {}
            }
        }
        self.token += 1;
        let Completed { id, next, pending } = self.completed.clone();
        let sink = sink(self.folder);
        // A restore may itself be cut short by a crash, and come again.
        for _ in 0..2 {
            let recovered = sink.recover(&owner(self.token), CheckpointId(id), pending.clone());
            recovered.expect("it recovers");
        }
        assert_eq!(committed(self.folder), (0..next).collect::<Vec<_>>(), "after a restore");
        let unfinished = image(self.folder).into_keys().filter(|name| name.starts_with('.'));
        assert_eq!(unfinished.count(), 0, "nothing is left behind");
        self.pending.clear();
        self.next = next;
        self.start();
    }
}

/// A failing seed is kept beside this file.
fn config(cases: u32) -> ProptestConfig {
    let kept = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(kept)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(64))]

    /// Whatever fails and dies: at the end each record is there once.
    #[test]
    fn every_record_is_committed_once(ops in ops()) {
        let folder = folder();
        let mut job = Job::new(folder.path());
        for op in ops {
            job.step(op);
            let so_far = committed(folder.path());
            prop_assert!(so_far.windows(2).all(|two| two[0] < two[1]), "twice: {so_far:?}");
            prop_assert!(so_far.last().is_none_or(|last| *last < job.completed.next));
        }
        job.step(Op::Checkpoint { completes: true });
        job.step(Op::Commit);
        prop_assert_eq!(committed(folder.path()), (0..job.next).collect::<Vec<_>>());
    }
}
