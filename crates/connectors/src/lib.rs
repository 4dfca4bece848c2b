//! Sources and sinks: files that can be read again and written in two phases.
//!
//! # Idea
//!
//! A job comes back after a crash by reading again from the positions that a checkpoint kept, and
//! by committing or removing what it had staged. So a source must be able to read the same records
//! again from a position, and a sink must be able to tell, from what lies in its output, what has
//! been committed.
//!
//! ```text
//!  FileLines: file ── line 12, byte 90 ──► records
//!
//!  FileSink:  records ──► .open-… ──barrier──► .staged-… ──completed──► part-…
//!                                   (synced before the checkpoint)   (never replaces)
//! ```
//!
//! - [`mod@file`]: lines in, lines out; exactly once across crashes.
//! - [`generator`]: records made in the process, for benchmarks and tests.
//! - [`memory`]: output kept in memory, for tests and examples.
//!
//! # Costs
//!
//! Reading: one buffered pass, one allocation a line. Writing: one formatted line a record, handed to
//! the file in pieces of 64 KiB; per checkpoint and subtask that wrote something: one rename, one
//! sync of the file and of its folder (on a storage thread), one hard link, one unlink, two more
//! syncs of the folder at the commit. Output folders must be on a file system with hard links.
//!
//! # In two phases
//!
//! ```
//! use strandline_connectors::file::{FileLines, FileSink};
//! use strandline_runtime::CheckpointId;
//! use strandline_runtime::sink::{Sink, SinkOwner, SinkWriter};
//! use strandline_runtime::source::{Source, SplitReader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let input = folder.path().join("input");
//! std::fs::write(&input, "one\ntwo\n")?;
//! let mut lines = Vec::new();
//! let mut reader = FileLines::new(&input)?.open("input", None)?;
//! reader.read(1, &mut lines)?;
//! assert_eq!(reader.position().to_string(), "line 1 (byte 4)");
//!
//! let sink = FileSink::<String>::new(folder.path().join("output"));
//! let owner = SinkOwner { job: "0123456789abcdef0123456789abcdef".to_owned(), token: 1 };
//! sink.check_fresh()?;
//! let mut writer = sink.writer(&owner, 0)?;
//! writer.write(&mut vec![lines[0].text.clone()])?;
//! let prepared = writer.prepare(CheckpointId(1))?;
//! (prepared.make_durable)()?;
//! // Only when checkpoint 1 has been completed:
//! writer.commit(&prepared.committables)?;
//! let part = folder.path().join("output").join(&prepared.committables[0].name);
//! assert_eq!(std::fs::read_to_string(part)?, "one\n");
//! # Ok(())
//! # }
//! ```
//!
//! MSRV: 1.89.

pub mod file;
pub mod generator;
pub mod memory;
