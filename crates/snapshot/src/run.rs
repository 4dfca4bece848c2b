//! Reading one run: its index, its filter, its chunks; every byte is hashed before it is believed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::block;
use crate::cache::ChunkCache;
use crate::chunk::{ChunkCursor, Flaw, Stop, Stops, Value, VisitValue};
use crate::filter::Filter;
use crate::hash::Hash;
use crate::index::{ChunkRef, RunIndex};
use crate::keep::LocalCache;
use crate::manifest::RunRef;
use crate::plain::Plain;
use crate::ranges::KeyRange;
use crate::store::{Mapped, Store};
use crate::{Error, ErrorKind, Result};

/// Chunks that lie side by side are read together up to this size.
const SPAN_BYTES: u64 = 512 << 10;

/// Where each request has its price.
const REMOTE_SPAN_BYTES: u64 = 8 << 20;

/// Where the packs of a checkpoint are.
#[derive(Debug)]
pub(crate) struct Packs {
    pub(crate) store: Arc<dyn Store>,
    /// The folder of the packs, with `/` at its end unless it is the store's own.
    pub(crate) folder: String,
    /// The manifest that names them: where it is gone, a missing pack is no damage.
    pub(crate) manifest: String,
    /// Packs that have been mapped, if they are to be; `None` for one that can't be.
    pub(crate) maps: Option<Mutex<BTreeMap<String, Option<Mapped>>>>,
    /// What has been read is kept here, and looked for first.
    pub(crate) local: Option<Arc<LocalCache>>,
}

