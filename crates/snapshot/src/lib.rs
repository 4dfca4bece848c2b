//! The bytes: a deduplicating, verifiable, crash-safe store of keyed sections.
//!
//! # Idea
//!
//! A *checkpoint* is a set of named *sections*, each a table of entries sorted by key. Entries are
//! written as *runs*; a run is cut into *chunks* by a rule that looks at nothing but the entries, and
//! a chunk is named by the BLAKE3 hash of its bytes. So a table that is written again costs only the
//! chunks that have changed. Chunks lie in *packs*, one for each writer and checkpoint, together
//! with each run's index. The *manifest* names runs, and publishing it is the commit point: one
//! create-if-absent, after all that it names is durable.
//!
//! ```text
//!  writer 0 ── entries ──► chunks ──► pack 0 ─┐
//!  writer 1 ── entries ──► chunks ──► pack 1 ─┤ durable
//!                                             ▼
//!                     manifest: section → runs (pack, index, hash, key range)
//!                        published: the checkpoint exists
//! ```
//!
//! A job has one writer, its [`Owner`], who claims it by a numbered fence: what anybody publishes
//! under a lower number from then on is void. The owner alone deletes. Readers need nobody's leave:
//! they hash every byte before they believe it. The crate knows nothing of streams; keys are bytes.
//!
//! # Costs
//!
//! A section is written as [all](Contents::All) that it has, or as what has
//! [changed](Contents::Changed) since the base; every checkpoint reads as a whole.
//!
//! - *All*: one hash over all bytes, and a write of the chunks that are new. Mean chunk 64 KiB. A value
//!   replaced by one of the same length rewrites its chunk; an entry that comes, goes or changes its
//!   length rewrites one to three. A table that has not changed costs its manifest.
//! - *Changed*: the changes, 3 % for keys' and values' lengths, filter (10 bits for each key), index (0.1
//!   %) and manifest; and [`Checkpoint::merge`], which keeps reading quick. Let B be the bytes of a
//!   section, D those that change at each checkpoint, uniformly, n = 1.25 · B / D, and d the
//!   smallest number with C(10 + d, d) ≥ n. Then
//!   - *written*: on average at most D · (d + 0.8): each change at most d times on its way through
//!     merges, and its share of a base that is written again when changes have 5/4 of its bytes. At 1
//!     %: n = 125, d = 3, at most 3.8 D; 3.2 D measured. One checkpoint: D and 4.6 D (or 48
//!     MiB), more only where a key would have more than 12 runs;
//!   - *read*: at any key at most 12 runs, where the writers of a checkpoint have ranges of keys that
//!     are apart; a point costs one chunk and, for one absent key in 80 per run, one more;
//!   - *space*: 2.25 B count at most, and at most 5/2 of that is stored: 5.6 B in the worst case, 3.6 B
//!     measured.
//! - *Clustered changes* touch few segments, and cost the same by their own bytes.
//!
//! Memory: a writer has one write buffer (1 MiB), the chunk in the making, and 8 bytes for each entry of
//! the run in the making (32 MiB of entries at most); the owner has the indexes of what it keeps (0.1 %).
//! Objects: a pack for each writer that has entries, one for merges, and the manifest, which names runs:
//! some 200 bytes for each. Reading: one hash over what is read, in pieces of a MiB; a range reads only
//! chunks that can hold it; a point comes from a cache of verified chunks (64 MiB unless
//! [said otherwise](Snapshot::with_cache_bytes)).
//!
//! # A checkpoint
//!
//! ```
//! use std::sync::Arc;
//! use std::ops::ControlFlow;
//! use strandline_snapshot::{Claim, Contents, JobId, MemoryStore, Owner, Snapshot, Store, verify};
//!
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
//! let job = JobId::for_name("demo");
//! let owner = Owner::claim(Arc::clone(&store), Claim::new("demo"))?;
//! let number = owner.first_checkpoint();
//! let checkpoint = owner.begin(number, owner.newest())?;
//!
//! let mut pack = checkpoint.writer("only")?;
//! let mut run = pack.section("counts", Contents::All, Vec::new())?;
//! run.push(b"apple", b"2")?;
//! run.push(b"pear", b"1")?;
//! run.finish()?;
//! let written = pack.finish()?;
//!
//! // Until this line the checkpoint does not exist.
//! owner.publish(number, vec![written], Vec::new(), 0)?;
//!
//! let snapshot = Snapshot::open(&store, job, number)?;
//! let mut keys = Vec::new();
//! snapshot.visit("counts", &mut |key, _value| {
//!     keys.push(key.to_vec());
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(keys, [b"apple".to_vec(), b"pear".to_vec()]);
//! assert!(verify(&store, job, number)?.problems.is_empty());
//! # Ok::<(), strandline_snapshot::Error>(())
//! ```
//!
//! The bytes are specified in `docs/format.md`. MSRV: 1.89.

mod block;
mod bytes;
mod cache;
mod chunk;
mod claim;
mod collect;
mod diff;
pub mod durable;
mod error;
mod fence;
mod filter;
mod hash;
mod history;
mod index;
mod job;
mod keep;
mod lease;
mod live;
mod manifest;
mod merge;
mod names;
mod nonce;
mod owner;
mod pack;
#[doc(hidden)]
pub mod pieces;
mod pin;
mod plain;
mod plan;
mod publish;
mod ranges;
mod retain;
mod run;
mod savepoint;
mod scan;
mod snapshot;
pub mod store;
mod usage;
mod verify;

pub use block::Compression;
pub use chunk::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use claim::{Attempt, Claim, Claimant};
pub use collect::{Garbage, garbage};
pub use diff::{Compared, Difference, SectionDiff, Tally, VisitCompared, diff};
pub use error::{Error, ErrorKind, Result};
pub use hash::Hash;
pub use history::{
    JobEntry, Listed, Location, has_taken_up, history, job_name, last_savepoint, list_jobs,
    resolve, split_job,
};
pub use job::JobId;
pub use keep::LocalCache;
pub use manifest::{Manifest, RunRef, Section};
pub use nonce::Nonce;
pub use owner::{Checkpoint, Owner, Published, Swept};
pub use pack::{Contents, PackWriter, RunWriter, Written};
pub use pin::Pin;
pub use ranges::KeyRange;
pub use savepoint::{SaveOptions, Saved, savepoint_name};
pub use snapshot::{Snapshot, VisitEntry};
pub use store::{LocalStore, Lock, Mapped, MemoryStore, Object, Store, Upload, open_store};
pub use usage::{Usage, usage};
pub use verify::{Lost, Problem, Progress, Report, verify};
