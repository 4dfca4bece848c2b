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

    fn recover(&self, _: &SinkOwner, _: CheckpointId, pending: Vec<Committable>) -> Result<()> {
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
        let name = format!("{:010}-{}", id.0, self.place);
        let records = std::mem::take(&mut self.open);
        self.sink.pieces.lock().staged.insert(name.clone(), records);
        let committables = vec![Committable { checkpoint: id, name }];
        Ok(Prepared { committables, make_durable: Box::new(|| Ok(())) })
    }

    fn commit(&mut self, committables: &[Committable]) -> Result<()> {
        self.sink.commit(committables)
    }
}
