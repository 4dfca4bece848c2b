//! Reading a checkpoint: every byte is hashed before it is believed.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cache::ChunkCache;
use crate::chunk::{Value, VisitValue};
use crate::filter;
use crate::job::JobId;
use crate::keep::LocalCache;
use crate::manifest::{self, Manifest, Section};
use crate::names;
use crate::ranges::{KeyRange, hold, overlapping};
use crate::run::{Found, OpenRun, Packs};
use crate::scan::{Scan, Slice};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// Verified chunks that an opened checkpoint keeps, unless it is told otherwise.
const CACHE_BYTES: usize = 64 << 20;

/// A published checkpoint or a savepoint, opened for reading. Clones share what has been read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    packs: Arc<Packs>,
    manifest: Arc<Manifest>,
    /// For each section its runs, the oldest first.
    runs: Arc<Vec<Vec<Arc<OpenRun>>>>,
    cache: Arc<ChunkCache>,
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
        let manifest = read_manifest(store, &path)?;
        if manifest.job_id != job || manifest.checkpoint != checkpoint {
            let what = format!(
                "it is the manifest of checkpoint {} of job {}",
                manifest.checkpoint, manifest.job_id
            );
            return Err(Error::damaged(&store.describe(&path), what));
        }
        Ok(Self::new(store, names::packs(job), path, manifest))
    }

    /// Opens the savepoint whose folder is `folder` of this store; with `""` the store itself is the
    /// folder.
    ///
    /// # Errors
    /// As [`Snapshot::open`].
    pub fn open_savepoint(store: &Arc<dyn Store>, folder: &str) -> Result<Self> {
        let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let path = format!("{folder}{}", names::MANIFEST);
        let manifest = read_manifest(store, &path)?;
        Ok(Self::new(store, folder, path, manifest))
    }

    fn new(store: &Arc<dyn Store>, folder: String, path: String, manifest: Manifest) -> Self {
        let store = Arc::clone(store);
        let packs = Packs { store, folder, manifest: path, maps: None, local: None };
        Self::of_packs(packs, Arc::new(manifest))
    }

    /// The same, reading packs through memory maps where the store can: without copies. For files
    /// that nobody else may cut short: one that is cut short in use ends the process (SIGBUS), where
    /// otherwise there would be an error that names it.
    #[must_use]
    pub fn mapped(self) -> Self {
        let packs = Packs { maps: Some(Mutex::default()), ..self.packs.again() };
        Self { cache: self.cache, ..Self::of_packs(packs, self.manifest) }
    }

    /// The same, keeping what is read in a local folder and looking there first: for a checkpoint
    /// that is far away and read more than once. Bytes from there are verified like any others. A
    /// store that is a folder itself is read as before.
    #[must_use]
    pub fn with_local_cache(self, local: Arc<LocalCache>) -> Self {
        if self.packs.store.local_root().is_some() {
            return self;
        }
        let packs = Packs { local: Some(local), ..self.packs.again() };
        Self { cache: self.cache, ..Self::of_packs(packs, self.manifest) }
    }

    fn of_packs(packs: Packs, manifest: Arc<Manifest>) -> Self {
        let packs = Arc::new(packs);
        let open = |section: &Section| {
            let runs = section.runs.iter();
            runs.map(|run| Arc::new(OpenRun::new(Arc::clone(&packs), run.clone()))).collect()
        };
        let runs = Arc::new(manifest.sections.iter().map(open).collect());
        let cache = Arc::new(ChunkCache::new(CACHE_BYTES));
        Self { packs, manifest, runs, cache }
    }

    /// The same with room for this many bytes of verified chunks, for [`get`](Self::get).
    #[must_use]
    pub fn with_cache_bytes(self, bytes: usize) -> Self {
        Self { cache: Arc::new(ChunkCache::new(bytes)), ..self }
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

    /// The names of all sections that have runs. (All keys of one may be deleted.)
    #[must_use]
    pub fn sections(&self) -> Vec<&str> {
        let full = self.manifest.sections.iter().filter(|section| !section.runs.is_empty());
        full.map(|section| section.name.as_str()).collect()
    }

    /// The value of a key, if it has one. Reads what it needs and no more: at most the index and the
    /// filter of each run that speaks for the key, once, and few chunks.
    ///
    /// # Errors
    /// `Damaged` or `NotFound`, naming the object; `Subsumed` if the checkpoint has been deleted.
    pub fn get(&self, section: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let print = filter::print(key);
        for run in self.runs(section).iter().rev() {
            if !hold(&run.run.ranges, key) {
                continue;
            }
            match run.get(key, print, &self.cache)? {
                Some(Found::Value(value)) => return Ok(Some(value)),
                Some(Found::Tombstone) => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }

    /// Visits the entries of a section in ascending order of their keys. A section that isn't there
    /// has none.
    ///
    /// # Errors
    /// `Damaged` or `NotFound`, naming the object; `Subsumed` if the checkpoint has been deleted.
    /// Entries before it have been visited.
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
        let range = KeyRange::new(first, after);
        self.visit_values(section, &range, &mut |key, value| match value {
            Value::Put(value) => visit(key, value),
            Value::Tombstone => ControlFlow::Continue(()),
        })
    }

    /// The newest word on every key, tombstones too.
    pub(crate) fn visit_values(
        &self,
        section: &str,
        range: &KeyRange,
        visit: &mut VisitValue<'_>,
    ) -> Result<()> {
        Scan::new(slices(self.runs(section), range)).visit(visit).map(drop)
    }

    pub(crate) fn runs(&self, section: &str) -> &[Arc<OpenRun>] {
        let sections = self.manifest.sections.iter().zip(self.runs.iter());
        let found = sections.into_iter().find(|(of, _)| of.name == section);
        found.map_or(&[], |(_, runs)| runs)
    }

    pub(crate) fn packs(&self) -> &Arc<Packs> {
        &self.packs
    }

    pub(crate) fn all_sections(&self) -> &[Section] {
        &self.manifest.sections
    }

    /// How people know the manifest.
    pub(crate) fn object(&self) -> String {
        self.packs.store.describe(&self.packs.manifest)
    }
}

/// What of these runs, the oldest first, speaks for a range.
pub(crate) fn slices(runs: &[Arc<OpenRun>], range: &KeyRange) -> Vec<Slice> {
    let mut slices = Vec::new();
    for (age, run) in runs.iter().enumerate() {
        let common = overlapping(&run.run.ranges, range).iter().filter_map(|of| of.common(range));
        slices.extend(common.map(|range| Slice { age, range, run: Arc::clone(run) }));
    }
    slices
}

fn read_manifest(store: &Arc<dyn Store>, path: &str) -> Result<Manifest> {
    let object = store.describe(path);
    let bytes = store.size(path)?;
    if bytes > manifest::MAX_BYTES {
        let what = format!("it has {bytes} bytes, more than any manifest");
        return Err(Error::damaged(&object, what));
    }
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let bytes = store.read(path, 0, len)?;
    if manifest::is_void(&bytes) {
        let text = format!("{object} says that its checkpoint was given up");
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    Manifest::decode(&bytes, &object)
}
