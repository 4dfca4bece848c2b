//! Key groups: the units in which keys are dealt to subtasks.
//!
//! A group is a range of hashes and a subtask owns a range of groups, so that every subtask's state is
//! one slice of a snapshot that is sorted by hash.

use serde::{Deserialize, Serialize};

use super::KeyHash;
use crate::error::{Error, ErrorKind};

/// How many key groups there are, and so how many subtasks can own keys: 1 to 32768, 128 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct MaxParallelism(u16);

impl MaxParallelism {
    /// The largest value: 32768.
    pub const MAX: Self = Self(1 << 15);

    /// Checks the range.
    ///
    /// # Errors
    /// [`OutOfRange`](ErrorKind::OutOfRange): `count` is 0 or more than 32768.
    pub fn new(count: u16) -> Result<Self, Error> {
        if (1..=Self::MAX.0).contains(&count) {
            return Ok(Self(count));
        }
        let text = format!("max parallelism must be 1 to 32768: max_parallelism={count}");
        Err(Error::new(ErrorKind::OutOfRange, text))
    }

    /// The number of key groups.
    #[inline]
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

impl Default for MaxParallelism {
    fn default() -> Self {
        Self(128)
    }
}

impl TryFrom<u16> for MaxParallelism {
    type Error = Error;

    fn try_from(count: u16) -> Result<Self, Error> {
        Self::new(count)
    }
}

impl From<MaxParallelism> for u16 {
    fn from(max: MaxParallelism) -> Self {
        max.0
    }
}

/// The number of a key group, below the max parallelism.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct KeyGroup(pub u16);

/// The key group of a hash: ⌊hash · max / 2⁶⁴⌋.
#[inline]
#[must_use]
pub fn key_group(hash: KeyHash, max: MaxParallelism) -> KeyGroup {
    let group = (u128::from(hash.0) * u128::from(max.0)) >> 64;
    KeyGroup(u16::try_from(group).expect("a group is below the max parallelism"))
}

/// The subtask that owns a key group: ⌊group · parallelism / max⌋.
///
/// It is below `parallelism` for every group below `max`.
#[inline]
#[must_use]
pub fn owner_of(group: KeyGroup, max: MaxParallelism, parallelism: u32) -> u32 {
    let owner = u64::from(group.0) * u64::from(parallelism) / u64::from(max.0);
    u32::try_from(owner).unwrap_or(u32::MAX)
}

/// The hashes from `first` to `last`, both among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashRange {
    /// The smallest hash.
    pub first: KeyHash,
    /// The largest hash.
    pub last: KeyHash,
}

impl HashRange {
    /// Whether the hash is in the range.
    #[must_use]
    pub fn contains(&self, hash: KeyHash) -> bool {
        self.first <= hash && hash <= self.last
    }
}

/// The hashes that one of `parallelism` subtasks owns. `None` where it owns none: it is not below
/// `parallelism`, or there are more subtasks than key groups and it goes without.
#[must_use]
pub fn hash_range(subtask: u32, parallelism: u32, max: MaxParallelism) -> Option<HashRange> {
    if subtask >= parallelism {
        return None;
    }
    let first_group = |subtask: u64| (subtask * u64::from(max.0)).div_ceil(u64::from(parallelism));
    let (begin, end) = (first_group(subtask.into()), first_group(u64::from(subtask) + 1));
    if begin == end {
        return None;
    }
    let first = KeyHash(u64::try_from(first_hash(begin, max)).ok()?);
    let last = KeyHash(u64::try_from(first_hash(end, max) - 1).ok()?);
    Some(HashRange { first, last })
}

/// The smallest hash of a group; 2⁶⁴ for the one after the last.
fn first_hash(group: u64, max: MaxParallelism) -> u128 {
    (u128::from(group) << 64).div_ceil(u128::from(max.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn max(count: u16) -> MaxParallelism {
        MaxParallelism::new(count).unwrap()
    }

    /// The ranges of all subtasks follow each other from 0 to the end, and both ends of each agree
    /// with the way from hash to owner.
    fn check(count: u16, parallelism: u32) {
        let max = max(count);
        let mut next = Some(0_u64);
        for subtask in 0..parallelism {
            let Some(range) = hash_range(subtask, parallelism, max) else { continue };
            assert_eq!(Some(range.first.0), next);
            next = range.last.0.checked_add(1);
            for hash in [range.first, range.last] {
                assert_eq!(owner_of(key_group(hash, max), max, parallelism), subtask);
            }
        }
        assert_eq!(next, None, "max={count} parallelism={parallelism}");
    }

    #[test]
    fn ranges_partition_all_hashes() {
        for count in [1, 2, 3, 7, 127, 128, 1000, 32_767, 32_768] {
            for parallelism in [1, 2, 3, 5, 127, 128, 129, 1000, 40_000] {
                check(count, parallelism);
            }
        }
    }

    #[test]
    fn a_subtask_may_own_nothing() {
        assert_eq!(hash_range(2, 3, max(2)), None);
        assert_eq!(hash_range(3, 3, max(128)), None);
        assert_eq!(hash_range(0, 0, max(128)), None);
        assert!(hash_range(0, u32::MAX, MaxParallelism::MAX).is_some());
    }

    #[test]
    fn max_parallelism_has_a_range() {
        assert_eq!(MaxParallelism::default().get(), 128);
        assert_eq!(max(32_768), MaxParallelism::MAX);
        for count in [0, 32_769] {
            let error = MaxParallelism::new(count).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfRange);
        }
        assert!(rmp_serde::from_slice::<MaxParallelism>(&[0]).is_err());
    }
}
