//! The manifest: what a checkpoint is made of. Publishing it is the commit point.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hash::{Blob, Hash};
use crate::job::JobId;
use crate::nonce::Nonce;
use crate::ranges::{KeyRange, are_well_formed};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// The newest version that this build reads, and the one that it writes.
pub(crate) const VERSION: u16 = 1;

/// Magic, version, reserved, payload length.
const HEADER_BYTES: usize = 4 + 2 + 2 + 8;

/// The hash at the end.
const TRAILER_BYTES: usize = 32;

/// No manifest is larger: it names runs, not chunks.
pub(crate) const MAX_BYTES: u64 = 256 << 20;

const MAGIC: [u8; 4] = *b"SLMF";

/// In place of a manifest's: there is no such checkpoint, and there never will be.
const VOID_MAGIC: [u8; 4] = *b"SLVD";

#[derive(Serialize)]
struct Void {
    nonce: Nonce,
}

/// What takes a manifest's name, so that a late manifest can't.
pub(crate) fn void(nonce: Nonce) -> Result<Vec<u8>> {
    frame(VOID_MAGIC, &Void { nonce })
}

/// Whether these bytes only keep the name.
pub(crate) fn is_void(bytes: &[u8]) -> bool {
    bytes.starts_with(&VOID_MAGIC)
}

/// What a checkpoint is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The job.
    pub job_id: JobId,
    /// Its number.
    pub checkpoint: u64,
    /// The fence token of the owner that wrote it.
    pub token: u64,
    /// The nonce of that owner's fence.
    pub(crate) nonce: Nonce,
    /// When it was published, Unix milliseconds.
    pub created_ms: u64,
    /// Bytes of all chunks, indexes and filters that it names: what a restore reads at most.
    pub full_bytes: u64,
    /// Bytes that it added to storage, the manifest left out.
    pub written_bytes: u64,
    /// Its state, by name.
    pub sections: Vec<Section>,
    /// What the job has to say of it; opaque here.
    pub(crate) metadata: Blob,
}

/// A named table: sorted entries in one or more runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Its name, at most 1,024 bytes.
    pub name: String,
    /// Its runs, the oldest first. Of those that speak for a key and hold it, the newest decides.
    pub runs: Vec<RunRef>,
}

/// Where a run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRef {
    /// For which keys it speaks: ascending and apart.
    pub ranges: Vec<KeyRange>,
    /// The pack that holds its index, without folder.
    pub pack: String,
    /// Where the index begins.
    pub index_offset: u64,
    /// How long it is.
    pub index_bytes: u32,
    /// What it must hash to.
    pub index_hash: Hash,
    /// Entries, tombstones among them, whatever the ranges.
    pub entry_count: u64,
    /// Tombstones.
    pub tombstone_count: u64,
    /// Bytes of its chunks before compression.
    pub plain_bytes: u64,
    /// Bytes of its chunks, its filter and its index as stored.
    pub full_bytes: u64,
    /// How many checkpoints' changes it holds; 0 for a base, which needs nothing older.
    pub merged: u32,
    /// Spreads the rewriting of bases over checkpoints.
    pub(crate) phase: u8,
    /// What its writer has to say of it (a schema, say); opaque here.
    pub(crate) metadata: Blob,
}

impl RunRef {
    /// What its writer has to say of it.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.metadata.0
    }

    /// Whether it needs nothing older.
    #[must_use]
    pub fn is_base(&self) -> bool {
        self.merged == 0
    }
}

