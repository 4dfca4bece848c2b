//! Packs: what one writer adds to storage for one checkpoint: chunks that are new, and filter and
//! index of each of its runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block::Compressor;
use crate::chunk::{self, ChunkWriter, Cut, Value};
use crate::hash::{Blob, Hash};
use crate::index::{ChunkRef, FilterRef, RunIndex};
use crate::manifest::RunRef;
use crate::ranges::KeyRange;
use crate::store::{Store, Upload};
use crate::{Compression, Error, Result, filter};

/// Magic and version.
pub(crate) const PACK_HEADER: [u8; 6] = *b"SLPK\x01\x00";

/// Bytes are handed to storage in pieces of about this size.
const WRITE_BYTES: usize = 1 << 19;

/// Where a chunk with known content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pack: Arc<str>,
    pub(crate) offset: u64,
    pub(crate) stored_bytes: u32,
    pub(crate) plain_bytes: u32,
}

/// What is there already and may be named again: chunks, filters and indexes by their hash.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) chunks: BTreeMap<Hash, Place>,
    pub(crate) others: BTreeMap<Hash, Place>,
}

/// What a writer's entries of a section are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// All that the writer's part of the section has.
    All,
    /// What has changed since the base: entries put, and keys deleted.
    Changed,
}

/// A run, and where its chunks are.
#[derive(Clone, Debug)]
pub(crate) struct LiveRun {
    pub(crate) run: RunRef,
    pub(crate) index: Arc<RunIndex>,
}

/// A section as one writer has written it.
#[derive(Debug)]
pub(crate) struct WrittenSection {
    pub(crate) name: String,
    pub(crate) contents: Contents,
    pub(crate) runs: Vec<LiveRun>,
}

/// What a merge makes of the base's runs. Runs are known by their place in their section there.
#[derive(Debug)]
pub(crate) enum Change {
    /// Within the range, what these runs say is said by others.
    Replace { section: String, range: KeyRange, runs: Vec<usize>, by: Vec<LiveRun> },
    /// Within the range, whatever the base says is said by others.
    Rewrite { section: String, range: KeyRange, by: Vec<LiveRun> },
    /// The run is elsewhere now.
    Move { section: String, run: usize, to: LiveRun },
}

/// What a writer has added, to be named by a manifest.
#[derive(Debug, Default)]
pub struct Written {
    /// What it was written for; 0 if for no checkpoint.
    pub(crate) checkpoint: u64,
    pub(crate) sections: Vec<WrittenSection>,
    pub(crate) changes: Vec<Change>,
    /// The pack, if it has a byte.
    pub(crate) pack: Option<Arc<str>>,
    /// Bytes added to storage.
    pub written_bytes: u64,
    /// Chunks of all runs.
    pub chunks: u64,
    /// Those of them that were there already.
    pub reused_chunks: u64,
}

impl Written {
    /// Bytes that a reader of these runs reads at most.
    #[must_use]
    pub fn full_bytes(&self) -> u64 {
        let runs = self.sections.iter().flat_map(|section| &section.runs);
        runs.map(|live| live.run.full_bytes).sum()
    }
}

/// Gives what is known of a section's chunks.
pub(crate) type LookUp = dyn Fn(&str) -> Arc<Known> + Send;

/// Writes the runs of one subtask for one checkpoint.
pub struct PackWriter {
    store: Arc<dyn Store>,
    /// The full path.
    path: String,
    name: Arc<str>,
    look_up: Box<LookUp>,
    /// Chunks that this pack has added.
    own: BTreeMap<Hash, Place>,
    compressor: Compressor,
    /// `None` until the first byte: a pack without a byte is never made.
    upload: Option<Box<dyn Upload>>,
    /// Bytes that have not been handed to storage yet; those of the chunk in the making are the last.
    buffer: Vec<u8>,
    /// Bytes of the pack before the buffer's.
    flushed: u64,
    written: Written,
}

