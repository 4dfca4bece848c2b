//! The job: a streaming runtime of step functions, checkpointed.
//!
//! # Idea
//!
//! A job is a graph of sources, operators, exchanges and sinks. It is cut at the exchanges; each
//! part runs as a number of parallel *tasks*, chains of fused operators. A task is a step function:
//! it takes a batch, runs it through its chain, and says what it waits for when it can't go on.
//! Only drivers park, read clocks and call storage, so the same tasks may be run by something else
//! than threads.
//!
//! ```text
//!  source task             operator task
//!  ┌───────────────┐ edge  ┌──────┬─────────────┐
//!  │ reader → map ─┼──────►│ gate │ state → sink │──► staged output
//!  └───────▲───────┘       └──────┴──────┬──────┘
//!          │ trigger                     │ frozen views
//!      job master ◄── acknowledged ◄── storage threads ──► packs, manifest
//! ```
//!
//! A barrier enters at the sources and travels with the records. A task that has it from all its
//! inputs freezes the state of its whole chain, hands the frozen views to a storage thread, and goes
//! on. When all tasks' views are durable the manifest is published, and sinks commit.
//!
//! # Costs
//!
//! Per record: one virtual call, one channel operation and one clock reading for each *batch* of up
//! to 1,024, one key encoding and hash for each exchange, one table access for each stateful operator.
//! Per checkpoint: a freeze per task that does not depend on the size of state, a walk over what has
//! changed by storage threads, its bytes, and some three times as many for merging, on average.
//! Memory: four envelopes per channel, the state, and the pages that are written while a view is held.
//! Threads: one per task, one master, up to four for storage.
//!
//! # A job
//!
//! ```
//! use std::fmt;
//! use strandline_runtime::source::{Read, Source, SplitReader};
//! use strandline_runtime::{Environment, Result};
//!
//! /// The numbers below a limit; one split.
//! struct Numbers(u64);
//!
//! struct Reader(u64, u64);
//!
//! #[derive(Clone, serde::Serialize, serde::Deserialize)]
//! struct Next(u64);
//!
//! impl fmt::Display for Next {
//!     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
//!         write!(f, "number {}", self.0)
//!     }
//! }
//!
//! impl Source for Numbers {
//!     type Record = u64;
//!     type Position = Next;
//!     type Reader = Reader;
//!
//!     fn splits(&self) -> Result<Vec<String>> {
//!         Ok(vec!["numbers".to_owned()])
//!     }
//!
//!     fn open(&self, _: &str, position: Option<&Next>) -> Result<Reader> {
//!         Ok(Reader(position.map_or(0, |next| next.0), self.0))
//!     }
//! }
//!
//! impl SplitReader for Reader {
//!     type Record = u64;
//!     type Position = Next;
//!
//!     fn read(&mut self, max: usize, out: &mut Vec<u64>) -> Result<Read> {
//!         let end = self.1.min(self.0 + max as u64);
//!         out.extend(self.0..end);
//!         self.0 = end;
//!         Ok(if end == self.1 { Read::End } else { Read::More })
//!     }
//!
//!     fn position(&self) -> Next {
//!         Next(self.0)
//!     }
//! }
//!
//! let mut env = Environment::new();
//! env.set_parallelism(2);
//! env.from_source(Numbers(10_000))
//!     .uid("numbers")
//!     .key_by(|number| number % 7)
//!     .map_with_state(|_, number, sum: &mut u64| {
//!         *sum += number;
//!         *sum
//!     })
//!     .uid("sums")
//!     .discard();
//! let result = env.execute("sums")?;
//! assert_eq!(result.records_read, 10_000);
//! // A bounded job ends with a last checkpoint, with which everything is committed.
//! assert_eq!(result.checkpoints.len(), 1);
//! # Ok::<(), strandline_runtime::Error>(())
//! ```
//!
//! MSRV: 1.89.

mod board;
pub mod checkpointing;
mod clock;
mod environment;
mod error;
mod graph;
mod job;
#[cfg(feature = "launch")]
pub mod launch;
mod link;
mod master;
mod messages;
mod operator;
mod operator_task;
mod operators;
mod pace;
mod plan;
mod progress;
pub mod sink;
pub mod source;
mod source_task;
mod start;
mod stream;
mod task;
mod threads;
pub mod units;

pub use board::CompletedCheckpoint;
pub use environment::{Environment, JobConfig, LocalCacheConfig};
pub use error::{Error, ErrorKind, Result};
pub use job::{JobHandle, JobOutcome, JobProgress, JobResult, Resumed};
pub use operators::basic::OnBadRecord;
pub use operators::exchange::{Exchanged, Keyed};
pub use operators::keyed::{Key, StateValue};
pub use operators::timestamps::Timed;
pub use operators::window::{Aggregate, Window};
pub use strandline_barrier::CheckpointId;
pub use strandline_snapshot::durable;
pub use stream::{KeyedStream, SinkEnd, Stream, WindowedStream};
