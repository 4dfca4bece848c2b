//! Lines to files, in two phases.
//!
//! A writer appends to an *open* file. At a barrier it is closed and renamed *staged*, with the
//! checkpoint in its name; a storage thread syncs it. When the checkpoint has been completed it is
//! *committed*: linked to its final name, which never replaces anything, and the staged name goes.
//! Whatever the process dies in between, the next start finds out from the names: staged and in the
//! checkpoint: commit; staged gone and committed there: done already; anything else of this job that
//! is unfinished: remove.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use strandline_runtime::durable::{create_dirs, publish_new, remove, sync_dir};
use strandline_runtime::sink::{Committable, Prepared, Sink, SinkOwner, SinkWriter};
use strandline_runtime::{CheckpointId, Error, ErrorKind, Result};

use crate::file::names::{COMMITTED, Part, is_unfinished, open, probe};
use crate::file::place;

/// Text is handed to the file in pieces of about this size.
const WRITE_BYTES: usize = 64 << 10;

/// One line of text for each record, in files named `part-*` directly in a folder. Nothing that is
/// not committed has such a name.
#[derive(Debug)]
pub struct FileSink<T> {
    folder: PathBuf,
    overwrite: bool,
    withdraw_later: bool,
    record: PhantomData<fn(T)>,
}

impl<T: Display + Send + 'static> FileSink<T> {
    /// Files in this folder, which is made if it isn't there.
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Self {
            folder: folder.as_ref().to_owned(),
            overwrite: false,
            withdraw_later: false,
            record: PhantomData,
        }
    }

    /// Whether a start from nothing may remove the committed files that are there, whoever wrote
    /// them.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether a restore may remove files of this job that were committed after the checkpoint that
    /// it goes back to.
    #[must_use]
    pub fn withdraw_later(mut self, withdraw: bool) -> Self {
        self.withdraw_later = withdraw;
        self
    }
}

impl<T> FileSink<T> {
    fn error(&self, kind: ErrorKind, what: &str) -> Error {
        Error::new(kind, format!("output folder {} {what}", self.folder.display()))
    }

    fn failed(&self, what: &str) -> impl FnOnce(io::Error) -> Error {
        let error = self.error(ErrorKind::Sink, what);
        move |cause| error.because(cause)
    }

