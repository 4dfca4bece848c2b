//! Output kept in memory, for tests and examples. It does not outlive the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use strandline_runtime::sink::{Committable, Prepared, Sink, SinkOwner, SinkWriter};
use strandline_runtime::{CheckpointId, Error, ErrorKind, Result};

/// Keeps committed records. Clones share them, so a job that is started again in the same process
/// goes on with the output of the run before.
#[derive(Clone, Debug)]
pub struct CollectSink<T> {
    pieces: Arc<Mutex<Pieces<T>>>,
}

#[derive(Debug)]
struct Pieces<T> {
    staged: BTreeMap<String, Vec<T>>,
    committed: BTreeMap<String, Vec<T>>,
}

impl<T> Default for CollectSink<T> {
    fn default() -> Self {
        let pieces = Pieces { staged: BTreeMap::new(), committed: BTreeMap::new() };
        Self { pieces: Arc::new(Mutex::new(pieces)) }
    }
}

impl<T: Clone> CollectSink<T> {
    /// A sink without a record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All committed records, by checkpoint, then subtask, each subtask's in the order in which
    /// they were written.
    #[must_use]
    pub fn records(&self) -> Vec<T> {
        self.pieces.lock().committed.values().flatten().cloned().collect()
    }
}

impl<T> CollectSink<T> {
    /// Names sort by checkpoint.
    fn piece_name(id: CheckpointId, place: &str) -> String {
        format!("{:020}-{place}", id.0)
    }

    fn commit(&self, committables: &[Committable]) -> Result<()> {
        let mut pieces = self.pieces.lock();
        for Committable { name, .. } in committables {
            if let Some(records) = pieces.staged.remove(name) {
                pieces.committed.insert(name.clone(), records);
            } else if !pieces.committed.contains_key(name) {
                let text =
                    format!("output {name} was kept in memory, and is gone with its process");
                return Err(Error::new(ErrorKind::Sink, text));
            }
        }
        Ok(())
    }
}

impl<T: Send + 'static> Sink for CollectSink<T> {
    type Record = T;
    type Writer = Collector<T>;

    fn check_fresh(&self) -> Result<()> {
        if self.pieces.lock().committed.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Refused, "this sink has records of another job: make a new one"))
    }

    fn start_fresh(&self, _owner: &SinkOwner) -> Result<()> {
        self.pieces.lock().staged.clear();
        Ok(())
    }

    fn recover(
        &self,
        _: &SinkOwner,
        restored: CheckpointId,
        pending: Vec<Committable>,
    ) -> Result<()> {
        let after = Self::piece_name(restored.next(), "");
        if self.pieces.lock().committed.range(after..).next().is_some() {
            let text = format!("records were committed after checkpoint {restored}");
            return Err(Error::new(ErrorKind::Refused, text));
        }
        self.commit(&pending)?;
        self.pieces.lock().staged.clear();
        Ok(())
    }

    fn writer(&self, owner: &SinkOwner, subtask: u32) -> Result<Collector<T>> {
        let place = format!("{subtask:05}-{}", owner.token);
        Ok(Collector { sink: Self { pieces: Arc::clone(&self.pieces) }, place, open: Vec::new() })
    }
}

/// Collects the records of one subtask.
#[derive(Debug)]
pub struct Collector<T> {
    sink: CollectSink<T>,
    place: String,
    open: Vec<T>,
}

impl<T: Send + 'static> SinkWriter for Collector<T> {
    type Record = T;

    fn write(&mut self, batch: &mut Vec<T>) -> Result<()> {
        self.open.append(batch);
        Ok(())
    }

    fn prepare(&mut self, id: CheckpointId) -> Result<Prepared> {
        let make_durable = Box::new(|| Ok(()));
        let records = std::mem::take(&mut self.open);
        if records.is_empty() {
            return Ok(Prepared { committables: Vec::new(), make_durable });
        }
        let name = CollectSink::<T>::piece_name(id, &self.place);
        self.sink.pieces.lock().staged.insert(name.clone(), records);
        let committables = vec![Committable { checkpoint: id, name }];
        Ok(Prepared { committables, make_durable })
    }

    fn commit(&mut self, committables: &[Committable]) -> Result<()> {
        self.sink.commit(committables)
    }
}
