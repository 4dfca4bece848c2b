//! The environment: where a job is described and started.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use strandline_coordinator::CheckpointConfig;
use strandline_snapshot::{Compression, JobId, Store, open_store, split_job};
use strandline_state::MaxParallelism;

use crate::graph::{Graph, NamedCount};
use crate::job::{JobHandle, JobResult};
use crate::source::Source;
use crate::stream::Stream;
use crate::{Error, ErrorKind, Result};

/// Settings of a job: plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobConfig {
    /// The job's id; made from its name unless given.
    pub id: Option<JobId>,
    /// Subtasks of each operator, at least 1.
    pub parallelism: u32,
    /// Key groups; at least the parallelism. May differ from one start to the next.
    pub max_parallelism: MaxParallelism,
    /// When checkpoints are taken.
    pub checkpoints: CheckpointConfig,
    /// How many completed checkpoints are kept, at least 1.
    pub retained_count: usize,
    /// Records that all sources together read a second, at most.
    pub rate: Option<u64>,
    /// Starts from nothing although there are checkpoints; those count no longer.
    pub fresh: bool,
    /// Starts from this savepoint, the URI of its folder, instead of from a checkpoint. Once the job
    /// has taken it up, a later start with the same savepoint goes on from the newest checkpoint.
    pub savepoint: Option<String>,
    /// Takes the job over from another process that may be alive; that one ends by itself.
    pub take_over: bool,
    /// How long another start must see no sign of life of this one, where checkpoint storage has no
    /// locks, before it takes over.
    pub lease: Duration,
    /// How checkpoints are compressed.
    pub compression: Compression,
    /// Keeps what is read of remote checkpoints, so that a restart reads it from here.
    pub local_cache: Option<LocalCacheConfig>,
}

/// A folder of this machine for what has been read from checkpoint storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalCacheConfig {
    /// The folder; jobs may share one.
    pub folder: PathBuf,
    /// The most that is kept in it.
    pub limit_bytes: u64,
}

impl Default for JobConfig {
    fn default() -> Self {
        Self {
            id: None,
            parallelism: 1,
            max_parallelism: MaxParallelism::default(),
            checkpoints: CheckpointConfig::default(),
            retained_count: 3,
            rate: None,
            fresh: false,
            savepoint: None,
            take_over: false,
            lease: Duration::from_secs(15),
            compression: Compression::default(),
            local_cache: None,
        }
    }
}

impl JobConfig {
    /// # Errors
    /// An option is out of its range.
    pub fn validate(&self) -> Result<()> {
        let max = u32::from(self.max_parallelism.get());
        if self.parallelism == 0 || self.parallelism > max {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "parallelism must be 1 to max parallelism ({max}): parallelism={}",
                    self.parallelism
                ),
            ));
        }
        if self.retained_count == 0 {
            return Err(Error::new(ErrorKind::Invalid, "at least one checkpoint must be retained"));
        }
        if self.lease < Duration::from_secs(1) {
            return Err(Error::new(ErrorKind::Invalid, "a lease lasts at least a second"));
        }
        if self.fresh && self.savepoint.is_some() {
            let text = "a job starts from nothing or from a savepoint, not from both";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if self.rate == Some(0) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the rate must be at least 1 record a second",
            ));
        }
        self.checkpoints
            .validate()
            .map_err(|error| Error::new(ErrorKind::Invalid, "checkpoint settings").because(error))
    }
}

/// Where checkpoints go.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// Named by a user: a root, or one job's folder under it.
    Uri(String),
    /// Handed over.
    Store(Arc<dyn Store>),
}

/// Describes one job and starts it.
///
/// Streams are made by [`Environment::from_source`] and end in sinks; [`Environment::execute`]
/// runs what has been described.
pub struct Environment {
    config: JobConfig,
    storage: Storage,
    shared: Rc<RefCell<Shared>>,
}

/// What the streams of one environment build together.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) graph: Graph,
    pub(crate) counts: Vec<NamedCount>,
    refused: Option<Error>,
}

impl Shared {
    /// Remembers the first thing that was wrong, for when the job is executed.
    pub(crate) fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("config", &self.config)
            .field("storage", &self.storage)
            .finish_non_exhaustive()
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment {
    /// One subtask per operator, and checkpoints in memory only, taken when the job ends.
    #[must_use]
    pub fn new() -> Self {
        Self::with_config(JobConfig::default())
    }

    /// The same with all settings given.
    #[must_use]
    pub fn with_config(config: JobConfig) -> Self {
        let storage = Storage::Store(Arc::new(strandline_snapshot::MemoryStore::default()));
        Self { config, storage, shared: Rc::default() }
    }

    /// The settings, to change.
    pub fn config(&mut self) -> &mut JobConfig {
        &mut self.config
    }

    /// Subtasks of each operator.
    pub fn set_parallelism(&mut self, parallelism: u32) {
        self.config.parallelism = parallelism;
    }

    /// Takes a checkpoint each `interval`.
    pub fn enable_checkpointing(&mut self, interval: Duration) {
        self.config.checkpoints.interval = Some(interval);
    }

    /// When checkpoints are taken, to change.
    pub fn checkpoint_config(&mut self) -> &mut CheckpointConfig {
        &mut self.config.checkpoints
    }

    /// Keeps checkpoints under this root: a path, `file:///…`, or `memory:name`. The folder of this
    /// job under the root will do as well.
    pub fn checkpoint_storage(&mut self, uri: &str) {
        self.storage = Storage::Uri(uri.to_owned());
    }

    /// Keeps checkpoints in a store of the caller's.
    pub fn checkpoint_store(&mut self, store: Arc<dyn Store>) {
        self.storage = Storage::Store(store);
    }

    /// The records of a source. State `splits`.
    pub fn from_source<S: Source>(&mut self, source: S) -> Stream<S::Record> {
        Stream::from_source(Rc::clone(&self.shared), source)
    }

    /// Starts the job, or says why it can't be: then nothing was started or changed.
    ///
    /// # Errors
    /// The graph or a setting is wrong; output, checkpoints or another owner stand in the way; the
    /// newest checkpoint can't be restored.
    pub fn start(self, name: &str) -> Result<JobHandle> {
        self.config.validate()?;
        let shared = std::mem::take(&mut *self.shared.borrow_mut());
        if let Some(error) = shared.refused {
            return Err(error);
        }
        shared.graph.check()?;
        crate::start::start(name, self.config, self.storage, shared.graph, shared.counts)
    }

    /// Runs the job and waits for its end.
    ///
    /// # Errors
    /// As [`Environment::start`]; and whatever made the job fail.
    pub fn execute(self, name: &str) -> Result<JobResult> {
        self.start(name)?.wait()
    }
}

/// The store, and the job folder that the URI named, if it named one.
pub(crate) fn open(storage: &Storage) -> Result<(Arc<dyn Store>, Option<JobId>)> {
    match storage {
        Storage::Store(store) => Ok((Arc::clone(store), None)),
        Storage::Uri(uri) => open_uri(uri),
    }
}

fn open_uri(uri: &str) -> Result<(Arc<dyn Store>, Option<JobId>)> {
    let unusable = |error: strandline_snapshot::Error| {
        Error::new(ErrorKind::Invalid, format!("checkpoint storage {uri:?} can't be used"))
            .because(error)
    };
    let (root, job) = split_job(uri).map_err(unusable)?;
    Ok((open_store(root).map_err(unusable)?, job))
}
