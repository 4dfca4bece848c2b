//! The hash of a key that is one integer, from a register.
//!
//! Most keys are integers. Their canonical bytes have to be written (as one store of 16 bytes), and
//! XXH3 reads two overlapping words of them. Processors can't serve such a load from the store that is
//! still on its way: the load waits until it has reached the cache, and all older stores with it, those
//! into the table among them. So the hash of one record would wait for the memory of the record before.
//! Here the same hash is computed from the number itself, and nothing is read back.
//!
//! XXH3 for up to 16 bytes, as its specification has it (Collet, "XXH3", the algorithm's description of
//! `XXH3_len_1to3`, `4to8` and `9to16`).

/// The first bytes of a key, the first one uppermost, and how many of them there are: 1 to 9.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    pub(super) tagged: u128,
    pub(super) len: usize,
}

/// The words of XXH3's default secret that short inputs use, each pair combined.
const FLIP_3: u64 = 0x8727_5A9B;
const FLIP_8: u64 = 0xC73A_B174_C5EC_D5A2;
const FLIP_LOW: u64 = 0x6782_737B_EA42_39B9;
const FLIP_HIGH: u64 = 0xAF56_BC3B_0996_523A;

impl Short {
    /// The same as XXH3 with 64 bits and seed 0 of the bytes.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        match self.len {
            0..=3 => self.hash_3(),
            4..=8 => self.hash_8(),
            _ => self.hash_16(),
        }
    }

    /// The eight bytes from the `at`-th on, as a little-endian number.
    #[inline]
    fn word(self, at: usize) -> u64 {
        lower(self.tagged << (8 * at) >> 64).swap_bytes()
    }

    #[inline]
    fn hash_16(self) -> u64 {
        let low = self.word(0) ^ FLIP_LOW;
        let high = self.word(self.len - 8) ^ FLIP_HIGH;
        let product = u128::from(low) * u128::from(high);
        let folded = lower(product) ^ lower(product >> 64);
        let sum = (self.len as u64).wrapping_add(low.swap_bytes()).wrapping_add(high);
        let mut h = sum.wrapping_add(folded);
        h = (h ^ (h >> 37)).wrapping_mul(0x1656_6791_9E37_79F9);
        h ^ (h >> 32)
    }

    fn hash_8(self) -> u64 {
        const MULTIPLIER: u64 = 0x9FB2_1C65_1E98_DF25;
        let len = self.len as u64;
        let first = self.word(0) & u64::from(u32::MAX);
        let last = self.word(self.len - 4) & u64::from(u32::MAX);
        let mut h = last.wrapping_add(first << 32) ^ FLIP_8;
        h ^= h.rotate_left(49) ^ h.rotate_left(24);
        h = h.wrapping_mul(MULTIPLIER);
        h ^= (h >> 35).wrapping_add(len);
        h = h.wrapping_mul(MULTIPLIER);
        h ^ (h >> 28)
    }

    fn hash_3(self) -> u64 {
        let byte = |at: usize| self.word(at) & 0xFF;
        let (first, middle, last) = (byte(0), byte(self.len >> 1), byte(self.len - 1));
        let combined = first << 16 | middle << 24 | last | (self.len as u64) << 8;
        let mut h = combined ^ FLIP_3;
        h = (h ^ (h >> 33)).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        h = (h ^ (h >> 29)).wrapping_mul(0x1656_67B1_9E37_79F9);
        h ^ (h >> 32)
    }
}

#[inline]
fn lower(wide: u128) -> u64 {
    u64::try_from(wide & u128::from(u64::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::{encode_key, hash_key, hash_key_bytes};

    #[test]
    fn the_words_are_those_of_the_secret() {
        const SECRET: [u8; 56] = [
            0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21,
            0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4,
            0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a,
            0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e,
        ];
        let word = |at: usize| u64::from_le_bytes(SECRET[at..at + 8].try_into().unwrap());
        let half =
            |at: usize| u64::from(u32::from_le_bytes(SECRET[at..at + 4].try_into().unwrap()));
        assert_eq!(half(0) ^ half(4), FLIP_3);
        assert_eq!(word(8) ^ word(16), FLIP_8);
        assert_eq!(word(24) ^ word(32), FLIP_LOW);
        assert_eq!(word(40) ^ word(48), FLIP_HIGH);
    }

    fn check<K: serde::Serialize>(key: K) {
        let (mut bytes, mut scratch) = (Vec::new(), b"before".to_vec());
        encode_key(&key, &mut bytes).unwrap();
        assert_eq!(hash_key(&key, &mut scratch).unwrap(), hash_key_bytes(&bytes));
        assert_eq!(scratch, bytes);
    }

    proptest! {
        #[test]
        fn integers_hash_as_their_bytes(value: u64, bits in 0_u32..64, other: i32) {
            check(value >> bits);
            check(-i64::try_from(value >> bits >> 1).unwrap());
            check(u16::try_from(value >> bits).unwrap_or(7));
            check((value >> bits, other));
            check((other, value >> bits));
            check(Some(value >> bits));
            check([other; 3]);
        }
    }

    #[test]
    fn borders() {
        for bits in 0..64 {
            check((1_u64 << bits) - 1);
            check(1_u64 << bits);
            check(-(1_i64 << bits.min(62)));
        }
        check(u64::MAX);
        check(i64::MIN);
    }
}
