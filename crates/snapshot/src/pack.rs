//! Packs: what one writer adds to storage for one checkpoint: chunks that are new, and the index
//! of each of its runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::chunk::{self, Value};
use crate::hash::{Blob, Hash};
use crate::index::{ChunkRef, RunIndex};
use crate::job::JobId;
use crate::manifest::RunRef;
use crate::names;
use crate::store::{Store, Upload};
use crate::{Error, Result};

/// Magic and version.
pub(crate) const PACK_HEADER: [u8; 6] = *b"SLPK\x01\x00";

/// Before the stored bytes of a chunk: how they are compressed. Only "not at all" is known.
pub(crate) const COMPRESSION_NONE: u8 = 0;

/// Bytes are handed to storage in pieces of about this size.
const WRITE_BYTES: usize = 1 << 20;

/// Where a chunk with known content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pack: Arc<str>,
    pub(crate) offset: u64,
    pub(crate) stored_bytes: u32,
    pub(crate) plain_bytes: u32,
}

/// Chunks by name: those that may be reused.
pub(crate) type Known = BTreeMap<Hash, Place>;

/// What a writer has added, to be named by a manifest.
#[derive(Debug)]
pub struct Written {
    pub(crate) sections: Vec<(String, Vec<RunRef>)>,
    pub(crate) known: Vec<(Hash, Place)>,
    /// Bytes that a restore reads: chunks and indexes.
    pub full_bytes: u64,
    /// Bytes added to storage.
    pub written_bytes: u64,
    /// Chunks of all runs.
    pub chunks: u64,
    /// Those of them that were there already.
    pub reused_chunks: u64,
}

/// Writes the runs of one subtask for one checkpoint.
pub struct PackWriter {
    store: Arc<dyn Store>,
    job: JobId,
    name: Arc<str>,
    known: Arc<Known>,
    /// Chunks that this pack has added.
    own: Known,
    /// `None` until the first byte: a pack without a byte is never made.
    upload: Option<Box<dyn Upload>>,
    buffer: Vec<u8>,
    /// Bytes of the pack so far, the buffer's included.
    offset: u64,
    written: Written,
}

impl std::fmt::Debug for PackWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackWriter").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PackWriter {
    pub(crate) fn new(store: Arc<dyn Store>, job: JobId, name: &str, known: Arc<Known>) -> Self {
        let written = Written {
            sections: Vec::new(),
            known: Vec::new(),
            full_bytes: 0,
            written_bytes: 0,
            chunks: 0,
            reused_chunks: 0,
        };
        Self {
            store,
            job,
            name: name.into(),
            known,
            own: Known::new(),
            upload: None,
            buffer: Vec::new(),
            offset: 0,
            written,
        }
    }

    /// Begins a run of the section of this name. `metadata` goes into the manifest with it.
    ///
    /// # Errors
    /// The name is empty or longer than 1,024 bytes.
    pub fn section(&mut self, name: &str, metadata: Vec<u8>) -> Result<RunWriter<'_>> {
        if name.is_empty() || name.len() > 1024 {
            return Err(Error::invalid(format!("a section's name has 1 to 1,024 bytes: {name:?}")));
        }
        Ok(RunWriter {
            pack: self,
            section: name.to_owned(),
            metadata,
            plain: Vec::with_capacity(2 * chunk::MIN_BYTES),
            entries: 0,
            chunk_first: Vec::new(),
            first: None,
            last: Vec::new(),
            index: RunIndex::default(),
            entry_count: 0,
            full_bytes: 0,
        })
    }

    /// Makes the pack durable.
    ///
    /// # Errors
    /// Storage fails: then nothing of it may be named by a manifest.
    pub fn finish(mut self) -> Result<Written> {
        self.flush()?;
        if let Some(upload) = self.upload.take() {
            self.written.written_bytes = upload.finish()?;
        }
        Ok(self.written)
    }

    /// Adds bytes, and says where they begin.
    fn append(&mut self, parts: &[&[u8]]) -> Result<u64> {
        if self.offset == 0 {
            self.buffer.extend_from_slice(&PACK_HEADER);
            self.offset = PACK_HEADER.len() as u64;
        }
        let begin = self.offset;
        for part in parts {
            self.buffer.extend_from_slice(part);
            self.offset += part.len() as u64;
        }
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(begin)
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let upload = match &mut self.upload {
            Some(upload) => upload,
            None => self.upload.insert(self.store.put(&names::pack(self.job, &self.name))?),
        };
        upload.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// The place of a chunk of these bytes: where it is already, or where it is put now.
    fn place(&mut self, plain: &[u8]) -> Result<(Hash, Place)> {
        let hash = Hash::of(plain);
        let plain_bytes = u32::try_from(plain.len())
            .map_err(|_| Error::invalid("an entry is too large for a chunk"))?;
        self.written.chunks += 1;
        if let Some(place) = self.own.get(&hash).or_else(|| self.known.get(&hash)) {
            if place.plain_bytes != plain_bytes {
                let text = format!("two contents have the name {hash}");
                return Err(Error::damaged(
                    &self.store.describe(&names::pack(self.job, &place.pack)),
                    text,
                ));
            }
            self.written.reused_chunks += 1;
            return Ok((hash, place.clone()));
        }
        let offset = self.append(&[&[COMPRESSION_NONE], plain])?;
        let stored_bytes = plain_bytes + 1;
        let place = Place { pack: Arc::clone(&self.name), offset, stored_bytes, plain_bytes };
        self.own.insert(hash, place.clone());
        Ok((hash, place))
    }
}

