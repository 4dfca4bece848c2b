//! What an operator remembers: keys, hashes, key groups, and tables that are frozen in O(1).
//!
//! # Idea
//!
//! A snapshot is a value. Keyed state lies in a [`Table`], which belongs to one task; [`Table::freeze`]
//! gives an immutable [`View`] of it and the task goes on with the next record, while another thread
//! encodes the view. They share pages, which the table copies before it writes to them, and no lock.
//!
//! One stable hash of a key's canonical bytes rules everything: which subtask owns the key, where its
//! entry lies in the table, and the order of entries in a snapshot. So a view is written as it is read,
//! without a sort, and the state of any range of key groups is one slice of a snapshot.
//!
//! ```text
//!  record ──► key ──► canonical bytes ──► hash ──┬─► key group ──► subtask
//!                     (encode_key)    (hash_key) │
//!                                                ▼
//!                         Table: pages in hash order ── freeze() ──► View ──► Frozen::visit
//!                           ▲ the task writes on                       (bytes in byte order)
//!                           └──────────────── decode_entry ◄──────────── snapshot
//! ```
//!
//! - [`key`]: canonical bytes, hash, key group, owner, and the check that a type can be a key.
//! - [`table`]: the heap table and its views.
//! - [`epoch`]: which writes a view takes along, and which are safe already.
//! - [`frozen`]: a view as sorted entries of bytes.
//! - [`operator`]: how elements of operator state are dealt at a restore.
//!
//! # Costs
//!
//! - An access to a table reads five pieces of memory, of which two lie outside the cache in a table
//!   that is much larger than it. There is no rehash: an insertion moves at most one segment (about
//!   5 000 entries).
//! - `freeze` copies one pointer per 200 000 to 400 000 entries. Each page (12 to 24 entries) is copied
//!   at its first write after a freeze, if the view is still alive: a view costs at most as much
//!   memory as the table had.
//! - A view knows what was changed since the last one that was confirmed, and shows it without a look
//!   at the rest.
//! - An entry takes its own size, 8 bytes for the hash, and about 10 for its page.
//! - Hashing a short key allocates nothing; encoding a view reuses its buffers.
//!
//! # Example
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use strandline_state::{Frozen, Table, check_key_type, decode_entry, hash_key, keyed_plain};
//!
//! # fn main() -> Result<(), strandline_state::Error> {
//! check_key_type::<String>()?;
//!
//! let mut scratch = Vec::new();
//! let mut counts: Table<String, u64> = Table::new();
//! for word in ["ebb", "flow", "ebb"] {
//!     let hash = hash_key(word, &mut scratch)?;
//!     *counts.get_or_insert_with(hash, &word.to_owned(), || 0) += 1;
//! }
//!
//! let view = counts.freeze();
//!
//! // The table goes on; the view stays.
//! let ebb = hash_key("ebb", &mut scratch)?;
//! counts.insert(ebb, "ebb".to_owned(), 100);
//! assert_eq!(view.get(ebb, &"ebb".to_owned())?, Some(2));
//!
//! // Whoever writes the view sees sorted bytes, and can be on another thread.
//! let frozen = keyed_plain(view);
//! let mut restored = Vec::new();
//! frozen.visit(&mut |key, value| {
//!     restored.push(decode_entry::<String, (), u64>(key, value));
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(restored.len(), 2);
//! for entry in restored {
//!     let (_hash, word, (), count) = entry?;
//!     assert_eq!(count, if word == "ebb" { 2 } else { 1 });
//! }
//! # Ok(())
//! # }
//! ```
//!
//! MSRV: 1.89.

pub mod epoch;
mod error;
pub mod frozen;
pub mod key;
pub mod operator;
pub mod table;

pub use epoch::{Epoch, Epochs};
pub use error::{Error, ErrorKind};
pub use frozen::{Entries, Frozen, decode_entry, keyed, keyed_plain};
pub use key::{
    HashRange, KeyGroup, KeyHash, MaxParallelism, check_key_type, decode_key, encode_key, hash_key,
    hash_key_bytes, hash_range, key_group, owner_of,
};
pub use operator::{broadcast, deal, union};
pub use table::{Shared, Table, View};
