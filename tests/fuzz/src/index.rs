//! The index of a run as the format's page has it, to be changed at will.

use strandline_snapshot::pieces::varint;

/// A run's index.
#[derive(Clone, Debug)]
pub struct Index {
    /// Names of packs.
    pub packs: Vec<Vec<u8>>,
    /// Chunks.
    pub chunks: Vec<Chunk>,
    /// Filter.
    pub filter: Option<Filter>,
}

/// Where a chunk is.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are those of the format")]
pub struct Chunk {
    pub pack: u64,
    pub offset: u64,
    pub stored_bytes: u32,
    pub plain_bytes: u32,
    pub entries: u32,
    pub tombstones: u32,
    pub hash: [u8; 32],
    pub first_key: Vec<u8>,
}

/// Where a filter is.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are those of the format")]
pub struct Filter {
    pub pack: u64,
    pub offset: u64,
    pub bytes: u32,
    pub hash: [u8; 32],
}

/// Reads from front to back.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn prefixed(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len).map(<[u8]>::to_vec)
    }
}

impl Index {
    /// Reads one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        bytes.take(1)?;
        let mut index = Self { packs: Vec::new(), chunks: Vec::new(), filter: None };
        for _ in 0..bytes.varint()? {
            index.packs.push(bytes.prefixed()?);
        }
        for _ in 0..bytes.varint()? {
            index.chunks.push(Chunk {
                pack: bytes.varint()?,
                offset: bytes.u64()?,
                stored_bytes: bytes.u32()?,
                plain_bytes: bytes.u32()?,
                entries: bytes.u32()?,
                tombstones: bytes.u32()?,
                hash: bytes.array()?,
                first_key: bytes.prefixed()?,
            });
        }
        if bytes.array()? == [1] {
            index.filter = Some(Filter {
                pack: bytes.varint()?,
                offset: bytes.u64()?,
                bytes: bytes.u32()?,
                hash: bytes.array()?,
            });
        }
        Some(index)
    }

    /// Writes one, whatever is in it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let prefixed = |bytes: &[u8]| [&varint(bytes.len() as u64), bytes].concat();
        let mut out = vec![1];
        out.extend(varint(self.packs.len() as u64));
        out.extend(self.packs.iter().flat_map(|pack| prefixed(pack)));
        out.extend(varint(self.chunks.len() as u64));
        for chunk in &self.chunks {
            out.extend(varint(chunk.pack));
            out.extend(chunk.offset.to_le_bytes());
            for number in [chunk.stored_bytes, chunk.plain_bytes, chunk.entries, chunk.tombstones] {
                out.extend(number.to_le_bytes());
            }
            out.extend(chunk.hash);
            out.extend(prefixed(&chunk.first_key));
        }
        out.push(u8::from(self.filter.is_some()));
        if let Some(filter) = &self.filter {
            out.extend(varint(filter.pack));
            out.extend(filter.offset.to_le_bytes());
            out.extend(filter.bytes.to_le_bytes());
            out.extend(filter.hash);
        }
        out
    }

    /// The place of a pack in the list; it is added if it isn't there.
    pub fn pack_number(&mut self, name: &str) -> u64 {
        let found = self.packs.iter().position(|pack| pack == name.as_bytes());
        let number = found.unwrap_or_else(|| {
            self.packs.push(name.as_bytes().to_vec());
            self.packs.len() - 1
        });
        number as u64
    }
}
