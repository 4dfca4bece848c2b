//! The index of a run: where each of its chunks is. Written once, into the pack of the subtask
//! that wrote the run; hashed, and named by that hash in the manifest.

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
    pub(crate) hash: Hash,
    pub(crate) first_key: Vec<u8>,
}

/// The chunks of a run in order, and the packs that they are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunIndex {
    /// Names of packs, without folder.
    pub(crate) packs: Vec<String>,
    pub(crate) chunks: Vec<ChunkRef>,
}

/// The version of the layout below.
const VERSION: u8 = 1;

impl RunIndex {
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
            out.extend_from_slice(&chunk.hash.0);
            put_prefixed(&mut out, &chunk.first_key);
        }
        out
    }

    /// `None` where the bytes are no index.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8()? != VERSION {
            return None;
        }
        // Grown as the bytes are there, never by what a count says.
        let mut index = Self::default();
        for _ in 0..cursor.varint()? {
            let name = std::str::from_utf8(cursor.prefixed()?).ok()?;
            index.packs.push(name.to_owned());
        }
        for _ in 0..cursor.varint()? {
            index.chunks.push(take_chunk(&mut cursor, index.packs.len())?);
        }
        cursor.is_empty().then_some(index)
    }
}

fn take_chunk(cursor: &mut Cursor<'_>, packs: usize) -> Option<ChunkRef> {
    let pack = usize::try_from(cursor.varint()?).ok().filter(|pack| *pack < packs)?;
    Some(ChunkRef {
        pack,
        offset: cursor.u64()?,
        stored_bytes: cursor.u32()?,
        plain_bytes: cursor.u32()?,
        entries: cursor.u32()?,
        hash: Hash(cursor.hash()?),
        first_key: cursor.prefixed()?.to_vec(),
    })
}
