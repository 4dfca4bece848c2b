//! What checkpoints cost: bytes that only one of them holds, and bytes that they share.
//!
//! A *piece* is a chunk, a filter or an index, known by its pack and its place there. However
//! many runs of a checkpoint name a piece, it counts once for the checkpoint; if no other
//! checkpoint of the job names it, it is the checkpoint's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::history::history;
use crate::job::JobId;
use crate::live::Base;
use crate::pack::LiveRun;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// What one checkpoint or savepoint holds. Manifests are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its number.
    pub checkpoint: u64,
    /// Bytes that a restore reads at most; a piece that is named twice counts twice.
    pub full_bytes: u64,
    /// Bytes that it added to storage when it was made.
    pub written_bytes: u64,
    /// Stored bytes of pieces that no other completed checkpoint of the job names.
    pub exclusive_bytes: u64,
    /// Stored bytes of the other pieces that it names.
    pub shared_bytes: u64,
    /// Bytes of its chunks before compression.
    pub plain_bytes: u64,
    /// Bytes of its chunks as stored.
    pub chunk_bytes: u64,
    /// Runs.
    pub runs: u64,
    /// Chunks.
    pub chunks: u64,
    /// Packs that it names.
    pub packs: u64,
    /// Why nothing of it can be read; then all else is 0, and what the others hold exclusively
    /// may be shared with it.
    pub damaged: Option<String>,
}

/// What each completed checkpoint of a job holds, ascending. Reads manifests and indexes, no chunk;
/// memory is about 100 bytes for each piece that is stored. A checkpoint that is deleted meanwhile
/// is left out: pin the newest one, and none is.
///
/// # Errors
/// The storage fails, or a fence is damaged. A damaged checkpoint says so itself.
pub fn usage(store: &Arc<dyn Store>, job: JobId) -> Result<Vec<Usage>> {
    let mut pieces = Pieces::default();
    let mut all = Vec::new();
    for listed in history(store, job)? {
        let opened = Snapshot::open(store, job, listed.checkpoint);
        match opened.and_then(|snapshot| pieces.add(&snapshot, all.len())) {
            Ok(usage) => all.push(usage),
            Err(error) if is_gone(store, job, listed.checkpoint, &error) => {}
            Err(error) => {
                let damaged = Some(error.to_string());
                all.push(Usage { checkpoint: listed.checkpoint, damaged, ..Usage::default() });
            }
        }
    }
    pieces.settle(&mut all);
    Ok(all)
}

fn is_gone(store: &Arc<dyn Store>, job: JobId, checkpoint: u64, error: &Error) -> bool {
    let gone = |error: &Error| error.kind() == ErrorKind::NotFound;
    error.kind() == ErrorKind::Subsumed
        || gone(error) && Snapshot::open(store, job, checkpoint).is_err_and(|error| gone(&error))
}

impl Snapshot {
    /// What it holds, taken by itself: all of it is exclusive.
    ///
    /// # Errors
    /// `Damaged` or `NotFound`, naming the object; `Subsumed` if it has been deleted.
    pub fn usage(&self) -> Result<Usage> {
        let mut pieces = Pieces::default();
        let mut all = vec![pieces.add(self, 0)?];
        pieces.settle(&mut all);
        Ok(all.pop().unwrap_or_default())
    }

    /// The names of all packs that it names, without folder.
    ///
    /// # Errors
    /// As [`Snapshot::usage`].
    pub fn pack_names(&self) -> Result<BTreeSet<Arc<str>>> {
        Base::read(self).map(|base| base.packs)
    }
}

/// All pieces that have been seen, by pack and offset.
#[derive(Default)]
struct Pieces(BTreeMap<Arc<str>, BTreeMap<u64, Piece>>);

/// One that some checkpoint names.
struct Piece {
    bytes: u64,
    /// The first and the last checkpoint that name it, by their place in the list.
    first: usize,
    last: usize,
}

