//! Ranges of keys: for which keys a run speaks.

use serde::{Deserialize, Serialize};

use crate::hash::Blob;

/// Keys from the first on, before the second; without a second there is no end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange(pub(crate) Blob, pub(crate) Option<Blob>);

impl KeyRange {
    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self(Blob::default(), None)
    }

    pub(crate) fn new(first: &[u8], after: Option<&[u8]>) -> Self {
        Self(Blob(first.to_vec()), after.map(|after| Blob(after.to_vec())))
    }

    /// From one key to another, both within.
    pub(crate) fn spanning(first: &[u8], last: &[u8]) -> Self {
        let mut after = last.to_vec();
        after.push(0);
        Self(Blob(first.to_vec()), Some(Blob(after)))
    }

    /// The first key that it may hold.
    #[must_use]
    pub fn first(&self) -> &[u8] {
        &self.0.0
    }

    /// The first key after it, if it has an end.
    #[must_use]
    pub fn after(&self) -> Option<&[u8]> {
        self.1.as_ref().map(|after| &after.0[..])
    }

    /// Whether a key is in it.
    #[must_use]
    pub fn holds(&self, key: &[u8]) -> bool {
        self.first() <= key && !self.ends_by(key)
    }

    /// Whether it ends at or before a key.
    pub(crate) fn ends_by(&self, key: &[u8]) -> bool {
        self.after().is_some_and(|after| after <= key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends_by(self.first())
    }

    /// What two ranges have in common.
    pub(crate) fn common(&self, other: &Self) -> Option<Self> {
        let first = self.first().max(other.first());
        let after = match (self.after(), other.after()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let common = Self::new(first, after);
        (!common.is_empty()).then_some(common)
    }
}

/// Those of ascending ranges that have keys of another one.
pub(crate) fn overlapping<'a>(ranges: &'a [KeyRange], other: &KeyRange) -> &'a [KeyRange] {
    let first = ranges.partition_point(|range| range.ends_by(other.first()));
    let behind = ranges.get(first..).unwrap_or_default();
    let count = behind.partition_point(|range| !other.ends_by(range.first()));
    behind.get(..count).unwrap_or_default()
}

/// Whether a key is in one of ascending ranges.
pub(crate) fn hold(ranges: &[KeyRange], key: &[u8]) -> bool {
    let at = ranges.partition_point(|range| range.ends_by(key));
    ranges.get(at).is_some_and(|range| range.first() <= key)
}

/// What is left of ranges without another one.
pub(crate) fn without(ranges: &[KeyRange], cut: &KeyRange) -> Vec<KeyRange> {
    let mut left = Vec::with_capacity(ranges.len() + 1);
    for range in ranges {
        let Some(common) = range.common(cut) else {
            left.push(range.clone());
            continue;
        };
        let before = KeyRange::new(range.first(), Some(common.first()));
        let behind = common.after().map(|after| KeyRange::new(after, range.after()));
        left.extend([Some(before), behind].into_iter().flatten().filter(|part| !part.is_empty()));
    }
    left
}

/// Ascending, apart, and none empty.
pub(crate) fn are_well_formed(ranges: &[KeyRange]) -> bool {
    let apart = ranges.windows(2).all(|pair| match pair {
        [a, b] => a.ends_by(b.first()),
        _ => true,
    });
    apart && !ranges.iter().any(KeyRange::is_empty)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range() -> impl Strategy<Value = KeyRange> {
        (0_u8..30, prop::option::of(0_u8..30)).prop_map(|(first, after)| {
            KeyRange::new(&[first], after.map(|after| [after]).as_ref().map(|a| &a[..]))
        })
    }

    proptest! {
        #[test]
        fn without_is_without(ranges in prop::collection::vec(range(), 0..5), cut in range()) {
            let left = without(&ranges, &cut);
            for key in 0..40_u8 {
                let in_any = |ranges: &[KeyRange]| ranges.iter().filter(|range| range.holds(&[key])).count();
                let expected = if cut.holds(&[key]) { 0 } else { in_any(&ranges) };
                prop_assert_eq!(in_any(&left), expected, "key={}", key);
            }
            prop_assert!(ranges.iter().any(KeyRange::is_empty) || !left.iter().any(KeyRange::is_empty));
        }

        #[test]
        fn ascending_ranges_are_searched(ends in prop::collection::btree_set(0_u8..40, 0..12), other in range()) {
            let ends: Vec<u8> = ends.into_iter().collect();
            let pairs = ends.chunks_exact(2).map(|pair| KeyRange::new(&pair[..1], Some(&pair[1..])));
            let ranges: Vec<KeyRange> = pairs.collect();
            let expected: Vec<&KeyRange> =
                ranges.iter().filter(|range| range.common(&other).is_some()).collect();
            if !other.is_empty() {
                prop_assert_eq!(overlapping(&ranges, &other).iter().collect::<Vec<_>>(), expected);
            }
            for key in 0..40_u8 {
                let expected = ranges.iter().any(|range| range.holds(&[key]));
                prop_assert_eq!(hold(&ranges, &[key]), expected, "key={}", key);
            }
        }

        #[test]
        fn common_is_both(a in range(), b in range()) {
            let common = a.common(&b);
            for key in 0..40_u8 {
                let both = a.holds(&[key]) && b.holds(&[key]);
                prop_assert_eq!(common.as_ref().is_some_and(|common| common.holds(&[key])), both);
            }
        }
    }
}
