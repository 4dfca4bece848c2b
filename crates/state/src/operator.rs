//! Operator state: how its elements are dealt to the subtasks at a restore.
//!
//! | kind | every subtask gets |
//! |---|---|
//! | split | its share of all elements ([`deal`]) |
//! | union | all elements ([`union`]) |
//! | broadcast | one whole copy ([`broadcast`]) |
//!
//! All three are pure: equal arguments give equal shares. None of them makes up a subtask: a
//! parallelism of 0 gives no shares.

/// Deals elements in order: with n elements and p subtasks, everybody gets ⌊n/p⌋, and the first n mod p
/// subtasks get one more.
///
/// Each element is in exactly one share, as long as there is one.
pub fn deal<T>(elements: Vec<T>, parallelism: u32) -> Vec<Vec<T>> {
    let subtask_count = parallelism as usize;
    let share = elements.len().checked_div(subtask_count).unwrap_or(0);
    let one_more = elements.len().checked_rem(subtask_count).unwrap_or(0);
    let mut elements = elements.into_iter();
    (0..subtask_count)
        .map(|subtask| elements.by_ref().take(share + usize::from(subtask < one_more)).collect())
        .collect()
}

/// Gives all elements to everybody.
pub fn union<T: Clone>(elements: Vec<T>, parallelism: u32) -> Vec<Vec<T>> {
    vec![elements; parallelism as usize]
}

/// Gives a copy to everybody: subtask i gets that of old subtask i mod old parallelism. Nobody gets
/// anything when there are no copies.
pub fn broadcast<T: Clone>(copies: &[T], parallelism: u32) -> Vec<T> {
    copies.iter().cycle().take(parallelism as usize).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(count: u32, parallelism: u32, expected: &[&[u32]]) {
        let shares = deal((0..count).collect(), parallelism);
        assert_eq!(shares, expected);
    }

    #[test]
    fn dealing_is_even_and_in_order() {
        check(5, 2, &[&[0, 1, 2], &[3, 4]]);
        check(6, 2, &[&[0, 1, 2], &[3, 4, 5]]);
        check(2, 3, &[&[0], &[1], &[]]);
        check(0, 2, &[&[], &[]]);
        check(2, 0, &[]);
    }

    #[test]
    fn union_gives_all_to_everybody() {
        assert_eq!(union(vec![1, 2], 2), [[1, 2], [1, 2]]);
        assert!(union(vec![1], 0).is_empty());
    }

    #[test]
    fn broadcast_goes_round() {
        assert_eq!(broadcast(&["a", "b"], 5), ["a", "b", "a", "b", "a"]);
        assert_eq!(broadcast(&["a", "b"], 1), ["a"]);
        assert!(broadcast::<u8>(&[], 3).is_empty());
    }
}
