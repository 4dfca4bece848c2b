//! The index of a run: where each of its chunks is. Written once, into the pack of the subtask
//! that wrote the run; hashed, and named by that hash in the manifest.

use std::sync::Arc;

use crate::bytes::{Cursor, put_prefixed, put_varint};
use crate::hash::Hash;

/// Where a chunk is, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRef {
    /// Place of its pack in the index's list of packs.
    pub(crate) pack: usize,
    pub(crate) offset: u64,
    pub(crate) stored_bytes: u32,
    pub(crate) plain_bytes: u32,
    pub(crate) entries: u32,
    pub(crate) tombstones: u32,
    pub(crate) hash: Hash,
    pub(crate) first_key: Box<[u8]>,
}

/// Where a run's filter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterRef {
    /// Place of its pack in the index's list of packs.
    pub(crate) pack: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) hash: Hash,
}

/// The chunks of a run in order, and the packs that they are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunIndex {
    /// Names of packs, without folder.
    pub(crate) packs: Vec<Arc<str>>,
    pub(crate) chunks: Vec<ChunkRef>,
    pub(crate) filter: Option<FilterRef>,
}

/// The version of the layout below.
const VERSION: u8 = 1;

impl RunIndex {
    /// The place of a pack in the list; it is added if it isn't there.
    pub(crate) fn pack_number(&mut self, name: &Arc<str>) -> usize {
        // Chunks tend to be in one pack, and there are few packs: the last one first.
        self.packs.iter().rposition(|pack| pack == name).unwrap_or_else(|| {
            self.packs.push(Arc::clone(name));
            self.packs.len() - 1
        })
    }

    /// The name of a pack that a chunk or filter is in.
    pub(crate) fn pack(&self, number: usize) -> &str {
        self.packs.get(number).map_or("", |name| name)
    }

    /// The place of the last chunk that begins at or below a key; 0 if there is none.
    pub(crate) fn chunk_for(&self, key: &[u8]) -> usize {
        self.chunks.partition_point(|chunk| &chunk.first_key[..] <= key).saturating_sub(1)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, self.packs.len() as u64);
        for pack in &self.packs {
            put_prefixed(&mut out, pack.as_bytes());
        }
        put_varint(&mut out, self.chunks.len() as u64);
        for chunk in &self.chunks {
            put_varint(&mut out, chunk.pack as u64);
            out.extend_from_slice(&chunk.offset.to_le_bytes());
            out.extend_from_slice(&chunk.stored_bytes.to_le_bytes());
            out.extend_from_slice(&chunk.plain_bytes.to_le_bytes());
            out.extend_from_slice(&chunk.entries.to_le_bytes());
            out.extend_from_slice(&chunk.tombstones.to_le_bytes());
            out.extend_from_slice(&chunk.hash.0);
            put_prefixed(&mut out, &chunk.first_key);
        }
        out.push(u8::from(self.filter.is_some()));
        if let Some(filter) = &self.filter {
            put_varint(&mut out, filter.pack as u64);
            out.extend_from_slice(&filter.offset.to_le_bytes());
            out.extend_from_slice(&filter.bytes.to_le_bytes());
            out.extend_from_slice(&filter.hash.0);
        }
        out
    }

    /// The version of an index that this build can't read.
    pub(crate) fn newer_version(bytes: &[u8]) -> Option<u8> {
        bytes.first().copied().filter(|version| *version > VERSION)
    }

    /// `None` where the bytes are no index of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8()? != VERSION {
            return None;
        }
        // Grown as the bytes are there, never by what a count says.
        let mut index = Self::default();
        for _ in 0..cursor.varint()? {
            index.packs.push(std::str::from_utf8(cursor.prefixed()?).ok()?.into());
        }
        for _ in 0..cursor.varint()? {
            index.chunks.push(take_chunk(&mut cursor, index.packs.len())?);
        }
        index.filter = match cursor.u8()? {
            0 => None,
            1 => Some(take_filter(&mut cursor, index.packs.len())?),
            _ => return None,
        };
        let ascending = index.chunks.windows(2).all(|pair| match pair {
            [a, b] => a.first_key < b.first_key,
            _ => true,
        });
        (cursor.is_empty() && ascending).then_some(index)
    }
}

fn take_pack(cursor: &mut Cursor<'_>, packs: usize) -> Option<usize> {
    usize::try_from(cursor.varint()?).ok().filter(|pack| *pack < packs)
}

fn take_chunk(cursor: &mut Cursor<'_>, packs: usize) -> Option<ChunkRef> {
    Some(ChunkRef {
        pack: take_pack(cursor, packs)?,
        offset: cursor.u64()?,
        stored_bytes: cursor.u32()?,
        plain_bytes: cursor.u32()?,
        entries: cursor.u32()?,
        tombstones: cursor.u32()?,
        hash: Hash(cursor.hash()?),
        first_key: cursor.prefixed()?.into(),
    })
}

fn take_filter(cursor: &mut Cursor<'_>, packs: usize) -> Option<FilterRef> {
    Some(FilterRef {
        pack: take_pack(cursor, packs)?,
        offset: cursor.u64()?,
        bytes: cursor.u32()?,
        hash: Hash(cursor.hash()?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(packs: usize) -> impl Strategy<Value = ChunkRef> {
        let sizes = (0..packs, any::<u64>(), any::<[u32; 4]>());
        let key = prop::collection::vec(any::<u8>(), 0..20);
        (sizes, any::<[u8; 32]>(), key).prop_map(|((pack, offset, sizes), hash, key)| ChunkRef {
            pack,
            offset,
            stored_bytes: sizes[0],
            plain_bytes: sizes[1],
            entries: sizes[2],
            tombstones: sizes[3],
            hash: Hash(hash),
            first_key: key.into(),
        })
    }

    fn index() -> impl Strategy<Value = RunIndex> {
        let filter = prop::option::of((0_usize..2, any::<u64>(), any::<u32>(), any::<[u8; 32]>()));
        (prop::collection::vec(chunk(2), 0..10), filter).prop_map(|(mut chunks, filter)| {
            chunks.sort_by(|a, b| a.first_key.cmp(&b.first_key));
            chunks.dedup_by(|a, b| a.first_key == b.first_key);
            let filter = filter.map(|(pack, offset, bytes, hash)| FilterRef {
                pack,
                offset,
                bytes,
                hash: Hash(hash),
            });
            RunIndex { packs: vec!["a".into(), "b".into()], chunks, filter }
        })
    }

    proptest! {
        #[test]
        fn indexes_come_back(index in index()) {
            prop_assert_eq!(RunIndex::decode(&index.encode()), Some(index));
        }

        #[test]
        fn damaged_ones_do_not_panic(index in index(), at: prop::sample::Index, bit in 0..8) {
            let mut bytes = index.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            RunIndex::decode(&bytes);
            RunIndex::decode(bytes.get(..at).unwrap_or_default());
        }
    }
}