impl std::fmt::Debug for PackWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackWriter").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PackWriter {
    /// A writer of the pack at `path`, whose last part is its name.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        path: String,
        compression: Compression,
        look_up: Box<LookUp>,
    ) -> Self {
        let name = path.rsplit_once('/').map_or(&path[..], |(_, name)| name).into();
        Self {
            store,
            path,
            name,
            look_up,
            own: BTreeMap::new(),
            compressor: Compressor::new(compression),
            upload: None,
            buffer: Vec::new(),
            flushed: 0,
            written: Written::default(),
        }
    }

    /// Begins a section: one run, or several where it is long. `metadata` goes into the manifest
    /// with each.
    ///
    /// Every section that a checkpoint is to have must be begun by some writer, even if nothing in
    /// it has changed; and all writers of a section must say the same of its contents.
    ///
    /// # Errors
    /// The name is empty or longer than 1,024 bytes.
    pub fn section(
        &mut self,
        name: &str,
        contents: Contents,
        metadata: Vec<u8>,
    ) -> Result<RunWriter<'_>> {
        if name.is_empty() || name.len() > 1024 {
            return Err(Error::invalid(format!("a section's name has 1 to 1,024 bytes: {name:?}")));
        }
        let known = (self.look_up)(name);
        let merged = u32::from(contents == Contents::Changed);
        let section = WrittenSection { name: name.to_owned(), contents, runs: Vec::new() };
        let [phase, ..] = Hash::of(self.name.as_bytes()).0;
        let phase = (contents == Contents::All).then_some(phase);
        Ok(RunWriter { phase, ..RunWriter::new(self, section, known, merged, metadata) })
    }

    /// Begins a part of a section that is written in full although the rest of it is written as
    /// changes: all entries that there are in the range now. This is how what
    /// [`verify`](crate::verify) has found damaged is made good from live state. The section must be
    /// begun by [`section`](Self::section) too.
    ///
    /// # Errors
    /// The name is empty or longer than 1,024 bytes.
    pub fn rewrite(
        &mut self,
        name: &str,
        range: KeyRange,
        metadata: Vec<u8>,
    ) -> Result<RunWriter<'_>> {
        let mut writer = self.section(name, Contents::All, metadata)?;
        // Nothing that is there already is trusted here.
        writer.known = Arc::default();
        writer.part = Some(range);
        Ok(writer)
    }

    /// The same for runs that are merged from others.
    pub(crate) fn merge(
        &mut self,
        name: &str,
        merged: u32,
        metadata: Vec<u8>,
        known: Arc<Known>,
    ) -> RunWriter<'_> {
        let section =
            WrittenSection { name: name.to_owned(), contents: Contents::All, runs: Vec::new() };
        RunWriter::new(self, section, known, merged, metadata)
    }

    /// Says which checkpoint it is for: it can't be published as another.
    pub(crate) fn for_checkpoint(mut self, checkpoint: u64) -> Self {
        self.written.checkpoint = checkpoint;
        self
    }

    pub(crate) fn change(&mut self, change: Change) {
        self.written.changes.push(change);
    }

    /// Makes the pack durable.
    ///
    /// # Errors
    /// Storage fails: then nothing of it may be named by a manifest.
    pub fn finish(mut self) -> Result<Written> {
        self.flush()?;
        if let Some(upload) = self.upload.take() {
            self.written.written_bytes = upload.finish()?;
            self.written.pack = Some(Arc::clone(&self.name));
        }
        Ok(self.written)
    }

    /// Where the next byte of the buffer will be in it.
    fn begin_piece(&mut self) -> usize {
        if self.flushed == 0 && self.buffer.is_empty() {
            self.buffer.reserve(WRITE_BYTES + 2 * chunk::MAX_BYTES);
            self.buffer.extend_from_slice(&PACK_HEADER);
        }
        self.buffer.len()
    }

    /// Takes back what the piece begun there has added.
    fn drop_piece(&mut self, start: usize) {
        // Nothing but a header is no pack.
        let header_only = self.flushed == 0 && start == PACK_HEADER.len();
        self.buffer.truncate(if header_only { 0 } else { start });
    }

    fn keep_piece(&mut self, start: usize) -> Result<Place> {
        let offset = self.flushed + start as u64;
        let stored_bytes = u32::try_from(self.buffer.len() - start)
            .map_err(|_| Error::invalid("a piece of a pack is too large"))?;
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        let pack = Arc::clone(&self.name);
        Ok(Place { pack, offset, stored_bytes, plain_bytes: stored_bytes })
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let upload = match &mut self.upload {
            Some(upload) => upload,
            None => self.upload.insert(self.store.put(&self.path)?),
        };
        upload.write(&self.buffer)?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        // One very large chunk must not be paid for ever after.
        self.buffer.shrink_to(4 * WRITE_BYTES);
        Ok(())
    }

    /// Ends the chunk whose plain bytes begin behind `start`: where it is already, or where it is
    /// put now.
    fn place_chunk(&mut self, start: usize, known: &Known) -> Result<(Hash, Place)> {
        let plain = self.buffer.get(start + 1..).unwrap_or_default();
        let plain_bytes = u32::try_from(plain.len())
            .map_err(|_| Error::invalid("an entry is too large for a chunk"))?;
        let hash = Hash::of(plain);
        self.written.chunks += 1;
        if let Some(place) = self.own.get(&hash).or_else(|| known.chunks.get(&hash)) {
            let place = place.clone();
            if place.plain_bytes != plain_bytes {
                let text = format!("two contents have the name {hash}: one is in {}", place.pack);
                return Err(Error::damaged(&self.store.describe(&self.path), text));
            }
            self.written.reused_chunks += 1;
            self.drop_piece(start);
            return Ok((hash, place));
        }
        self.compressor.store(&mut self.buffer, start)?;
        let place = Place { plain_bytes, ..self.keep_piece(start)? };
        self.own.insert(hash, place.clone());
        Ok((hash, place))
    }

    /// Appends the stored form of a chunk as it was elsewhere.
    pub(crate) fn copy_chunk(&mut self, stored: &[u8], plain_bytes: u32) -> Result<Place> {
        let start = self.begin_piece();
        self.buffer.extend_from_slice(stored);
        Ok(Place { plain_bytes, ..self.keep_piece(start)? })
    }

    /// A filter or an index: where it is already, or where it is put now.
    pub(crate) fn place_other(&mut self, bytes: &[u8], known: &Known) -> Result<(Hash, Place)> {
        let hash = Hash::of(bytes);
        if let Some(place) = known.others.get(&hash) {
            return Ok((hash, place.clone()));
        }
        let start = self.begin_piece();
        self.buffer.extend_from_slice(bytes);
        Ok((hash, self.keep_piece(start)?))
    }

    /// The run with this index, which is put where it belongs.
    pub(crate) fn place_index(
        &mut self,
        mut run: RunRef,
        index: RunIndex,
        known: &Known,
    ) -> Result<LiveRun> {
        let encoded = index.encode();
        let (hash, place) = self.place_other(&encoded, known)?;
        run.pack = place.pack.to_string();
        run.index_offset = place.offset;
        run.index_bytes = place.stored_bytes;
        run.index_hash = hash;
        let chunks = index.chunks.iter().map(|chunk| u64::from(chunk.stored_bytes));
        let filter = index.filter.as_ref().map_or(0, |filter| u64::from(filter.bytes));
        run.full_bytes = chunks.sum::<u64>() + filter + u64::from(run.index_bytes);
        Ok(LiveRun { run, index: Arc::new(index) })
    }
}

