//! Reads everything again, and hashes it again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::index::{ChunkRef, RunIndex};
use crate::job::JobId;
use crate::names;
use crate::pack::{LiveRun, PACK_HEADER};
use crate::ranges::KeyRange;
use crate::run::{OpenRun, Packs};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::{Error, ErrorKind, Hash, Result};

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
    /// What can't be read because of it, if it is no more than a part of a section.
    pub lost: Option<Lost>,
}

/// Entries that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Their section.
    pub section: String,
    /// Where they are.
    pub ranges: Vec<KeyRange>,
    /// The chunk that is damaged; `None` if it is the index that says where chunks are.
    pub chunk: Option<Hash>,
}

/// Called with the number of plain bytes that have been verified since the last call; `Break` ends
/// the verification.
pub type Progress<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

/// Reads and hashes all that a checkpoint names, and goes on after a problem.
///
/// # Errors
/// There is no such checkpoint, or it has been deleted meanwhile. What is damaged is in the report.
pub fn verify(store: &Arc<dyn Store>, job: JobId, checkpoint: u64) -> Result<Report> {
    match Snapshot::open(store, job, checkpoint) {
        Ok(snapshot) => snapshot.verify(&mut |_| ControlFlow::Continue(())),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(error),
        Err(error) => {
            let mut report = Report::default();
            report.add(store.describe(&names::manifest(job, checkpoint)), &error, None);
            Ok(report)
        }
    }
}

impl Snapshot {
    /// Reads and hashes all that it names, and goes on after a problem. May run on a thread of its
    /// own, beside somebody who works with it already.
    ///
    /// # Errors
    /// `Subsumed` if it has been deleted meanwhile. What is damaged is in the report.
    pub fn verify(&self, progress: &mut Progress<'_>) -> Result<Report> {
        let mut verifier = Verifier {
            packs: self.packs(),
            progress,
            seen: BTreeSet::new(),
            heads: BTreeSet::new(),
            report: Report::default(),
        };
        let sections = self.all_sections().iter();
        let runs = sections.flat_map(|of| self.runs(&of.name).iter().map(|run| (&of.name, run)));
        for (section, run) in runs {
            if verifier.run(section, run)?.is_break() {
                return Ok(verifier.report);
            }
        }
        let mut report = verifier.report;
        for section in self.all_sections() {
            if report.problems.is_empty() {
                self.verify_order(&section.name, &mut report)?;
            }
        }
        Ok(report)
    }

    /// Entries: that they can be taken, and their order.
    fn verify_order(&self, section: &str, report: &mut Report) -> Result<()> {
        let all = KeyRange::all();
        match self.visit_values(section, &all, &mut |_, _| ControlFlow::Continue(())) {
            Err(error) if error.kind() == ErrorKind::Subsumed => Err(error),
            Err(error) => {
                report.add(self.object(), &error, None);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

struct Verifier<'a, 'p> {
    packs: &'a Packs,
    progress: &'a mut Progress<'p>,
    /// What has been found whole already: runs share chunks, chunks share packs.
    seen: BTreeSet<(String, u64)>,
    heads: BTreeSet<String>,
    report: Report,
}

impl Verifier<'_, '_> {
    fn run(&mut self, section: &str, run: &OpenRun) -> Result<ControlFlow<()>> {
        self.head(&run.run.pack)?;
        let lost = |ranges, chunk| Some(Lost { section: section.to_owned(), ranges, chunk });
        let index = match run.index() {
            Ok(index) => index,
            Err(error) => {
                let lost = lost(run.run.ranges.clone(), None);
                self.problem(&run.run.pack, error, lost)?;
                return Ok(ControlFlow::Continue(()));
            }
        };
        self.filter(&index)?;
        let live = LiveRun { run: run.run.clone(), index: Arc::clone(&index) };
        for number in live.chunk_numbers() {
            if self.chunk(section, &live, number)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// One chunk, unless it has been read already.
    fn chunk(&mut self, section: &str, live: &LiveRun, number: usize) -> Result<ControlFlow<()>> {
        let Some(chunk) = live.index.chunks.get(number) else {
            return Ok(ControlFlow::Continue(()));
        };
        let pack = live.index.pack(chunk.pack);
        self.head(pack)?;
        let place = (pack.to_owned(), chunk.offset);
        if self.seen.contains(&place) {
            return Ok(ControlFlow::Continue(()));
        }
        // One that is damaged is read again for each run that has it: each loses something.
        match self.packs.chunk(&live.index, chunk) {
            Ok(plain) => {
                self.seen.insert(place);
                self.report.chunks += 1;
                self.report.bytes += plain.len() as u64;
                Ok((self.progress)(plain.len() as u64))
            }
            Err(error) => {
                let (section, ranges) = (section.to_owned(), ranges_of(live, number, chunk));
                let lost = Lost { section, ranges, chunk: Some(chunk.hash) };
                self.problem(pack, error, Some(lost))?;
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    fn filter(&mut self, index: &RunIndex) -> Result<()> {
        let Some(filter) = &index.filter else {
            return Ok(());
        };
        match self.packs.filter(index) {
            Ok(_) => Ok(()),
            Err(error) => self.problem(index.pack(filter.pack), error, None),
        }
    }

    /// The header of a pack, once.
    fn head(&mut self, pack: &str) -> Result<()> {
        if !self.heads.insert(pack.to_owned()) {
            return Ok(());
        }
        let read = self.packs.read(pack, 0, PACK_HEADER.len()).and_then(|header| {
            let (_, object) = self.packs.pack(pack)?;
            check_header(&header, &object)
        });
        read.or_else(|error| self.problem(pack, error, None))
    }

    fn problem(&mut self, pack: &str, error: Error, lost: Option<Lost>) -> Result<()> {
        if error.kind() == ErrorKind::Subsumed {
            return Err(error);
        }
        let object = self.packs.pack(pack).map_or_else(|_| pack.to_owned(), |(_, object)| object);
        self.report.add(object, &error, lost);
        Ok(())
    }
}

fn check_header(header: &[u8], object: &str) -> Result<()> {
    let (magic, version) = header.split_at_checked(4).unwrap_or_default();
    match version {
        _ if header == PACK_HEADER => Ok(()),
        [low, high] if magic == &PACK_HEADER[..4] && (*low, *high) > (1, 0) => {
            let version = u16::from_le_bytes([*low, *high]);
            let text =
                format!("{object} needs version {version} of the format; this build reads 1");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
        _ => Err(Error::damaged(object, "it does not begin as a pack does")),
    }
}

/// What of a run is in one of its chunks.
fn ranges_of(live: &LiveRun, number: usize, chunk: &ChunkRef) -> Vec<KeyRange> {
    let after = live.index.chunks.get(number + 1).map(|after| &after.first_key[..]);
    let held = KeyRange::new(&chunk.first_key, after);
    live.run.ranges.iter().filter_map(|range| range.common(&held)).collect()
}

impl Report {
    /// The chunks that are damaged: what an [`Owner`](crate::Owner) must not name again.
    pub fn damaged_chunks(&self) -> impl Iterator<Item = Hash> {
        self.problems.iter().filter_map(|problem| problem.lost.as_ref()?.chunk)
    }

    fn add(&mut self, object: String, error: &Error, lost: Option<Lost>) {
        let text = error.to_string();
        let what = text.strip_prefix(&format!("{object} ")).unwrap_or(&text).to_owned();
        let problem = Problem { object, what, lost };
        // What is lost is said once; to look for it among all that is lost would take for ever.
        if problem.lost.is_some() || !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}
