//! How a chunk is stored: one byte that says how it is compressed, and the bytes.

use crate::chunk::Flaw;
use crate::hash::Hash;
use crate::plain::Plain;
use crate::{Error, Result};

/// How new chunks are compressed. Chunks are named by their plain bytes, so it may change between
/// checkpoints, and does not keep chunks from being shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4: fast to read.
    Lz4,
    /// Zstandard, level 1.
    #[default]
    Zstd,
}

const NONE: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

const ZSTD_LEVEL: i32 = 1;

/// Compresses what comes, and keeps its tables from one chunk to the next.
pub(crate) struct Compressor {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compressor({:?})", self.compression)
    }
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Self {
        Self { compression, zstd: None, scratch: Vec::new() }
    }

    /// The stored form of a chunk that lies at the end of `out`, behind one byte that is free:
    /// compressed where that makes it smaller.
    pub(crate) fn store(&mut self, out: &mut Vec<u8>, start: usize) -> Result<()> {
        let plain = out.get(start + 1..).unwrap_or_default();
        let compressed = match self.compression {
            Compression::None => None,
            Compression::Lz4 => self.lz4(plain).map(|len| (LZ4, len)),
            Compression::Zstd => self.zstd(plain)?.map(|len| (ZSTD, len)),
        };
        let kind = match compressed {
            None => NONE,
            Some((kind, len)) => {
                out.truncate(start + 1);
                out.extend_from_slice(self.scratch.get(..len).unwrap_or_default());
                kind
            }
        };
        if let Some(first) = out.get_mut(start) {
            *first = kind;
        }
        Ok(())
    }

    /// The compressed length, if it is shorter.
    fn lz4(&mut self, plain: &[u8]) -> Option<usize> {
        self.scratch.resize(lz4_flex::block::get_maximum_output_size(plain.len()), 0);
        let len = lz4_flex::block::compress_into(plain, &mut self.scratch).ok()?;
        (len < plain.len()).then_some(len)
    }

    fn zstd(&mut self, plain: &[u8]) -> Result<Option<usize>> {
        let failed = |error| Error::invalid("Zstandard can't compress").because(error);
        let compressor = match &mut self.zstd {
            Some(compressor) => compressor,
            None => self.zstd.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(failed)?),
        };
        self.scratch.resize(zstd::zstd_safe::compress_bound(plain.len()), 0);
        let len = compressor.compress_to_buffer(plain, &mut self.scratch[..]).map_err(failed)?;
        Ok((len < plain.len()).then_some(len))
    }
}

/// The plain bytes of a stored chunk, verified: they have the length and the name that they should.
pub(crate) fn plain(stored: &Plain, plain_bytes: usize, name: &Hash) -> Result<Plain, Flaw> {
    let (&kind, bytes) = stored.split_first().ok_or("a chunk is empty")?;
    // A chunk that says it is a thousand times larger than what is stored of it is read in steps.
    let plain = match kind {
        NONE => stored.slice(1..stored.len()),
        LZ4 => Plain::from(unpack_lz4(bytes, plain_bytes)?),
        ZSTD => Plain::from(unpack_zstd(bytes, plain_bytes)?),
        _ => return Err("a chunk is compressed in a way that is not known"),
    };
    if plain.len() != plain_bytes || Hash::of(&plain) != *name {
        return Err("a chunk does not fit its hash");
    }
    Ok(plain)
}

/// No byte of LZ4 stands for more than 255.
const LZ4_RATIO: usize = 255;

fn unpack_lz4(bytes: &[u8], plain_bytes: usize) -> Result<Vec<u8>, Flaw> {
    const FLAW: Flaw = "a chunk can't be decompressed";
    if plain_bytes / LZ4_RATIO > bytes.len() {
        return Err(FLAW);
    }
    lz4_flex::block::decompress(bytes, plain_bytes).map_err(|_| FLAW)
}

/// No block of Zstandard has less than 4 bytes, or stands for more than 128 KiB.
const ZSTD_RATIO: usize = 32 * 1024;

fn unpack_zstd(bytes: &[u8], plain_bytes: usize) -> Result<Vec<u8>, Flaw> {
    const FLAW: Flaw = "a chunk can't be decompressed";
    // What the frame says of itself comes first: no memory is taken for what can't fit.
    if plain_bytes / ZSTD_RATIO > bytes.len() {
        return Err(FLAW);
    }
    let bound = zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten();
    if bound != Some(plain_bytes as u64) {
        return Err(FLAW);
    }
    zstd::bulk::decompress(bytes, plain_bytes).map_err(|_| FLAW)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    fn stored(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![9, 9, 9, 0];
        out.extend_from_slice(bytes);
        Compressor::new(compression).store(&mut out, 3).expect("it can be stored");
        out.split_off(3)
    }

    fn check(bytes: &[u8]) {
        for compression in ALL {
            let stored = stored(compression, bytes);
            assert!(stored.len() <= bytes.len() + 1);
            let read = plain(&Plain::from(stored), bytes.len(), &Hash::of(bytes));
            assert_eq!(read.as_deref(), Ok(bytes), "{compression:?}");
        }
    }

    #[test]
    fn what_can_be_made_smaller_is() {
        check(&[7; 100_000]);
        assert!(stored(Compression::Zstd, &[7; 100_000]).len() < 1000);
        assert!(stored(Compression::Lz4, &[7; 100_000]).len() < 1000);
    }

    /// A frame that says that it has 4 GiB, and has nothing.
    #[test]
    fn no_memory_is_taken_for_what_a_frame_only_claims() {
        let claim: u32 = u32::MAX;
        let frame = [&[ZSTD, 0x28, 0xB5, 0x2F, 0xFD, 0xA0][..], &claim.to_le_bytes()].concat();
        let claimed = zstd::zstd_safe::get_frame_content_size(&frame[1..]);
        assert_eq!(claimed.ok().flatten(), Some(u64::from(claim)));
        let flaw = plain(&Plain::from(frame), claim as usize, &Hash::of(b"")).err();
        assert_eq!(flaw, Some("a chunk can't be decompressed"));
    }

    /// The most that a frame can stand for is still read.
    #[test]
    fn zeros_come_back() {
        check(&vec![0; 8 << 20]);
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(0_u8..4, 1..2000)) {
            check(&bytes);
        }

        #[test]
        fn damage_is_found(
            bytes in prop::collection::vec(0_u8..4, 1..500), at: prop::sample::Index, bit in 0..8,
        ) {
            for compression in ALL {
                let mut stored = stored(compression, &bytes);
                let at = at.index(stored.len());
                stored[at] ^= 1_u8 << bit;
                let read = plain(&Plain::from(stored), bytes.len(), &Hash::of(&bytes));
                // A bit that means nothing may flip; bytes that are believed are the right ones.
                prop_assert!(read.is_err() || read.is_ok_and(|read| read[..] == bytes[..]));
            }
        }
    }
}
