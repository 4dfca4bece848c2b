//! Reading a checkpoint: every byte is hashed before it is believed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::bytes::Cursor;
use crate::chunk::{self, Value};
use crate::hash::Hash;
use crate::index::{ChunkRef, RunIndex};
use crate::job::JobId;
use crate::manifest::{self, Manifest, RunRef, Section};
use crate::names;
use crate::pack::COMPRESSION_NONE;
use crate::store::Store;
use crate::{Error, Result};

/// A published checkpoint, opened for reading.
#[derive(Clone, Debug)]
pub struct Snapshot {
    store: Arc<dyn Store>,
    job: JobId,
    manifest: Manifest,
}

/// Takes one entry; `Break` ends the visit.
pub type VisitEntry<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

impl Snapshot {
    /// Opens a checkpoint: reads its manifest and nothing else.
    ///
    /// # Errors
    /// `NotFound`, `Damaged`, or `Unsupported`; the text names the manifest.
    pub fn open(store: &Arc<dyn Store>, job: JobId, checkpoint: u64) -> Result<Self> {
        let path = names::manifest(job, checkpoint);
        let object = store.describe(&path);
        let bytes = store.size(&path)?;
        if bytes > manifest::MAX_BYTES {
            return Err(Error::damaged(
                &object,
                format!("it has {bytes} bytes, more than any manifest"),
            ));
        }
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let manifest = Manifest::decode(&store.read(&path, 0, len)?, &object)?;
        if manifest.job_id != job || manifest.checkpoint != checkpoint {
            let what = format!(
                "it is the manifest of checkpoint {} of job {}",
                manifest.checkpoint, manifest.job_id
            );
            return Err(Error::damaged(&object, what));
        }
        Ok(Self { store: Arc::clone(store), job, manifest })
    }

    /// What the checkpoint is made of.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What the job has to say of it.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        self.manifest.metadata()
    }

    /// The names of all sections that have entries.
    #[must_use]
    pub fn sections(&self) -> Vec<&str> {
        let full = self.manifest.sections.iter().filter(|section| !section.runs.is_empty());
        full.map(|section| section.name.as_str()).collect()
    }

    /// Visits the entries of a section in ascending order of their keys. A section that isn't there
    /// has none.
    ///
    /// # Errors
    /// `Damaged` or `NotFound`, naming the object; entries before it have been visited.
    pub fn visit(&self, section: &str, visit: &mut VisitEntry<'_>) -> Result<()> {
        self.visit_range(section, &[], None, visit)
    }

    /// The same for the keys from `first` on, before `after`. Reads only chunks that can hold such
    /// keys.
    ///
    /// # Errors
    /// As [`Snapshot::visit`].
    pub fn visit_range(
        &self,
        section: &str,
        first: &[u8],
        after: Option<&[u8]>,
        visit: &mut VisitEntry<'_>,
    ) -> Result<()> {
        let wanted = self.manifest.sections.iter().find(|of| of.name == section);
        let runs = wanted.map_or(&[][..], |section| &section.runs);
        let mut runs: Vec<&RunRef> =
            runs.iter().filter(|run| overlaps(run, first, after)).collect();
        runs.sort_by(|a, b| a.first_key().cmp(b.first_key()));
        let range = Range { first, after };
        let apart = runs.windows(2).all(|pair| match pair {
            [a, b] => a.last_key() < b.first_key(),
            _ => true,
        });
        if apart { self.one_by_one(&runs, range, visit) } else { self.merged(&runs, range, visit) }
    }

    /// Runs that don't overlap: one after the other.
    fn one_by_one(
        &self,
        runs: &[&RunRef],
        range: Range<'_>,
        visit: &mut VisitEntry<'_>,
    ) -> Result<()> {
        for run in runs {
            if Entries::open(self, run, range)?.visit(visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Runs that do: always the smallest key of all.
    fn merged(&self, runs: &[&RunRef], range: Range<'_>, visit: &mut VisitEntry<'_>) -> Result<()> {
        let mut open = Vec::new();
        let mut heads = BinaryHeap::new();
        for (index, run) in runs.iter().enumerate() {
            let mut entries = Entries::open(self, run, range)?;
            if entries.next()? {
                heads.push(Reverse((entries.key.clone(), index)));
            }
            open.push(entries);
        }
        let mut before: Option<Vec<u8>> = None;
        while let Some(Reverse((key, index))) = heads.pop() {
            let Some(entries) = open.get_mut(index) else { continue };
            if before.as_ref() == Some(&key) {
                return Err(Error::damaged(&entries.object, "a key is in two runs of one section"));
            }
            if visit(&key, &entries.value).is_break() {
                return Ok(());
            }
            if entries.next()? {
                heads.push(Reverse((entries.key.clone(), index)));
            }
            before = Some(key);
        }
        Ok(())
    }

    /// The full name of a pack.
    pub(crate) fn pack(&self, name: &str) -> Result<(String, String)> {
        let path = names::pack(self.job, name);
        crate::store::check_path(&path)?;
        // One part: a pack's name must not lead to another folder.
        if name.contains('/') {
            return Err(Error::invalid(format!("{name:?} is no name of a pack")));
        }
        let object = self.store.describe(&path);
        Ok((path, object))
    }

    pub(crate) fn index(&self, run: &RunRef) -> Result<RunIndex> {
        let (path, object) = self.pack(&run.pack)?;
        let bytes = self.store.read(&path, run.index_offset, run.index_bytes as usize)?;
        if Hash::of(&bytes) != run.index_hash {
            return Err(Error::damaged(&object, "the index of a run does not fit its hash"));
        }
        RunIndex::decode(&bytes)
            .ok_or_else(|| Error::damaged(&object, "the index of a run does not fit its layout"))
    }

    /// The plain bytes of a chunk, verified; and the name of its pack.
    pub(crate) fn chunk(&self, index: &RunIndex, chunk: &ChunkRef) -> Result<(Vec<u8>, String)> {
        let name = index.packs.get(chunk.pack).map_or("", String::as_str);
        let (path, object) = self.pack(name)?;
        let mut bytes = self.store.read(&path, chunk.offset, chunk.stored_bytes as usize)?;
        let damaged = |what: &str| Error::damaged(&object, what);
        match bytes.first() {
            Some(&COMPRESSION_NONE) => {}
            Some(_) => return Err(damaged("a chunk is compressed in a way that is not known")),
            None => return Err(damaged("a chunk is empty")),
        }
        bytes.remove(0);
        if bytes.len() != chunk.plain_bytes as usize || Hash::of(&bytes) != chunk.hash {
            return Err(damaged("a chunk does not fit its hash"));
        }
        Ok((bytes, object))
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn all_sections(&self) -> &[Section] {
        &self.manifest.sections
    }
}

/// Keys from `first` on, before `after`.
#[derive(Clone, Copy)]
struct Range<'a> {
    first: &'a [u8],
    after: Option<&'a [u8]>,
}

impl Range<'_> {
    fn is_past(self, key: &[u8]) -> bool {
        self.after.is_some_and(|after| key >= after)
    }
}

fn overlaps(run: &RunRef, first: &[u8], after: Option<&[u8]>) -> bool {
    run.last_key() >= first && after.is_none_or(|after| run.first_key() < after)
}

/// The entries of one run, chunk by chunk.
struct Entries<'a> {
    snapshot: &'a Snapshot,
    range: Range<'a>,
    index: RunIndex,
    next_chunk: usize,
    chunk: Vec<u8>,
    /// Where the next entry begins in the chunk.
    at: usize,
    /// Entries of the chunk that are still to come.
    left: u32,
    object: String,
    key: Vec<u8>,
    value: Vec<u8>,
    begun: bool,
}

