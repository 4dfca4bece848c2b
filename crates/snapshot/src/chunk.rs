//! Chunks: where a run is cut, and the bytes of a piece.
//!
//! A chunk is cut *before* an entry when the chunk has at least [`MIN_BYTES`] and the entry draws
//! the lot: a number mixed from the first 8 bytes of its key must be below a bound that is
//! proportional to the entry's own size, so that a cut comes about every [`SPAN_BYTES`] whatever
//! the size of entries. The rule looks at nothing but the entry and the bytes since the last cut, so
//! the same entries are cut the same way on every host, and a change moves the cuts near it only.
//! At [`MAX_BYTES`] a chunk is cut in any case.

use crate::bytes::{Cursor, put_prefixed, put_varint};

/// No cut before a chunk has this many bytes.
pub(crate) const MIN_BYTES: usize = 16 * 1024;

/// Mean number of bytes from the minimum to the cut.
pub(crate) const SPAN_BYTES: u64 = 48 * 1024;

/// A cut comes no later than before the entry that would take the chunk beyond this.
pub(crate) const MAX_BYTES: usize = 256 * 1024;

/// The largest key.
pub const MAX_KEY_BYTES: usize = 16 << 20;

/// The largest value.
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// The key has this value.
    Put(&'a [u8]),
    /// The key has no value, whatever older runs say.
    Tombstone,
}

/// Whether to cut before an entry of this key and encoded size.
#[inline]
pub(crate) fn cuts(chunk_bytes: usize, key: &[u8], entry_bytes: usize) -> bool {
    if chunk_bytes < MIN_BYTES {
        return false;
    }
    if chunk_bytes + entry_bytes > MAX_BYTES {
        return true;
    }
    let bound = (entry_bytes as u64).saturating_mul(u64::MAX / SPAN_BYTES);
    mixed(leading(key)) < bound
}

/// The first 8 bytes of a key as a number, most significant first; zeros where there are fewer.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "keys sort as their bytes do")]
fn leading(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(first)
        }
    }
}

/// The finalizer of MurmurHash3: keys that begin alike draw unlike lots.
#[inline]
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    z = (z ^ (z >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    z ^ (z >> 33)
}

/// Appends an entry: key behind its length, then 0 for a tombstone, or the value's length plus one
/// and the value.
#[inline]
pub(crate) fn put_entry(out: &mut Vec<u8>, key: &[u8], value: Value<'_>) {
    put_prefixed(out, key);
    match value {
        Value::Tombstone => out.push(0),
        Value::Put(value) => {
            put_varint(out, value.len() as u64 + 1);
            out.extend_from_slice(value);
        }
    }
}

/// The entry at the cursor; `None` where the bytes are none.
pub(crate) fn take_entry<'a>(cursor: &mut Cursor<'a>) -> Option<(&'a [u8], Value<'a>)> {
    let key = cursor.prefixed()?;
    let value = match cursor.varint()? {
        0 => Value::Tombstone,
        len => Value::Put(cursor.take(usize::try_from(len - 1).ok()?)?),
    };
    Some((key, value))
}

/// At most this many bytes for an entry.
pub(crate) fn entry_bytes(key: &[u8], value: Value<'_>) -> usize {
    let value_len = match value {
        Value::Put(value) => value.len(),
        Value::Tombstone => 0,
    };
    varint_bytes(key.len()) + key.len() + varint_bytes(value_len + 1) + value_len
}

fn varint_bytes(value: usize) -> usize {
    let bits = (usize::BITS - value.leading_zeros()).max(1) as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_come_back(
            entries in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..300), prop::option::of(prop::collection::vec(any::<u8>(), 0..300))),
                0..20,
            ),
        ) {
            let mut out = Vec::new();
            let mut sizes = 0;
            for (key, value) in &entries {
                let value = value.as_deref().map_or(Value::Tombstone, Value::Put);
                put_entry(&mut out, key, value);
                sizes += entry_bytes(key, value);
            }
            prop_assert_eq!(out.len(), sizes);
            let mut cursor = Cursor::new(&out);
            for (key, value) in &entries {
                let value = value.as_deref().map_or(Value::Tombstone, Value::Put);
                prop_assert_eq!(take_entry(&mut cursor), Some((&key[..], value)));
            }
            prop_assert!(cursor.is_empty());
        }
    }
}
