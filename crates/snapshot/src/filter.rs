//! Which keys a run surely doesn't hold: a Bloom filter in blocks of one cache line (Putze, Sanders
//! and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007).
//!
//! 10 bits for each key and 6 probes: about one absent key in 80 looks as if it were there.

use crate::bytes::Cursor;
use crate::chunk::mixed;

const BITS_PER_KEY: usize = 10;
const BLOCK_BYTES: usize = 64;
const BLOCK_BITS: usize = 8 * BLOCK_BYTES;
const PROBES: u32 = 6;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A number that stands for a key: equal keys have equal ones.
#[inline]
pub(crate) fn print(key: &[u8]) -> u64 {
    let mut h = (key.len() as u64).wrapping_mul(GOLDEN);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        h = mixed(h ^ u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        h = mixed(h ^ u64::from_le_bytes(word));
    }
    h
}

/// Where a print is looked for: its block, and the number that its bits are taken from.
#[inline]
fn probes(print: u64, blocks: usize) -> (usize, u64) {
    let block = (u128::from(print) * blocks as u128) >> 64;
    // Below `blocks`, so it fits.
    (usize::try_from(block).unwrap_or(0), mixed(print.wrapping_add(GOLDEN)))
}

/// Place and mask of the n-th bit in a block.
#[inline]
fn bit(bits: u64, n: u32) -> (usize, u8) {
    let bit = (bits >> (9 * n)) % BLOCK_BITS as u64;
    (usize::try_from(bit / 8).unwrap_or(0), 1 << (bit % 8))
}

/// The filter over these prints, as it is stored.
pub(crate) fn encode(prints: &[u64]) -> Vec<u8> {
    let blocks = (prints.len() * BITS_PER_KEY).div_ceil(BLOCK_BITS).max(1);
    let mut out = vec![0; 4 + blocks * BLOCK_BYTES];
    let (head, body) = out.split_at_mut(4);
    head.copy_from_slice(&u32::try_from(blocks).unwrap_or(u32::MAX).to_le_bytes());
    let (body, _) = body.as_chunks_mut::<BLOCK_BYTES>();
    for &print in prints {
        let (block, bits) = probes(print, blocks);
        let Some(block) = body.get_mut(block) else { continue };
        for n in 0..PROBES {
            let (at, mask) = bit(bits, n);
            if let Some(byte) = block.get_mut(at) {
                *byte |= mask;
            }
        }
    }
    out
}

/// A filter that has been read.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Blocks, one after the other.
    body: Vec<u8>,
    blocks: usize,
}

impl Filter {
    /// `None` where the bytes are no filter.
    pub(crate) fn decode(mut bytes: Vec<u8>) -> Option<Self> {
        let blocks = Cursor::new(&bytes).u32()? as usize;
        let fits = blocks > 0 && bytes.len() - 4 == blocks.checked_mul(BLOCK_BYTES)?;
        bytes.drain(..4);
        fits.then_some(Self { body: bytes, blocks })
    }

    /// False only if the key is not in the run.
    pub(crate) fn may_hold(&self, print: u64) -> bool {
        let (block, bits) = probes(print, self.blocks);
        let start = block * BLOCK_BYTES;
        let block = self.body.get(start..start + BLOCK_BYTES).unwrap_or_default();
        (0..PROBES).all(|n| {
            let (at, mask) = bit(bits, n);
            block.get(at).is_none_or(|byte| byte & mask != 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_that_is_there_is_never_denied(
            keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..200),
        ) {
            let prints: Vec<u64> = keys.iter().map(|key| print(key)).collect();
            let filter = Filter::decode(encode(&prints)).expect("it is a filter");
            prop_assert!(prints.iter().all(|print| filter.may_hold(*print)));
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), print: u64) {
            if let Some(filter) = Filter::decode(bytes) {
                filter.may_hold(print);
            }
        }
    }

    #[test]
    fn few_absent_keys_pass() {
        let prints: Vec<u64> = (0..100_000_u64).map(|key| print(&key.to_le_bytes())).collect();
        let filter = Filter::decode(encode(&prints)).expect("it is a filter");
        let absent = (100_000..200_000_u64).map(|key| print(&key.to_le_bytes()));
        let passed = absent.filter(|print| filter.may_hold(*print)).count();
        assert!(passed < 2_000, "about 1,250 are expected: {passed}");
    }
}