impl Packs {
    /// The same packs, with nothing mapped yet.
    pub(crate) fn again(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            folder: self.folder.clone(),
            manifest: self.manifest.clone(),
            maps: self.maps.as_ref().map(|_| Mutex::default()),
            local: self.local.clone(),
        }
    }

    /// The path of a pack, and its name for people.
    pub(crate) fn pack(&self, name: &str) -> Result<(String, String)> {
        let path = format!("{}{name}", self.folder);
        // One part: a pack's name must not lead to another folder.
        let is_name = !name.contains('/') && crate::store::check_path(&path).is_ok();
        if !is_name {
            let manifest = self.store.describe(&self.manifest);
            return Err(Error::damaged(&manifest, format!("{name:?} is no name of a pack")));
        }
        let object = self.store.describe(&path);
        Ok((path, object))
    }

    /// Reads a part of a pack. A checkpoint that has been deleted meanwhile is not damaged.
    pub(crate) fn read(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        let (path, _) = self.pack(name)?;
        self.store.read(&path, offset, len).map_err(|error| self.explained(error))
    }

    /// The same without a copy where packs are mapped.
    fn piece(&self, name: &str, offset: u64, len: usize) -> Result<Plain> {
        let Some(mapped) = self.mapped(name)? else {
            return self.read(name, offset, len).map(Plain::from);
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(len);
        if end > mapped.len() {
            let what = format!("it has {} bytes, and {end} were expected", mapped.len());
            return Err(self.damaged(name, &what));
        }
        Ok(Plain::from(mapped).slice(start..end))
    }

    fn mapped(&self, name: &str) -> Result<Option<Mapped>> {
        let Some(maps) = &self.maps else {
            return Ok(None);
        };
        if let Some(mapped) = maps.lock().get(name) {
            return Ok(mapped.clone());
        }
        let (path, _) = self.pack(name)?;
        let mapped = self.store.map(&path).map_err(|error| self.explained(error))?;
        maps.lock().insert(name.to_owned(), mapped.clone());
        Ok(mapped)
    }

    fn explained(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::NotFound || !self.is_gone() {
            return error;
        }
        let manifest = self.store.describe(&self.manifest);
        let text = format!("the checkpoint of {manifest} was subsumed while it was being read");
        Error::new(ErrorKind::Subsumed, text).because(error)
    }

    fn is_gone(&self) -> bool {
        let size = self.store.size(&self.manifest);
        size.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    fn damaged(&self, name: &str, what: &str) -> Error {
        match self.pack(name) {
            Ok((_, object)) => Error::damaged(&object, what),
            Err(error) => error,
        }
    }

    pub(crate) fn index(&self, run: &RunRef) -> Result<RunIndex> {
        let (offset, len) = (run.index_offset, run.index_bytes as usize);
        let bytes = self.whole(&run.pack, offset, len, &run.index_hash)?;
        let Some(bytes) = bytes else {
            return Err(self.damaged(&run.pack, "the index of a run does not fit its hash"));
        };
        if let Some(version) = RunIndex::newer_version(&bytes) {
            let (_, object) = self.pack(&run.pack)?;
            let text = format!("{object} needs version {version} of indexes; this build reads 1");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        RunIndex::decode(&bytes)
            .ok_or_else(|| self.damaged(&run.pack, "the index of a run does not fit its layout"))
    }

    /// `None` for a run that has no filter.
    pub(crate) fn filter(&self, index: &RunIndex) -> Result<Option<Filter>> {
        let Some(filter) = &index.filter else {
            return Ok(None);
        };
        let pack = index.pack(filter.pack);
        let bytes = self.whole(pack, filter.offset, filter.bytes as usize, &filter.hash)?;
        let Some(bytes) = bytes else {
            return Err(self.damaged(pack, "the filter of a run does not fit its hash"));
        };
        let filter = Filter::decode(bytes.to_vec());
        filter
            .map(Some)
            .ok_or_else(|| self.damaged(pack, "the filter of a run does not fit its layout"))
    }

    /// A piece that is hashed as it is stored: `None` if it doesn't fit its hash.
    fn whole(&self, pack: &str, offset: u64, len: usize, hash: &Hash) -> Result<Option<Plain>> {
        if let Some(local) = &self.local
            && let Some(kept) = local.get(hash)
        {
            if Hash::of(&kept) == *hash {
                return Ok(Some(Plain::from(kept)));
            }
            local.forget(hash);
        }
        let bytes = self.piece(pack, offset, len)?;
        if Hash::of(&bytes) != *hash {
            return Ok(None);
        }
        if let Some(local) = &self.local {
            local.put(hash, &bytes);
        }
        Ok(Some(bytes))
    }

    /// The plain bytes of a chunk.
    pub(crate) fn chunk(&self, index: &RunIndex, chunk: &ChunkRef) -> Result<Plain> {
        if let Some(plain) = self.kept(chunk) {
            return Ok(plain);
        }
        let pack = index.pack(chunk.pack);
        let stored = self.piece(pack, chunk.offset, chunk.stored_bytes as usize)?;
        self.verified(pack, &stored, chunk)
    }

    /// The plain bytes of a chunk that has been read before.
    fn kept(&self, chunk: &ChunkRef) -> Option<Plain> {
        let local = self.local.as_ref()?;
        let stored = Plain::from(local.get(&chunk.hash)?);
        let plain = block::plain(&stored, chunk.plain_bytes as usize, &chunk.hash);
        if plain.is_err() {
            local.forget(&chunk.hash);
        }
        plain.ok()
    }

    /// Whether a chunk need not be read from its pack.
    fn is_kept(&self, chunk: &ChunkRef) -> bool {
        self.local.as_ref().is_some_and(|local| local.has(&chunk.hash))
    }

    fn verified(&self, pack: &str, stored: &Plain, chunk: &ChunkRef) -> Result<Plain> {
        let plain = block::plain(stored, chunk.plain_bytes as usize, &chunk.hash)
            .map_err(|flaw| self.damaged(pack, flaw))?;
        if let Some(local) = &self.local {
            local.put(&chunk.hash, stored);
        }
        Ok(plain)
    }

    fn span_bytes(&self) -> u64 {
        if self.store.local_root().is_some() { SPAN_BYTES } else { REMOTE_SPAN_BYTES }
    }
}

/// A run of a checkpoint; its index and its filter are read when they are needed, and kept.
#[derive(Debug)]
pub(crate) struct OpenRun {
    packs: Arc<Packs>,
    pub(crate) run: RunRef,
    index: OnceLock<Arc<RunIndex>>,
    filter: OnceLock<Option<Filter>>,
}

impl OpenRun {
    pub(crate) fn new(packs: Arc<Packs>, run: RunRef) -> Self {
        Self { packs, run, index: OnceLock::new(), filter: OnceLock::new() }
    }

    /// The same where the index is known.
    pub(crate) fn with_index(packs: Arc<Packs>, run: RunRef, index: Arc<RunIndex>) -> Self {
        Self { packs, run, index: OnceLock::from(index), filter: OnceLock::new() }
    }

    pub(crate) fn index(&self) -> Result<Arc<RunIndex>> {
        if let Some(index) = self.index.get() {
            return Ok(Arc::clone(index));
        }
        let index = Arc::new(self.packs.index(&self.run)?);
        // Somebody else may have been faster: both have read the same.
        Ok(Arc::clone(self.index.get_or_init(|| index)))
    }

    pub(crate) fn cursor(&self, range: KeyRange) -> Result<RunCursor> {
        Ok(RunCursor::new(Arc::clone(&self.packs), self.index()?, range))
    }

    /// False only if the run surely doesn't hold the key.
    fn may_hold(&self, index: &RunIndex, print: u64) -> Result<bool> {
        let filter = match self.filter.get() {
            Some(filter) => filter,
            None => {
                let filter = self.packs.filter(index)?;
                self.filter.get_or_init(|| filter)
            }
        };
        Ok(filter.as_ref().is_none_or(|filter| filter.may_hold(print)))
    }

    /// What the run says of a key, if it says anything. The chunk comes from the cache if it can.
    pub(crate) fn get(&self, key: &[u8], print: u64, cache: &ChunkCache) -> Result<Option<Found>> {
        let index = self.index()?;
        let Some(chunk) = index.chunks.get(index.chunk_for(key)) else {
            return Ok(None);
        };
        if &chunk.first_key[..] > key || !self.may_hold(&index, print)? {
            return Ok(None);
        }
        let Some(pack) = index.packs.get(chunk.pack) else {
            return Ok(None);
        };
        let plain = match cache.get(pack, chunk.offset) {
            Some(plain) => plain,
            None => {
                let plain = self.packs.chunk(&index, chunk)?;
                cache.put(pack, chunk.offset, &plain);
                plain
            }
        };
        let flawed = |flaw| self.packs.damaged(pack, flaw);
        let mut cursor = ChunkCursor::default();
        cursor.begin(plain).map_err(flawed)?;
        let found = cursor.seek(key).map_err(flawed)? && cursor.key() == key;
        Ok(found.then(|| match cursor.value() {
            Value::Put(value) => Found::Value(value.to_vec()),
            Value::Tombstone => Found::Tombstone,
        }))
    }
}

/// What a run says of a key.
pub(crate) enum Found {
    Value(Vec<u8>),
    Tombstone,
}

/// Goes through the entries of one run within one range of keys.
#[derive(Debug)]
pub(crate) struct RunCursor {
    packs: Arc<Packs>,
    index: Arc<RunIndex>,
    range: KeyRange,
    next_chunk: usize,
    /// The chunk at hand may reach beyond the range.
    is_last: bool,
    chunk: ChunkCursor,
    span: Span,
}

/// A part of a pack that has been read ahead.
#[derive(Debug, Default)]
struct Span {
    stored: Plain,
    pack: usize,
    offset: u64,
}

impl RunCursor {
    /// Before the first entry of the range.
    pub(crate) fn new(packs: Arc<Packs>, index: Arc<RunIndex>, range: KeyRange) -> Self {
        let next_chunk = index.chunk_for(range.first());
        let (chunk, span) = (ChunkCursor::default(), Span::default());
        Self { packs, index, range, next_chunk, is_last: false, chunk, span }
    }

    /// Goes to the first entry; false if there is none.
    pub(crate) fn first(&mut self) -> Result<bool> {
        if !self.load()? {
            return Ok(false);
        }
        let range = self.range.clone();
        let found = self.chunk.seek(range.first()).map_err(|flaw| self.flaw(flaw))?;
        if found { Ok(!self.is_past()) } else { self.next() }
    }

    /// Goes to the next entry; false at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool> {
        loop {
            match self.chunk.next() {
                Ok(true) => return Ok(!self.is_past()),
                Ok(false) => {}
                Err(flaw) => return Err(self.flaw(flaw)),
            }
            if self.is_last || !self.load()? {
                return Ok(false);
            }
        }
    }

    /// Visits the entry at hand, and those behind it that are below `until`: `Continue` at the end of
    /// the range, `Break` with a reason before it.
    pub(crate) fn visit(
        &mut self,
        until: Option<&[u8]>,
        visit: &mut VisitValue<'_>,
    ) -> Result<ControlFlow<Stop>> {
        loop {
            // Most chunks end below what bounds the visit, and no key of them is compared with it.
            let after = self.index.chunks.get(self.next_chunk);
            let is_reached = |key: &[u8]| until.is_some_and(|until| until <= key);
            let is_free = !self.is_last && after.is_some_and(|next| !is_reached(&next.first_key));
            let (is_last, range) = (self.is_last, &self.range);
            let stops = |key: &[u8]| is_reached(key) || (is_last && range.ends_by(key));
            let stops: Option<&Stops<'_>> = if is_free { None } else { Some(&stops) };
            match self.chunk.visit(stops, visit) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(Stop::Key)) if self.is_past() => break,
                Ok(stopped) => return Ok(stopped),
                Err(flaw) => return Err(self.flaw(flaw)),
            }
            if !self.next()? {
                break;
            }
            if is_reached(self.chunk.key()) {
                return Ok(ControlFlow::Break(Stop::Key));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.chunk.key()
    }

    #[inline]
    pub(crate) fn value(&self) -> Value<'_> {
        self.chunk.value()
    }

    #[inline]
    fn is_past(&self) -> bool {
        self.is_last && self.range.ends_by(self.chunk.key())
    }

    fn flaw(&self, flaw: Flaw) -> Error {
        let chunk = self.index.chunks.get(self.next_chunk.saturating_sub(1));
        let pack = chunk.map_or("", |chunk| self.index.pack(chunk.pack));
        self.packs.damaged(pack, flaw)
    }

    /// Begins the next chunk; false if none is left in the range.
    fn load(&mut self) -> Result<bool> {
        let index = Arc::clone(&self.index);
        let Some(chunk) = index.chunks.get(self.next_chunk) else {
            return Ok(false);
        };
        if self.range.ends_by(&chunk.first_key) {
            return Ok(false);
        }
        let plain = match self.packs.kept(chunk) {
            Some(plain) => plain,
            None => self.read_chunk(chunk)?,
        };
        self.next_chunk += 1;
        let after = index.chunks.get(self.next_chunk);
        self.is_last = after.is_none_or(|after| self.range.ends_by(&after.first_key));
        self.chunk.begin(plain).map_err(|flaw| self.flaw(flaw))?;
        Ok(true)
    }

    /// The next chunk, with those behind it if it must be read.
    fn read_chunk(&mut self, chunk: &ChunkRef) -> Result<Plain> {
        if !self.span.holds(chunk) {
            self.span = self.read_span(chunk)?;
        }
        let stored = self.span.chunk(chunk);
        self.packs.verified(self.index.pack(chunk.pack), &stored, chunk)
    }

    /// Reads the next chunk and those behind it that lie side by side in its pack.
    fn read_span(&self, first: &ChunkRef) -> Result<Span> {
        let mut end = first.offset.saturating_add(u64::from(first.stored_bytes));
        let limit = first.offset.saturating_add(self.packs.span_bytes());
        let behind = self.index.chunks.get(self.next_chunk + 1..).unwrap_or_default();
        for chunk in behind {
            let chunk_end = end.saturating_add(u64::from(chunk.stored_bytes));
            let adjoins = chunk.pack == first.pack && chunk.offset == end && chunk_end <= limit;
            if !adjoins || self.range.ends_by(&chunk.first_key) || self.packs.is_kept(chunk) {
                break;
            }
            end = chunk_end;
        }
        let len = usize::try_from(end - first.offset).unwrap_or(usize::MAX);
        let stored = self.packs.piece(self.index.pack(first.pack), first.offset, len)?;
        Ok(Span { stored, pack: first.pack, offset: first.offset })
    }
}

impl Span {
    fn holds(&self, chunk: &ChunkRef) -> bool {
        let end = self.offset + self.stored.len() as u64;
        let chunk_end = chunk.offset.saturating_add(u64::from(chunk.stored_bytes));
        self.pack == chunk.pack && chunk.offset >= self.offset && chunk_end <= end
    }

    fn chunk(&self, chunk: &ChunkRef) -> Plain {
        let start = usize::try_from(chunk.offset - self.offset).unwrap_or(usize::MAX);
        self.stored.slice(start..start.saturating_add(chunk.stored_bytes as usize))
    }
}