/// Writes entries in ascending order of their keys.
#[derive(Debug)]
pub struct RunWriter<'a> {
    pack: &'a mut PackWriter,
    section: WrittenSection,
    known: Arc<Known>,
    merged: u32,
    metadata: Vec<u8>,
    /// Only this part of the section is written.
    part: Option<KeyRange>,
    /// Bases that are written at the same time shall not all be rewritten at the same time.
    phase: Option<u8>,
    /// Where the chunk in the making begins in the pack's buffer, if there is one.
    start: Option<usize>,
    chunk: ChunkWriter,
    chunk_first: Vec<u8>,
    /// The key before, and whether there is one.
    last: Vec<u8>,
    begun: bool,
    run: RunInMaking,
}

#[derive(Debug, Default)]
struct RunInMaking {
    index: RunIndex,
    prints: Vec<u64>,
    /// As the cut rule counts.
    counted: u64,
    plain_bytes: u64,
    entry_count: u64,
    tombstone_count: u64,
}

impl<'a> RunWriter<'a> {
    fn new(
        pack: &'a mut PackWriter,
        section: WrittenSection,
        known: Arc<Known>,
        merged: u32,
        metadata: Vec<u8>,
    ) -> Self {
        Self {
            pack,
            section,
            known,
            merged,
            metadata,
            part: None,
            phase: None,
            start: None,
            chunk: ChunkWriter::default(),
            chunk_first: Vec::new(),
            last: Vec::new(),
            begun: false,
            run: RunInMaking::default(),
        }
    }