    /// Names of files in the folder, sorted.
    fn names(&self) -> Result<Vec<String>> {
        let unlistable = "can't be listed";
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(self.failed(unlistable))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(self.failed(unlistable))?;
            names.extend(entry.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    fn committed(&self) -> Result<Vec<String>> {
        let names = self.names()?;
        Ok(names.into_iter().filter(|name| name.starts_with(COMMITTED)).collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.folder.join(name);
        remove(&path).map_err(self.failed(&format!("has {name}, which can't be removed")))
    }

    /// Removes what is unfinished of a job, but for staged files of these parts.
    fn remove_unfinished(&self, job: &str, but: &BTreeSet<String>) -> Result<()> {
        for name in self.names()? {
            let spared = Part::of_staged(&name).is_some_and(|part| but.contains(&part.committed()));
            if is_unfinished(&name, job) && !spared {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Makes the folder and tries whether files can be made in it.
    fn check_writable(&self) -> Result<()> {
        let probe = self.folder.join(probe());
        let tried = create_dirs(&self.folder).and_then(|()| match File::create_new(&probe) {
            Ok(_) => fs::remove_file(&probe),
            // Somebody could write here before, and what that left is not ours to remove.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        });
        tried.map_err(|error| self.error(ErrorKind::Invalid, "can't be written").because(error))
    }

    /// Files of this job that belong to checkpoints after the restored one.
    fn later(&self, job: &str, restored: CheckpointId) -> Result<Vec<String>> {
        let is_later = |name: &String| {
            let part = Part::of_committed(name);
            part.is_some_and(|part| part.job == job && part.checkpoint > restored.0)
        };
        Ok(self.committed()?.into_iter().filter(is_later).collect())
    }

    fn check_later(&self, job: &str, restored: CheckpointId) -> Result<()> {
        let later = self.later(job, restored)?;
        if later.is_empty() || self.withdraw_later {
            return Ok(());
        }
        let some: Vec<&str> = later.iter().take(3).map(String::as_str).collect();
        let text = format!(
            "has {} files that were committed after checkpoint {restored} ({}): going on would \
             commit their records again; restore a later checkpoint, or pass --withdraw-later to \
             remove them",
            later.len(),
            some.join(", ")
        );
        Err(self.error(ErrorKind::Refused, &text))
    }

    fn withdraw(&self, job: &str, restored: CheckpointId) -> Result<()> {
        for name in self.later(job, restored)? {
            tracing::warn!("withdrawn, since it was committed after checkpoint {restored}: {name}");
            self.remove(&name)?;
        }
        Ok(())
    }
}

impl<T: Display + Send + 'static> Sink for FileSink<T> {
    type Record = T;
    type Writer = PartWriter<T>;

    fn output(&self) -> Option<String> {
        Some(place(&self.folder))
    }

    fn check_fresh(&self) -> Result<()> {
        self.check_writable()?;
        let committed = self.committed()?;
        match committed.first() {
            Some(first) if !self.overwrite => {
                let text = format!(
                    "has {} committed files ({first}, …): choose another output folder, or pass \
                     --overwrite to remove them",
                    committed.len()
                );
                Err(self.error(ErrorKind::Refused, &text))
            }
            _ => Ok(()),
        }
    }

    fn check_recover(&self, job: &str, restored: CheckpointId) -> Result<()> {
        self.check_later(job, restored)
    }

    fn start_fresh(&self, owner: &SinkOwner) -> Result<()> {
        if self.overwrite {
            self.committed()?.iter().try_for_each(|name| self.remove(name))?;
        }
        self.remove_unfinished(&owner.job, &BTreeSet::new())
    }

    fn recover(
        &self,
        owner: &SinkOwner,
        restored: CheckpointId,
        mut pending: Vec<Committable>,
    ) -> Result<()> {
        self.check_writable()?;
        self.check_later(&owner.job, restored)?;
        self.withdraw(&owner.job, restored)?;
        pending.sort();
        commit(&self.folder, &pending)?;
        self.remove_unfinished(&owner.job, &BTreeSet::new())
    }

    fn writer(&self, owner: &SinkOwner, subtask: u32) -> Result<PartWriter<T>> {
        Ok(PartWriter {
            folder: self.folder.clone(),
            owner: owner.clone(),
            subtask,
            number: 0,
            open: None,
            text: String::new(),
            record: PhantomData,
        })
    }
}

/// Commits parts by name. Parts that are committed already count as done.
fn commit(folder: &Path, committables: &[Committable]) -> Result<()> {
    for Committable { name, .. } in committables {
        let failed = |what: &str| {
            let text = format!("{} {what}", folder.join(name).display());
            Error::new(ErrorKind::Sink, text)
        };
        let part = Part::of_committed(name).ok_or_else(|| failed("is no name of a part"))?;
        let staged = folder.join(part.staged());
        publish_new(&staged, &folder.join(name))
            .map_err(|error| failed(what_failed(error.kind())).because(error))?;
    }
    Ok(())
}

/// Why a part could not be committed.
fn what_failed(kind: io::ErrorKind) -> &'static str {
    if kind == io::ErrorKind::NotFound {
        return "is neither staged nor committed, though a checkpoint has it; if it was moved away \
                on purpose, start over with --fresh";
    }
    if kind == io::ErrorKind::AlreadyExists {
        return "is there with other bytes";
    }
    "can't be committed"
}

/// Writes the parts of one subtask.
#[derive(Debug)]
pub struct PartWriter<T> {
    folder: PathBuf,
    owner: SinkOwner,
    subtask: u32,
    /// Counts open files.
    number: u64,
    open: Option<(PathBuf, File)>,
    /// Not yet handed to the file.
    text: String,
    record: PhantomData<fn(T)>,
}

impl<T> PartWriter<T> {
    fn flush(&mut self) -> Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let (path, file) = match &mut self.open {
            Some(open) => open,
            None => {
                let path = self.folder.join(open(&self.owner, self.subtask, self.number));
                let file = File::create_new(&path).map_err(|error| unwritable(&path, error))?;
                self.number += 1;
                self.open.insert((path, file))
            }
        };
        file.write_all(self.text.as_bytes()).map_err(|error| unwritable(path, error))?;
        self.text.clear();
        Ok(())
    }
}

fn unwritable(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Sink, format!("{} can't be written", path.display())).because(error)
}

impl<T: Display + Send + 'static> SinkWriter for PartWriter<T> {
    type Record = T;

    fn write(&mut self, batch: &mut Vec<T>) -> Result<()> {
        for record in batch.drain(..) {
            // Writing to a string can't fail, and a `Display` that fails by itself leaves a line
            // that nobody asked for: it is an error.
            writeln!(self.text, "{record}").map_err(|error| {
                Error::new(ErrorKind::Sink, "a record can't be shown").because(error)
            })?;
            if self.text.len() >= WRITE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn prepare(&mut self, id: CheckpointId) -> Result<Prepared> {
        self.flush()?;
        let Some((path, file)) = self.open.take() else {
            return Ok(Prepared { committables: Vec::new(), make_durable: Box::new(|| Ok(())) });
        };
        let part = Part {
            checkpoint: id.0,
            subtask: self.subtask,
            token: self.owner.token,
            job: self.owner.job.clone(),
        };
        let staged = self.folder.join(part.staged());
        // A link, since a rename would replace what another writer has staged by this name.
        let linked = fs::hard_link(&path, &staged).and_then(|()| fs::remove_file(&path));
        linked.map_err(|error| unwritable(&staged, error))?;
        let folder = self.folder.clone();
        let make_durable = Box::new(move || {
            let synced = file.sync_all().and_then(|()| sync_dir(&folder));
            synced.map_err(|error| unwritable(&staged, error))
        });
        let committables = vec![Committable { checkpoint: id, name: part.committed() }];
        Ok(Prepared { committables, make_durable })
    }

    fn commit(&mut self, committables: &[Committable]) -> Result<()> {
        commit(&self.folder, committables)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner(token: u64) -> SinkOwner {
        SinkOwner { job: "0123456789abcdef0123456789abcdef".to_owned(), token }
    }

    fn sink(folder: &Path) -> FileSink<String> {
        FileSink::new(folder)
    }

    fn stage(writer: &mut PartWriter<String>, id: u64, lines: &[&str]) -> Vec<Committable> {
        let mut batch = lines.iter().map(ToString::to_string).collect();
        writer.write(&mut batch).expect("it can be written");
        let prepared = writer.prepare(CheckpointId(id)).expect("it can be staged");
        (prepared.make_durable)().expect("it can be synced");
        prepared.committables
    }

    fn committed(folder: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        for name in sink(folder).committed().expect("the folder can be listed") {
            let text = fs::read_to_string(folder.join(name)).expect("a part can be read");
            lines.extend(text.lines().map(str::to_owned));
        }
        lines
    }

    fn names(folder: &Path) -> Vec<String> {
        sink(folder).names().expect("the folder can be listed")
    }

    #[test]
    fn nothing_has_a_committed_name_before_its_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut writer = sink(folder.path()).writer(&owner(1), 0).expect("a writer");
        let pending = stage(&mut writer, 1, &["a", "b"]);
        assert_eq!(committed(folder.path()), Vec::<String>::new());
        writer.commit(&pending).expect("it can be committed");
        writer.commit(&pending).expect("twice is once");
        assert_eq!(committed(folder.path()), ["a", "b"]);
        assert_eq!(names(folder.path()).len(), 1);
        let nothing = stage(&mut writer, 2, &[]);
        assert!(nothing.is_empty(), "no record, no file");
    }

    #[test]
    fn each_point_of_a_crash_is_mended() {
        for point in 0..4 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let mut writer = sink(folder.path()).writer(&owner(1), 0).expect("a writer");
            let pending = stage(&mut writer, 1, &["kept"]);
            let part = Part::of_committed(&pending[0].name).expect("a part's name");
            let (staged, name) =
                (folder.path().join(part.staged()), folder.path().join(part.committed()));
            match point {
                0 => {}
                1 => fs::hard_link(&staged, &name).expect("a link can be made"),
                2 => fs::rename(&staged, &name).expect("a file can be renamed"),
                _ => drop(stage(&mut writer, 2, &["of a checkpoint that never was"])),
            }
            // Open files go too.
            writer.text.push_str("unfinished\n");
            writer.flush().expect("it can be written");
            let recovered = sink(folder.path()).recover(&owner(2), CheckpointId(1), pending);
            recovered.expect("it can be mended");
            assert_eq!(committed(folder.path()), ["kept"], "point {point}");
            assert_eq!(names(folder.path()).len(), 1, "point {point}");
        }
    }

    #[test]
    fn a_part_that_is_nowhere_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut writer = sink(folder.path()).writer(&owner(1), 0).expect("a writer");
        let pending = stage(&mut writer, 1, &["lost"]);
        let part = Part::of_committed(&pending[0].name).expect("a part's name");
        fs::remove_file(folder.path().join(part.staged())).expect("it can be removed");
        let recovered = sink(folder.path()).recover(&owner(2), CheckpointId(1), pending.clone());
        let error = recovered.expect_err("it is lost");
        assert_eq!(error.kind(), ErrorKind::Sink);
        assert!(error.to_string().contains(&pending[0].name), "{error}");
    }

    #[test]
    fn later_parts_are_refused_or_withdrawn() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut writer = sink(folder.path()).writer(&owner(1), 0).expect("a writer");
        for id in [1, 2] {
            let pending = stage(&mut writer, id, &["x"]);
            writer.commit(&pending).expect("it can be committed");
        }
        let error = sink(folder.path())
            .recover(&owner(2), CheckpointId(1), Vec::new())
            .expect_err("checkpoint 2 has been committed");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("part-0000000002"), "{error}");
        let withdrawing = sink(folder.path()).withdraw_later(true);
        withdrawing.recover(&owner(2), CheckpointId(1), Vec::new()).expect("it is withdrawn");
        assert_eq!(committed(folder.path()), ["x"]);
    }

    #[test]
    fn a_fresh_start_refuses_what_is_there_or_removes_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("deep/output");
        sink(&path).check_fresh().expect("there is nothing");
        fs::write(path.join("part-of somebody else"), "x").expect("a file can be written");
        fs::write(path.join("notes"), "x").expect("a file can be written");
        let error = sink(&path).check_fresh().expect_err("there is something");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("--overwrite"), "{error}");
        let overwriting = sink(&path).overwrite(true);
        overwriting.check_fresh().expect("it may be overwritten");
        overwriting.start_fresh(&owner(1)).expect("it can be removed");
        assert_eq!(names(&path), ["notes"]);
    }

    #[test]
    fn a_folder_that_is_a_file_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        fs::write(&path, "x").expect("a file can be written");
        let error = sink(&path).check_fresh().expect_err("it is a file");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("file"), "{error}");
    }

    #[derive(Clone, Debug)]
    enum Op {
        Write(u8),
        Checkpoint { commits: bool },
        Crash,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (1_u8..5).prop_map(Op::Write),
            3 => any::<bool>().prop_map(|commits| Op::Checkpoint { commits }),
            1 => Just(Op::Crash),
        ];
        prop::collection::vec(op, 0..30)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        /// Every record before a completed checkpoint is committed exactly once, no other one is.
        #[test]
        fn completed_checkpoints_count_once(ops in ops()) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let sink = sink(folder.path());
            let mut token = 1;
            let mut writer = sink.writer(&owner(token), 0).expect("a writer");
            let (mut next, mut id) = (0_u32, 0_u64);
            let mut open: Vec<String> = Vec::new();
            let mut pending: Vec<Committable> = Vec::new();
            let mut expected: Vec<String> = Vec::new();
            for op in ops.into_iter().chain([Op::Checkpoint { commits: true }]) {
                match op {
                    Op::Write(count) => {
                        let lines: Vec<String> = (0..u32::from(count)).map(|n| (next + n).to_string()).collect();
                        next += u32::from(count);
                        writer.write(&mut lines.clone()).expect("it can be written");
                        open.extend(lines);
                    }
                    Op::Checkpoint { commits } => {
                        id += 1;
                        pending.extend(stage(&mut writer, id, &[]));
                        expected.append(&mut open);
                        if commits {
                            writer.commit(&std::mem::take(&mut pending)).expect("it can be committed");
                        }
                    }
                    Op::Crash => {
                        token += 1;
                        open.clear();
                        let kept = std::mem::take(&mut pending);
                        sink.recover(&owner(token), CheckpointId(id), kept).expect("it recovers");
                        writer = sink.writer(&owner(token), 0).expect("a writer");
                    }
                }
            }
            prop_assert_eq!(committed(folder.path()), expected);
        }
    }
}