/// Writes one run: entries in ascending order of their keys.
#[derive(Debug)]
pub struct RunWriter<'a> {
    pack: &'a mut PackWriter,
    section: String,
    metadata: Vec<u8>,
    /// The chunk in the making.
    plain: Vec<u8>,
    entries: u32,
    chunk_first: Vec<u8>,
    first: Option<Vec<u8>>,
    /// The key before.
    last: Vec<u8>,
    index: RunIndex,
    entry_count: u64,
    full_bytes: u64,
}

impl RunWriter<'_> {
    /// Adds a key and its value.
    ///
    /// # Errors
    /// The key is not above the one before, or key or value are too large, or storage fails.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push_value(key, Value::Put(value))
    }

    fn push_value(&mut self, key: &[u8], value: Value<'_>) -> Result<()> {
        self.check(key, value)?;
        let entry_bytes = chunk::entry_bytes(key, value);
        if chunk::cuts(self.plain.len(), key, entry_bytes) {
            self.close_chunk()?;
        }
        if self.entries == 0 {
            self.chunk_first.clear();
            self.chunk_first.extend_from_slice(key);
        }
        chunk::put_entry(&mut self.plain, key, value);
        self.entries += 1;
        self.entry_count += 1;
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(())
    }

    fn check(&mut self, key: &[u8], value: Value<'_>) -> Result<()> {
        let value_bytes = match value {
            Value::Put(value) => value.len(),
            Value::Tombstone => 0,
        };
        if key.len() > chunk::MAX_KEY_BYTES || value_bytes > chunk::MAX_VALUE_BYTES {
            let text = format!(
                "an entry of section `{}` is too large: key_bytes={} value_bytes={value_bytes}",
                self.section,
                key.len()
            );
            return Err(Error::invalid(text));
        }
        match &self.first {
            None => self.first = Some(key.to_vec()),
            Some(_) if key <= &self.last[..] => {
                let text =
                    format!("entries of section `{}` are not in ascending order", self.section);
                return Err(Error::invalid(text));
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn close_chunk(&mut self) -> Result<()> {
        if self.entries == 0 {
            return Ok(());
        }
        let (hash, place) = self.pack.place(&self.plain)?;
        let pack = self.pack_number(&place.pack);
        self.index.chunks.push(ChunkRef {
            pack,
            offset: place.offset,
            stored_bytes: place.stored_bytes,
            plain_bytes: place.plain_bytes,
            entries: self.entries,
            hash,
            first_key: std::mem::take(&mut self.chunk_first),
        });
        self.full_bytes += u64::from(place.stored_bytes);
        self.pack.written.known.push((hash, place));
        self.plain.clear();
        self.entries = 0;
        Ok(())
    }

    fn pack_number(&mut self, name: &str) -> usize {
        let packs = &mut self.index.packs;
        // Runs of chunks tend to be in one pack, and there are few packs: the last one first.
        packs.iter().rposition(|pack| pack == name).unwrap_or_else(|| {
            packs.push(name.to_owned());
            packs.len() - 1
        })
    }

    /// Ends the run. A run without entries leaves no trace but the section's name.
    ///
    /// # Errors
    /// Storage fails.
    pub fn finish(mut self) -> Result<()> {
        self.close_chunk()?;
        let runs = match self.first.take() {
            None => Vec::new(),
            Some(first) => vec![self.put_index(first)?],
        };
        self.pack.written.sections.push((self.section, runs));
        Ok(())
    }

    fn put_index(&mut self, first: Vec<u8>) -> Result<RunRef> {
        let encoded = self.index.encode();
        let index_bytes = u32::try_from(encoded.len())
            .map_err(|_| Error::invalid("a run has too many chunks"))?;
        let index_offset = self.pack.append(&[&encoded])?;
        let full_bytes = self.full_bytes + u64::from(index_bytes);
        self.pack.written.full_bytes += full_bytes;
        Ok(RunRef {
            pack: self.pack.name.to_string(),
            index_offset,
            index_bytes,
            index_hash: Hash::of(&encoded),
            entry_count: self.entry_count,
            full_bytes,
            first_key: Blob(first),
            last_key: Blob(std::mem::take(&mut self.last)),
            metadata: Blob(std::mem::take(&mut self.metadata)),
        })
    }
}