    /// Adds a key and its value.
    ///
    /// # Errors
    /// The key is not above the one before, or key or value are too large, or storage fails.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push_value(key, Value::Put(value))
    }

    /// Adds a key that has no value any more.
    ///
    /// # Errors
    /// As [`RunWriter::push`]; the section has been begun as all that there is.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        if self.merged == 0 {
            let text = format!(
                "a deletion is a change, and section `{}` was begun as all that there is",
                self.section.name
            );
            return Err(Error::invalid(text));
        }
        self.push_value(key, Value::Tombstone)
    }

    #[inline]
    pub(crate) fn push_value(&mut self, key: &[u8], value: Value<'_>) -> Result<()> {
        let shared = self.check(key, value)?;
        let entry_bytes = chunk::entry_bytes(key, value);
        match chunk::cut(self.run.counted, self.chunk.counted, key, entry_bytes) {
            Cut::No => {}
            Cut::Chunk => self.close_chunk()?,
            Cut::Run => {
                self.close_chunk()?;
                self.close_run()?;
            }
        }
        let start = match self.start {
            Some(start) => start,
            None => self.open_chunk(key),
        };
        self.chunk.push(&mut self.pack.buffer, start + 1, key, shared, value);
        self.chunk.counted += entry_bytes;
        self.run.prints.push(filter::print(key));
        // All of it: to write a part and read the whole soon after makes the processor wait.
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(())
    }

    /// What the key shares with the one before, if the entry may come after it.
    #[inline]
    fn check(&mut self, key: &[u8], value: Value<'_>) -> Result<usize> {
        let value_bytes = match value {
            Value::Put(value) => value.len(),
            Value::Tombstone => 0,
        };
        if self.part.as_ref().is_some_and(|part| !part.holds(key)) {
            let text = format!("a key of section `{}` is outside of its part", self.section.name);
            return Err(Error::invalid(text));
        }
        if key.len() > chunk::MAX_KEY_BYTES || value_bytes > chunk::MAX_VALUE_BYTES {
            return Err(self.too_large(key.len(), value_bytes));
        }
        let shared = chunk::shared_bytes(&self.last, key);
        // The first byte that they don't share decides.
        if self.begun && key.get(shared) <= self.last.get(shared) {
            let text =
                format!("entries of section `{}` are not in ascending order", self.section.name);
            return Err(Error::invalid(text));
        }
        self.begun = true;
        Ok(shared)
    }

    fn too_large(&self, key_bytes: usize, value_bytes: usize) -> Error {
        Error::invalid(format!(
            "an entry of section `{}` is too large: key_bytes={key_bytes} value_bytes={value_bytes}",
            self.section.name
        ))
    }

    fn open_chunk(&mut self, key: &[u8]) -> usize {
        let start = self.pack.begin_piece();
        // How it is compressed is known when it is whole.
        self.pack.buffer.push(0);
        self.start = Some(start);
        self.chunk_first.clear();
        self.chunk_first.extend_from_slice(key);
        start
    }

    fn close_chunk(&mut self) -> Result<()> {
        let Some(start) = self.start.take() else {
            return Ok(());
        };
        let (entries, tombstones) = (self.chunk.entries, self.chunk.tombstones);
        self.run.counted += self.chunk.counted as u64;
        self.chunk.finish(&mut self.pack.buffer);
        let (hash, place) = self.pack.place_chunk(start, &self.known)?;
        let pack = self.run.index.pack_number(&place.pack);
        self.run.index.chunks.push(ChunkRef {
            pack,
            offset: place.offset,
            stored_bytes: place.stored_bytes,
            plain_bytes: place.plain_bytes,
            entries,
            tombstones,
            hash,
            first_key: self.chunk_first.as_slice().into(),
        });
        self.run.plain_bytes += u64::from(place.plain_bytes);
        self.run.entry_count += u64::from(entries);
        self.run.tombstone_count += u64::from(tombstones);
        Ok(())
    }

    fn close_run(&mut self) -> Result<()> {
        let mut run = std::mem::take(&mut self.run);
        let Some(first) = run.index.chunks.first() else {
            return Ok(());
        };
        let range = KeyRange::spanning(&first.first_key, &self.last);
        if run.index.chunks.len() > 1 {
            let (hash, place) = self.pack.place_other(&filter::encode(&run.prints), &self.known)?;
            let pack = run.index.pack_number(&place.pack);
            let bytes = place.stored_bytes;
            run.index.filter = Some(FilterRef { pack, offset: place.offset, bytes, hash });
        }
        let reference = RunRef {
            ranges: vec![range],
            pack: String::new(),
            index_offset: 0,
            index_bytes: 0,
            index_hash: Hash([0; 32]),
            entry_count: run.entry_count,
            tombstone_count: run.tombstone_count,
            plain_bytes: run.plain_bytes,
            full_bytes: 0,
            merged: self.merged,
            phase: self.phase.map_or(0, |phase| phase.wrapping_add(self.golden())),
            metadata: Blob(self.metadata.clone()),
        };
        let run = self.pack.place_index(reference, run.index, &self.known)?;
        self.section.runs.push(run);
        Ok(())
    }

    /// The golden ratio's multiples spread most evenly, however many there are.
    fn golden(&self) -> u8 {
        let count = u8::try_from(self.section.runs.len() % 256).unwrap_or(0);
        count.wrapping_mul(158)
    }

    /// Ends the section. One without entries leaves no trace but its name.
    ///
    /// # Errors
    /// Storage fails.
    pub fn finish(mut self) -> Result<()> {
        self.close_chunk()?;
        self.close_run()?;
        let Self { pack, section, part, .. } = self;
        match part {
            None => pack.written.sections.push(section),
            Some(range) => {
                let WrittenSection { name, runs, .. } = section;
                pack.change(Change::Rewrite { section: name, range, by: runs });
            }
        }
        Ok(())
    }

    /// Ends runs that are merged from others.
    pub(crate) fn finish_merge(mut self) -> Result<Vec<LiveRun>> {
        self.close_chunk()?;
        self.close_run()?;
        Ok(self.section.runs)
    }
}