impl Pieces {
    /// Adds the pieces of a checkpoint that has this place in the list. Until all have been added,
    /// all that it names is held to be shared.
    fn add(&mut self, snapshot: &Snapshot, place: usize) -> Result<Usage> {
        let base = Base::read(snapshot)?;
        let manifest = snapshot.manifest();
        let mut usage = Usage {
            checkpoint: manifest.checkpoint,
            full_bytes: manifest.full_bytes,
            written_bytes: manifest.written_bytes,
            packs: base.packs.len() as u64,
            ..Usage::default()
        };
        for run in base.sections.values().flat_map(|section| &section.runs) {
            usage.runs += 1;
            self.add_run(run, place, &mut usage);
        }
        Ok(usage)
    }

    fn add_run(&mut self, run: &LiveRun, place: usize, usage: &mut Usage) {
        for chunk in run.chunks() {
            let Some(pack) = run.index.packs.get(chunk.pack) else { continue };
            let bytes = u64::from(chunk.stored_bytes);
            if self.is_new(pack, chunk.offset, place, bytes) {
                usage.chunks += 1;
                usage.plain_bytes += u64::from(chunk.plain_bytes);
                usage.chunk_bytes += bytes;
                usage.shared_bytes += bytes;
            }
        }
        // Filter and index; the chunks come once more among them, and are not new then.
        for (pack, offset, bytes) in run.pieces() {
            if self.is_new(&pack, offset, place, bytes) {
                usage.shared_bytes += bytes;
            }
        }
    }

    /// Whether this checkpoint names the piece for the first time.
    fn is_new(&mut self, pack: &Arc<str>, offset: u64, place: usize, bytes: u64) -> bool {
        if !self.0.contains_key(pack) {
            self.0.insert(Arc::clone(pack), BTreeMap::new());
        }
        let Some(pieces) = self.0.get_mut(pack) else { return false };
        let Some(piece) = pieces.get_mut(&offset) else {
            pieces.insert(offset, Piece { bytes, first: place, last: place });
            return true;
        };
        let new = piece.last != place;
        piece.last = place;
        new
    }

    /// What only one checkpoint names is its own.
    fn settle(&self, all: &mut [Usage]) {
        let pieces = self.0.values().flat_map(BTreeMap::values);
        for piece in pieces.filter(|piece| piece.first == piece.last) {
            if let Some(usage) = all.get_mut(piece.first) {
                usage.exclusive_bytes += piece.bytes;
                usage.shared_bytes -= piece.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claim, Contents, MemoryStore, Owner};

    /// Publishes checkpoints whose section has these values, and says what each holds.
    fn usages(values: &[&[u8]]) -> Vec<Usage> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let owner = Owner::claim(Arc::clone(&store), Claim::new("usage")).expect("nobody has it");
        for (number, value) in (1..).zip(values) {
            let checkpoint = owner.begin(number, owner.newest()).expect("the next number");
            let mut pack = checkpoint.writer("only").expect("a fine label");
            let mut run = pack.section("s", Contents::All, Vec::new()).expect("a section");
            run.push(b"key", value).expect("an entry");
            run.finish().expect("a run");
            let written = pack.finish().expect("a pack");
            owner.publish(number, vec![written], Vec::new(), 0).expect("it is published");
        }
        usage(&store, JobId::for_name("usage")).expect("all can be read")
    }

    #[test]
    fn what_two_name_is_shared_and_what_one_names_is_its_own() {
        let all = usages(&[b"a", b"a", b"b"]);
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].exclusive_bytes, all[1].exclusive_bytes), (0, 0));
        assert_eq!(all[0].shared_bytes, all[0].full_bytes);
        assert_eq!((all[2].exclusive_bytes, all[2].shared_bytes), (all[2].full_bytes, 0));
        assert_eq!((all[2].runs, all[2].chunks, all[2].packs), (1, 1, 1));
    }

    #[test]
    fn a_checkpoint_taken_by_itself_owns_everything() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let owner = Owner::claim(Arc::clone(&store), Claim::new("usage")).expect("nobody has it");
        owner.begin(1, None).expect("the first number");
        owner.publish(1, Vec::new(), Vec::new(), 0).expect("it is published");
        let snapshot = Snapshot::open(&store, JobId::for_name("usage"), 1).expect("it is there");
        let usage = snapshot.usage().expect("it can be read");
        assert_eq!(usage, Usage { checkpoint: 1, ..Usage::default() });
    }
}
