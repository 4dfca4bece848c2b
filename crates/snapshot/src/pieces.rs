//! The single pieces of the format, for its vectors, fuzzers and tests. No part of what the crate
//! promises.

use crate::block::{self, Compressor};
use crate::bytes::put_varint;
use crate::chunk::{self, ChunkCursor, ChunkWriter, Cut, Value};
use crate::filter::{self, Filter};
use crate::index::RunIndex;
use crate::manifest::Manifest;
use crate::plain::Plain;
use crate::{Compression, Hash};

/// A key and its value; `None` for a tombstone.
pub type Entry = (Vec<u8>, Option<Vec<u8>>);

/// A number as LEB128.
#[must_use]
pub fn varint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, value);
    out
}

/// The finalizer that lots are drawn with.
#[must_use]
pub fn mix(value: u64) -> u64 {
    chunk::mixed(value)
}

/// What is cut before an entry: 0 nothing, 1 the chunk, 2 the run too.
#[must_use]
pub fn cut(run_bytes: u64, chunk_bytes: usize, key: &[u8], entry_bytes: usize) -> u8 {
    match chunk::cut(run_bytes, chunk_bytes, key, entry_bytes) {
        Cut::No => 0,
        Cut::Chunk => 1,
        Cut::Run => 2,
    }
}

/// What an entry counts for where chunks are cut.
#[must_use]
pub fn entry_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    chunk::entry_bytes(key, value.map_or(Value::Tombstone, Value::Put))
}

/// A key's number in a filter.
#[must_use]
pub fn print(key: &[u8]) -> u64 {
    filter::print(key)
}

/// The filter over these keys.
#[must_use]
pub fn filter<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let prints: Vec<u64> = keys.into_iter().map(filter::print).collect();
    filter::encode(&prints)
}

/// Whether a filter lets a key pass; `None` where the bytes are no filter.
#[must_use]
pub fn filter_passes(bytes: &[u8], key: &[u8]) -> Option<bool> {
    Filter::decode(bytes.to_vec()).map(|filter| filter.may_hold(filter::print(key)))
}

/// The plain bytes of a chunk of these entries.
#[must_use]
pub fn chunk(entries: &[Entry]) -> Vec<u8> {
    let (mut writer, mut out, mut last) = (ChunkWriter::default(), Vec::new(), &[][..]);
    for (key, value) in entries {
        let value = value.as_deref().map_or(Value::Tombstone, Value::Put);
        writer.push(&mut out, 0, key, chunk::shared_bytes(last, key), value);
        last = key;
    }
    writer.finish(&mut out);
    out
}

/// The entries of a chunk, and what is found at a key; the flaw where the bytes are no chunk.
///
/// # Errors
/// The bytes are no chunk.
pub fn read_chunk(bytes: &[u8], key: &[u8]) -> Result<(Vec<Entry>, Option<Entry>), &'static str> {
    let entry = |cursor: &ChunkCursor| {
        let value = match cursor.value() {
            Value::Put(value) => Some(value.to_vec()),
            Value::Tombstone => None,
        };
        (cursor.key().to_vec(), value)
    };
    let mut cursor = ChunkCursor::default();
    cursor.begin(Plain::from(bytes.to_vec()))?;
    let mut entries = Vec::new();
    while cursor.next()? {
        entries.push(entry(&cursor));
    }
    let found = cursor.seek(key)?.then(|| entry(&cursor));
    Ok((entries, found))
}

/// The stored form of a chunk.
///
/// # Errors
/// It can't be compressed.
pub fn store_chunk(compression: Compression, plain: &[u8]) -> crate::Result<Vec<u8>> {
    let mut out = vec![0];
    out.extend_from_slice(plain);
    Compressor::new(compression).store(&mut out, 0)?;
    Ok(out)
}

/// The plain form of a stored chunk, if it has this length and this name.
///
/// # Errors
/// It hasn't.
pub fn plain_chunk(stored: &[u8], plain_bytes: usize, name: Hash) -> Result<Vec<u8>, &'static str> {
    block::plain(&Plain::from(stored.to_vec()), plain_bytes, &name).map(|plain| plain.to_vec())
}

/// Reads an index and writes it again; `None` where the bytes are none.
#[must_use]
pub fn index_again(bytes: &[u8]) -> Option<Vec<u8>> {
    RunIndex::decode(bytes).map(|index| index.encode())
}

/// Reads a manifest and writes it again.
///
/// # Errors
/// The bytes are no manifest.
pub fn manifest_again(bytes: &[u8]) -> crate::Result<Vec<u8>> {
    Manifest::decode(bytes, "the manifest")?.encode()
}

/// The same for a payload whose frame is put around it first: what is behind the hash.
///
/// # Errors
/// The payload is none of a manifest.
pub fn manifest_of_payload(payload: &[u8]) -> crate::Result<Vec<u8>> {
    manifest_again(&frame(*b"SLMF", payload))
}

/// A payload in its frame.
#[must_use]
pub fn frame(magic: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut out = magic.to_vec();
    out.extend_from_slice(&[1, 0, 0, 0]);
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(payload);
    let hash = Hash::of(&out);
    out.extend_from_slice(&hash.0);
    out
}
