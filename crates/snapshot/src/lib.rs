//! The bytes: a deduplicating, verifiable, crash-safe store of keyed sections.