impl<'a> Entries<'a> {
    fn open(snapshot: &'a Snapshot, run: &RunRef, range: Range<'a>) -> Result<Self> {
        let index = snapshot.index(run)?;
        // The last chunk that begins at or below the range may reach into it.
        let below = index.chunks.partition_point(|chunk| &chunk.first_key[..] <= range.first);
        Ok(Self {
            snapshot,
            range,
            next_chunk: below.saturating_sub(1),
            index,
            chunk: Vec::new(),
            at: 0,
            left: 0,
            object: String::new(),
            key: Vec::new(),
            value: Vec::new(),
            begun: false,
        })
    }

    /// Visits all that is left.
    fn visit(&mut self, visit: &mut VisitEntry<'_>) -> Result<ControlFlow<()>> {
        while self.next()? {
            if visit(&self.key, &self.value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Goes to the next entry of the range; false at its end.
    fn next(&mut self) -> Result<bool> {
        loop {
            if self.left == 0 && !self.load()? {
                return Ok(false);
            }
            let put = self.take()?;
            if self.range.is_past(&self.key) {
                return Ok(false);
            }
            if put && &self.key[..] >= self.range.first {
                return Ok(true);
            }
        }
    }

    /// Reads the next chunk; false if there is none.
    fn load(&mut self) -> Result<bool> {
        let Some(chunk) = self.index.chunks.get(self.next_chunk) else {
            return Ok(false);
        };
        if self.range.is_past(&chunk.first_key) {
            return Ok(false);
        }
        let (bytes, object) = self.snapshot.chunk(&self.index, chunk)?;
        self.left = chunk.entries;
        (self.chunk, self.object, self.at) = (bytes, object, 0);
        self.next_chunk += 1;
        Ok(self.left > 0)
    }

    /// Takes the entry at hand; whether it is a value.
    fn take(&mut self) -> Result<bool> {
        let rest = self.chunk.get(self.at..).unwrap_or_default();
        let mut cursor = Cursor::new(rest);
        let damaged = |what: &str| Error::damaged(&self.object, what);
        let (key, value) = chunk::take_entry(&mut cursor)
            .ok_or_else(|| damaged("a chunk has fewer entries than its index says"))?;
        if self.begun && key <= &self.key[..] {
            return Err(damaged("the entries of a run are not in ascending order"));
        }
        self.at += chunk::entry_bytes(key, value);
        self.left -= 1;
        if self.left == 0 && !cursor.is_empty() {
            return Err(damaged("a chunk has more bytes than its entries"));
        }
        self.begun = true;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        match value {
            Value::Put(value) => self.value.extend_from_slice(value),
            Value::Tombstone => return Ok(false),
        }
        Ok(true)
    }
}
