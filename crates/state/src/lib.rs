//! What an operator remembers: keys, hashes, key groups and state tables that are frozen in O(1).
