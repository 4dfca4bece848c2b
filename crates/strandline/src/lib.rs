//! Checkpointing for stateful stream processing: exactly-once jobs inside your own program.
//!
//! This crate has no logic of its own: it is the other crates under one name. MSRV: 1.89.
//!
//! ```text
//!  strandline ──► connectors ──► runtime ──► state, snapshot, coordinator ──► barrier
//! ```
//!
//! A job is described as a graph of streams and run by [`Environment::execute`]. While it runs, a
//! coordinator takes checkpoints of all its state at an interval. If the process dies, the same
//! program started again goes on from the newest one, and what the sinks have committed is the same
//! as if nothing had happened.
//!
//! ```
//! use strandline::connectors::file::{FileLines, FileSink};
//! use strandline::Environment;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (input, output) = (folder.path().join("input"), folder.path().join("output"));
//! # std::fs::write(&input, "to be or not to be\n")?;
//! let mut env = Environment::new();
//! env.checkpoint_storage(&folder.path().join("checkpoints").display().to_string());
//! env.from_source(FileLines::new(&input)?)
//!     .uid("lines")
//!     .flat_map(|line, out| out.extend(line.text.split(' ').map(str::to_owned)))
//!     .key_by(|word: &String| word.clone())
//!     .map_with_state(|word, _, count: &mut u64| {
//!         *count += 1;
//!         format!("{word} {count}")
//!     })
//!     .uid("counts")
//!     .sink_to(FileSink::new(&output))
//!     .uid("output");
//! let result = env.execute("readme")?;
//! assert_eq!(result.records_read, 1);
//!
//! let mut lines = Vec::new();
//! for entry in std::fs::read_dir(&output)? {
//!     let path = entry?.path();
//!     lines.extend(std::fs::read_to_string(path)?.lines().map(str::to_owned));
//! }
//! lines.sort();
//! assert_eq!(lines, ["be 1", "be 2", "not 1", "or 1", "to 1", "to 2"]);
//! # Ok(())
//! # }
//! ```
//!
//! Costs: a barrier costs a task a freeze, which does not depend on how much state there is, and
//! then one copy of each page that is written before the view is let go. Checkpoint bytes follow the
//! chunks that have changed. With the feature `launch` (on by default) come flags, signals and exit
//! codes for programs that are one job. With the feature `object-stores` (off by default, and about
//! 200 crates) come S3, Google Cloud Storage, Azure and HDFS for checkpoints.

pub use strandline_barrier as barrier;
pub use strandline_connectors as connectors;
pub use strandline_coordinator as coordinator;
pub use strandline_runtime as runtime;
pub use strandline_runtime::*;
pub use strandline_snapshot as snapshot;
pub use strandline_state as state;
#[cfg(feature = "object-stores")]
pub use strandline_store_object as store_object;

/// The programs of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
