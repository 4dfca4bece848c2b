//! Reads everything again, and hashes it again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::job::JobId;
use crate::manifest::RunRef;
use crate::names;
use crate::pack::PACK_HEADER;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::{Error, Result};

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Chunks read, each once.
    pub chunks: u64,
    /// Plain bytes of them.
    pub bytes: u64,
    /// What is wrong; nothing if the checkpoint is whole.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The object, as a user would look for it.
    pub object: String,
    /// What is wrong with it.
    pub what: String,
}

/// Reads and hashes all that a checkpoint names, and goes on after a problem.
///
/// # Errors
/// There is no such checkpoint. What is damaged is in the report.
pub fn verify(store: &Arc<dyn Store>, job: JobId, checkpoint: u64) -> Result<Report> {
    let mut report = Report::default();
    let path = names::manifest(job, checkpoint);
    let snapshot = match Snapshot::open(store, job, checkpoint) {
        Ok(snapshot) => snapshot,
        Err(error) if error.kind() == crate::ErrorKind::NotFound => return Err(error),
        Err(error) => {
            report.add(store.describe(&path), &error);
            return Ok(report);
        }
    };
    let mut seen = Seen::default();
    for section in snapshot.all_sections() {
        for run in &section.runs {
            verify_run(&snapshot, run, &mut seen, &mut report);
        }
        if report.problems.is_empty() {
            verify_order(&snapshot, &section.name, &path, &mut report);
        }
    }
    Ok(report)
}

/// What has been read already: runs share chunks, chunks share packs.
#[derive(Default)]
struct Seen {
    packs: BTreeSet<String>,
    chunks: BTreeSet<(String, u64)>,
}

impl Report {
    fn add(&mut self, object: String, error: &Error) {
        let text = error.to_string();
        let what = text.strip_prefix(&format!("{object} ")).unwrap_or(&text).to_owned();
        let problem = Problem { object, what };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

fn verify_run(snapshot: &Snapshot, run: &RunRef, seen: &mut Seen, report: &mut Report) {
    verify_pack(snapshot, &run.pack, seen, report);
    let index = match snapshot.index(run) {
        Ok(index) => index,
        Err(error) => return report.add(object(snapshot, &run.pack), &error),
    };
    for pack in &index.packs {
        verify_pack(snapshot, pack, seen, report);
    }
    for chunk in &index.chunks {
        let pack = index.packs.get(chunk.pack).cloned().unwrap_or_default();
        if !seen.chunks.insert((pack.clone(), chunk.offset)) {
            continue;
        }
        match snapshot.chunk(&index, chunk) {
            Ok((bytes, _)) => {
                report.chunks += 1;
                report.bytes += bytes.len() as u64;
            }
            Err(error) => report.add(object(snapshot, &pack), &error),
        }
    }
}

/// The header of a pack, once.
fn verify_pack(snapshot: &Snapshot, name: &str, seen: &mut Seen, report: &mut Report) {
    if !seen.packs.insert(name.to_owned()) {
        return;
    }
    let read = snapshot.pack(name).and_then(|(path, object)| {
        let header = snapshot.store().read(&path, 0, PACK_HEADER.len())?;
        if header == PACK_HEADER {
            return Ok(());
        }
        Err(Error::damaged(&object, "it does not begin as a pack does"))
    });
    if let Err(error) = read {
        report.add(object(snapshot, name), &error);
    }
}

/// Entries: counts, order, and no key in two runs.
fn verify_order(snapshot: &Snapshot, section: &str, manifest: &str, report: &mut Report) {
    let visited = snapshot.visit(section, &mut |_, _| ControlFlow::Continue(()));
    if let Err(error) = visited {
        report.add(snapshot.store().describe(manifest), &error);
    }
}

fn object(snapshot: &Snapshot, pack: &str) -> String {
    snapshot.pack(pack).map_or_else(|_| pack.to_owned(), |(_, object)| object)
}