impl Manifest {
    /// What tells this checkpoint or savepoint from every other one; it stays the same when a
    /// savepoint is moved.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{}-{}", self.nonce, self.checkpoint)
    }

    /// What the job has to say of it.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.metadata.0
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        frame(MAGIC, self)
    }

    /// Reads a manifest; `object` names it in errors.
    ///
    /// # Errors
    /// `Damaged`, or `Unsupported` if it needs a newer version.
    pub(crate) fn decode(bytes: &[u8], object: &str) -> Result<Self> {
        let manifest: Self = unframe(MAGIC, bytes, object)?;
        let mut runs = manifest.sections.iter().flat_map(|section| &section.runs);
        if runs.any(|run| run.ranges.is_empty() || !are_well_formed(&run.ranges)) {
            return Err(Error::damaged(object, "the ranges of a run are out of order"));
        }
        let mut names = BTreeSet::new();
        let mut sections = manifest.sections.iter().map(|section| section.name.as_str());
        if sections.any(|name| !is_section_name(name) || !names.insert(name)) {
            return Err(Error::damaged(object, "a section has no name, or that of another one"));
        }
        Ok(manifest)
    }
}

/// Whether a section can have this name.
pub(crate) fn is_section_name(name: &str) -> bool {
    (1..=1024).contains(&name.len())
}

/// A value that checks itself: magic, version, length, a named MessagePack map, and the hash of
/// all that.
pub(crate) fn frame<T: Serialize>(magic: [u8; 4], value: &T) -> Result<Vec<u8>> {
    let payload = rmp_serde::to_vec_named(value)
        .map_err(|error| Error::invalid("metadata can't be encoded").because(error))?;
    let limit = if magic == MAGIC { MAX_BYTES } else { MAX_RECORD_BYTES };
    if payload.len() as u64 > limit - (HEADER_BYTES + TRAILER_BYTES) as u64 {
        let text = format!(
            "a record is too long to be read again: payload_bytes={} limit_bytes={limit}",
            payload.len()
        );
        return Err(Error::invalid(text));
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len() + TRAILER_BYTES);
    out.extend_from_slice(&magic);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&payload);
    let hash = Hash::of(&out);
    out.extend_from_slice(&hash.0);
    Ok(out)
}

pub(crate) fn unframe<T: for<'de> Deserialize<'de>>(
    magic: [u8; 4],
    bytes: &[u8],
    object: &str,
) -> Result<T> {
    let damaged = |what: &str| Error::damaged(object, what);
    let cut = bytes.len().checked_sub(TRAILER_BYTES).filter(|len| *len >= HEADER_BYTES);
    let cut = cut.ok_or_else(|| damaged(&format!("it has only {} bytes", bytes.len())))?;
    let (body, hash) = bytes.split_at(cut);
    let mut cursor = crate::bytes::Cursor::new(body);
    if cursor.take(4) != Some(&magic[..]) {
        return Err(damaged("it does not begin with its magic"));
    }
    let version = cursor.u16().unwrap_or_default();
    if version > VERSION {
        let text =
            format!("{object} needs version {version} of the format; this build reads {VERSION}");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    if Hash::of(body).0 != hash {
        return Err(damaged("its hash does not fit its bytes"));
    }
    let reserved = cursor.u16();
    let len = cursor.u64().and_then(|len| usize::try_from(len).ok());
    let payload = len.and_then(|len| cursor.take(len)).filter(|_| cursor.is_empty());
    match (version, reserved, payload) {
        (VERSION, Some(0), Some(payload)) => rmp_serde::from_slice(payload)
            .map_err(|error| damaged("its fields are not those of its kind").because(error)),
        _ => Err(damaged("its header does not fit it")),
    }
}

/// No record is larger, but for manifests.
const MAX_RECORD_BYTES: u64 = 64 << 10;

/// Reads a framed record other than a manifest.
pub(crate) fn read_framed<T: for<'de> Deserialize<'de>>(
    magic: [u8; 4],
    store: &Arc<dyn Store>,
    path: &str,
) -> Result<T> {
    let object = store.describe(path);
    let bytes = store.size(path)?;
    if bytes > MAX_RECORD_BYTES {
        return Err(Error::damaged(&object, "it is too long"));
    }
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    unframe(magic, &store.read(path, 0, len)?, &object)
}
