//! From a key to the subtask that owns it: canonical bytes, hash, key group, owner.
//!
//! ```text
//!  key ── encode_key ──► canonical bytes ── XXH3-64, seed 0 ──► hash ── ⌊hash·max/2⁶⁴⌋ ──► key group
//!                                                                                              │
//!                              subtask ◄──────────────────────── ⌊group·parallelism/max⌋ ◄─────┘
//! ```
//!
//! Bytes, hash and group of a key never change: they rule what a snapshot holds and who reads it. The
//! page `docs/keys.md` specifies them with golden vectors.

mod decode;
mod encode;
mod group;
mod short;
mod trace;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

pub use self::group::{HashRange, KeyGroup, MaxParallelism, hash_range, key_group, owner_of};
pub use self::trace::check_key_type;
use crate::error::Error;

/// How deep enums, options, lists and structs may lie in each other, in a key's value or its bytes.
const DEPTH_MAX: u32 = 64;

/// The hash of a key's canonical bytes. It rules partitioning, the layout of tables and the order of
/// entries in a snapshot.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct KeyHash(pub u64);

/// Appends the canonical bytes of a key.
///
/// They keep the order of keys (for types whose `Ord` compares what serde shows, in order), end by
/// themselves, and don't depend on the width of integers.
///
/// # Errors
/// [`KeyRefused`](crate::ErrorKind::KeyRefused): there is a float or a map in the key, or it is nested
/// deeper than 64 levels. `out` may then have part of the bytes.
#[inline]
pub fn encode_key<K: Serialize + ?Sized>(key: &K, out: &mut Vec<u8>) -> Result<(), Error> {
    key.serialize(encode::Encoder::new(out))
}

/// Reads a key from the front of the bytes; returns it with the bytes after it.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt): the bytes aren't the canonical ones of any such key.
pub fn decode_key<K: DeserializeOwned>(bytes: &[u8]) -> Result<(K, &[u8]), Error> {
    let mut rest = bytes;
    let key = K::deserialize(decode::Decoder::new(&mut rest))?;
    Ok((key, rest))
}

/// The hash of canonical bytes: XXH3, 64 bits, seed 0.
#[inline]
#[must_use]
pub fn hash_key_bytes(bytes: &[u8]) -> KeyHash {
    KeyHash(xxh3_64(bytes))
}

/// The hash of a key. Afterwards `scratch` has its canonical bytes, and nothing else.
///
/// Nothing is allocated once `scratch` is large enough, so keep it from call to call.
///
/// # Errors
/// As [`encode_key`].
#[inline]
pub fn hash_key<K: Serialize + ?Sized>(key: &K, scratch: &mut Vec<u8>) -> Result<KeyHash, Error> {
    scratch.clear();
    let mut short = None;
    key.serialize(encode::Encoder::noting(scratch, &mut short))?;
    match short {
        Some(short) if short.len == scratch.len() => Ok(KeyHash(short.hash())),
        _ => Ok(hash_key_bytes(scratch)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(hash_key_bytes(b""), KeyHash(0x2d06_8005_38d3_94c2));
        // The sanity buffer of the reference implementation, in its published lengths.
        let mut generator = 2_654_435_761_u64;
        let buffer: Vec<u8> = (0..2_367)
            .map(|_| {
                let byte = generator.to_le_bytes()[7];
                generator = generator.wrapping_mul(0x9E37_79B1_85EB_CA8D);
                byte
            })
            .collect();
        for (length, expected) in XXH3_SANITY {
            assert_eq!(hash_key_bytes(&buffer[..length]), KeyHash(expected), "length={length}");
        }
    }

    /// From `sanity_test_vectors.h` of xxHash (64 bits, seed 0).
    const XXH3_SANITY: [(usize, u64); 8] = [
        (0, 0x2D06800538D394C2),
        (1, 0xC44BDFF4074EECDB),
        (6, 0x27B56A84CD2D7325),
        (12, 0xA713DAF0DFBB77E7),
        (24, 0xA3FE70BF9D3510EB),
        (48, 0x397DA259ECBA1F11),
        (80, 0xBCDEFBBB2C47C90A),
        (195, 0xCD94217EE362EC3A),
    ];

    #[test]
    fn scratch_has_the_bytes_of_the_last_key_alone() {
        let mut scratch = vec![1, 2, 3];
        let hash = hash_key("ab", &mut scratch).unwrap();
        assert_eq!(scratch, b"ab\x00\x01");
        assert_eq!(hash, hash_key_bytes(b"ab\x00\x01"));
    }
}
