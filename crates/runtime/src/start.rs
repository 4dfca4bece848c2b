//! How a job starts: what is checked, in which order, and what is changed when.
//!
//! 1. Everything that can be refused is checked without changing anything.
//! 2. The job is claimed: from here on this process is its one writer.
//! 3. Sinks start or recover: what the checkpoint names is committed.
//! 4. Tasks are built, their threads read their state back and run.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Sender, unbounded};
use strandline_barrier::CheckpointId;
use strandline_coordinator::{Attempt, Machine, Plan, TaskId};
use strandline_snapshot::{
    Attempt as ClaimAttempt, Claim, Claimant, JobId, Listed, LocalCache, Nonce, Owner, Snapshot,
    Store, has_taken_up, history, job_name, last_savepoint, open_store, verify,
};

use crate::board::Board;
use crate::checkpointing::{
    JobMetadata, Restored, decode_metadata, decode_value, storage as storage_error,
};
use crate::clock::{SystemClock, unix_ms};
use crate::environment::{JobConfig, LocalCacheConfig, Storage, open};
use crate::graph::{Graph, NamedCount, Part};
use crate::job::{JobHandle, Live, Resumed, Run, total};
use crate::master::{Desk, JobMaster, Parts};
use crate::messages::{Message, Request};
use crate::pace::Pace;
use crate::plan::{Planned, PlannedSeat, Planner};
use crate::progress::ProgressNote;
use crate::sink::{Committable, SinkOwner};
use crate::task::TaskCounters;
use crate::threads::{
    Drive, StorageThreads, Ticker, pause, start_master, start_task, start_ticker,
};
use crate::{Error, ErrorKind, Result};

/// Tasks are not restarted within a process: there is one attempt.
const ATTEMPT: Attempt = Attempt(1);

/// Whether the last owner is alive is looked at this often.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// How often the note of how far the sources have read is written.
const NOTE_INTERVAL: Duration = Duration::from_millis(20);

/// A checkpoint to go on from, opened.
struct Base {
    /// Says which savepoint it is, if it is one.
    savepoint: Option<String>,
    listed: Listed,
    snapshot: Arc<Snapshot>,
    metadata: JobMetadata,
}

/// Starts a job, or goes on with it.
pub(crate) fn start(
    name: &str,
    config: JobConfig,
    storage: Storage,
    graph: Graph,
    counts: Vec<NamedCount>,
) -> Result<JobHandle> {
    let (store, folder) = open(&storage)?;
    let id = identity(name, &config, folder)?;
    check_name(&store, id, name)?;
    // Before anything is started: that the folder can't be used must not come out at a restart.
    let cache = open_cache(&config)?;
    let base = find_base(&store, id, &config)?.map(|base| base.cached(cache));
    check_graph(&graph, id, base.as_ref())?;
    let clock = SystemClock::new();
    let owner = Arc::new(claim(&store, id, name, &config, base.as_ref(), clock)?);
    // Between the look above and the claim another owner may have added a checkpoint: its lock was
    // still held then, or it is void now. What was opened must be what the claim accepted.
    let accepted = owner.accepted().map(|listed| listed.checkpoint);
    let own = base.as_ref().filter(|base| base.savepoint.is_none());
    if accepted != own.map(|base| base.listed.checkpoint) {
        return Err(refused("another process has just worked on this job: start it again"));
    }
    let sink_owner = SinkOwner { job: id.to_string(), token: owner.token() };
    start_sinks(&graph, &sink_owner, base.as_ref())
        .map_err(|error| diagnosed(error, &store, id, base.as_ref()))?;
    match &base {
        // The run that finished may have died before its sinks had committed: now they have.
        Some(base) if base.metadata.finished => Ok(finished(id, base)),
        _ => {
            launch(Start { name, id, config, store, graph, counts, owner, sink_owner, base, clock })
        }
    }
}

/// An error of a restore, with what would not fail.
fn diagnosed(error: Error, store: &Arc<dyn Store>, id: JobId, base: Option<&Base>) -> Error {
    match base {
        Some(base) if error.kind() == ErrorKind::Restore && base.savepoint.is_none() => {
            with_way_out(error, store, id, base.listed.checkpoint)
        }
        Some(base) if base.metadata.finished => error.within("the job has already finished, but"),
        _ => error,
    }
}

/// The id given, or the one of the folder named (they must agree), or one made from the name.
fn identity(name: &str, config: &JobConfig, folder: Option<JobId>) -> Result<JobId> {
    if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
        let text = format!("the job name {name:?} must have 1 to 200 bytes, no control character");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let id = config.id.or(folder).unwrap_or_else(|| JobId::for_name(name));
    match folder {
        Some(folder) if folder != id => Err(refused(&format!(
            "the checkpoints of job {folder} are not those of job `{name}` ({id}): name the root \
             above it, or the folder of this job"
        ))),
        _ => Ok(id),
    }
}

/// The id must not be another job's.
fn check_name(store: &Arc<dyn Store>, id: JobId, name: &str) -> Result<()> {
    match job_name(store, id).map_err(unreadable)? {
        Some(other) if other != name => Err(refused(&format!(
            "the checkpoints of id {id} are those of job `{other}`, not of `{name}`: give another \
             id, or another root"
        ))),
        _ => Ok(()),
    }
}

/// The local folder that the job is told to use.
fn open_cache(config: &JobConfig) -> Result<Option<LocalCache>> {
    let open = |cache: &LocalCacheConfig| LocalCache::open(&cache.folder, cache.limit_bytes);
    let opened = config.local_cache.as_ref().map(open).transpose();
    opened.map_err(|error| {
        Error::new(ErrorKind::Invalid, "name another folder for the cache").because(error)
    })
}

impl Base {
    /// The same, read through a local folder if there is one.
    fn cached(self, cache: Option<LocalCache>) -> Self {
        let Some(cache) = cache else { return self };
        let snapshot = Snapshot::clone(&self.snapshot).with_local_cache(Arc::new(cache));
        Self { snapshot: Arc::new(snapshot), ..self }
    }
}

/// The newest completed checkpoint.
fn newest(store: &Arc<dyn Store>, id: JobId) -> Result<Option<Listed>> {
    let listed = history(store, id).map_err(unreadable)?;
    Ok(listed.into_iter().next_back())
}

/// What the job goes on from: nothing, the savepoint that it is told to take up, or its newest
/// checkpoint.
fn find_base(store: &Arc<dyn Store>, id: JobId, config: &JobConfig) -> Result<Option<Base>> {
    if config.fresh {
        return Ok(None);
    }
    let listed = newest(store, id)?;
    if let Some(uri) = &config.savepoint {
        let base = open_savepoint(uri)?;
        let identity = base.savepoint.as_deref().unwrap_or_default();
        if listed.is_none() || !has_taken_up(store, id, identity).map_err(unreadable)? {
            return Ok(Some(base));
        }
        tracing::info!("the savepoint was taken up before: goes on from the newest checkpoint");
    } else if listed.is_none() && last_savepoint(store, id).map_err(unreadable)?.is_some() {
        return Err(refused(
            "this job was started from a savepoint and has no checkpoint since: name the savepoint \
             again, or start fresh",
        ));
    }
    listed.map(|listed| open_base(store, id, listed)).transpose()
}

fn open_savepoint(uri: &str) -> Result<Base> {
    if let Some(what) = no_savepoint(uri) {
        return Err(refused(&format!(
            "{uri:?} is {what}, not a savepoint: make one of it by `strandline savepoint create`"
        )));
    }
    let opened = open_store(uri).and_then(|store| Snapshot::open_savepoint(&store, ""));
    // Nothing has been started: to start again would not help.
    let unusable = |error: strandline_snapshot::Error| {
        refused(&format!("savepoint {uri:?} can't be restored")).because(error)
    };
    let snapshot = opened.map_err(unusable)?;
    // A part of a copy that is missing is found before the job starts, not in its midst.
    let report = snapshot.verify(&mut |_| ControlFlow::Continue(())).map_err(unusable)?;
    if let Some(problem) = report.problems.first() {
        let text = format!("savepoint {uri:?} is not whole: {} {}", problem.object, problem.what);
        return Err(refused(&text));
    }
    let manifest = snapshot.manifest();
    let listed = Listed {
        checkpoint: manifest.checkpoint,
        token: manifest.token,
        created_ms: manifest.created_ms,
        full_bytes: manifest.full_bytes,
        written_bytes: manifest.written_bytes,
        damaged: None,
    };
    let metadata = decode_metadata(snapshot.metadata())?;
    let savepoint = Some(manifest.identity());
    Ok(Base { savepoint, listed, snapshot: Arc::new(snapshot), metadata })
}

/// What a URI names, if it looks like something else than a savepoint.
fn no_savepoint(uri: &str) -> Option<&'static str> {
    let last = uri.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if last.parse::<JobId>().is_ok() {
        return Some("the folder of a job");
    }
    let number = last.strip_prefix("chk-")?;
    number.parse::<u64>().is_ok().then_some("a checkpoint of a job")
}

fn open_base(store: &Arc<dyn Store>, id: JobId, listed: Listed) -> Result<Base> {
    let opened = Snapshot::open(store, id, listed.checkpoint).map_err(unreadable);
    let base = opened.and_then(|snapshot| {
        let metadata = decode_metadata(snapshot.metadata())?;
        Ok(Base { savepoint: None, listed: listed.clone(), snapshot: Arc::new(snapshot), metadata })
    });
    base.map_err(|error| with_way_out(error, store, id, listed.checkpoint))
}

/// Says which older checkpoint is whole.
pub(crate) fn with_way_out(error: Error, store: &Arc<dyn Store>, id: JobId, damaged: u64) -> Error {
    let older = history(store, id).unwrap_or_default();
    let whole = older.iter().rev().map(|listed| listed.checkpoint).find(|&checkpoint| {
        let report = (checkpoint < damaged).then(|| verify(store, id, checkpoint));
        report.is_some_and(|report| report.is_ok_and(|report| report.problems.is_empty()))
    });
    let hint = match whole {
        Some(whole) => format!(
            "the newest older checkpoint that is whole is {whole}: to go back to it, move \
             chk-{damaged} away"
        ),
        None => "no older checkpoint is whole".to_owned(),
    };
    let text = format!("checkpoint {damaged} can't be restored ({hint}): {}", error.full());
    Error::new(ErrorKind::Restore, text)
}

fn finished(id: JobId, base: &Base) -> JobHandle {
    let checkpoint = CheckpointId(base.listed.checkpoint);
    JobHandle { id, resumed: Some(resumed(base, None)), run: Run::Over(checkpoint) }
}

fn resumed(base: &Base, read_again: Option<u64>) -> Resumed {
    let age_ms = unix_ms().saturating_sub(base.listed.created_ms);
    Resumed {
        checkpoint: CheckpointId(base.listed.checkpoint),
        age: Duration::from_millis(age_ms),
        splits: base.metadata.splits.clone(),
        records_read: base.metadata.records_read,
        read_again,
    }
}

/// Every section of the checkpoint must have an operator; without one, sinks must be willing to
/// start.
fn check_graph(graph: &Graph, id: JobId, base: Option<&Base>) -> Result<()> {
    let Some(base) = base else {
        return for_sinks(graph, |sink| sink.check_fresh());
    };
    let known = graph.sections();
    let stored = base.snapshot.sections();
    let unknown: Vec<&str> = stored
        .iter()
        .copied()
        .filter(|section| !known.iter().any(|name| name == section))
        .collect();
    if unknown.is_empty() {
        warn_of_other_output(graph, &base.metadata);
        let restored = CheckpointId(base.listed.checkpoint);
        return for_sinks(graph, |sink| sink.check_recover(&id.to_string(), restored));
    }
    let text = format!(
        "checkpoint {} has state that no operator of this job takes: {}. Give the operators the \
         uids that they had (a sink that was there must be there again), or start fresh",
        base.listed.checkpoint,
        unknown.join(", ")
    );
    Err(refused(&text))
}

/// What was committed so far stays where it is: whoever reads the output must know.
fn warn_of_other_output(graph: &Graph, metadata: &JobMetadata) {
    for node in &graph.nodes {
        let Part::Sink(_, sink) = &node.part else { continue };
        let before = metadata.operators.iter().find(|operator| operator.uid == node.uid);
        let before = before.and_then(|operator| operator.output.clone());
        if let (Some(before), Some(now)) = (before, sink.output())
            && before != now
        {
            tracing::warn!(
                "sink `{}` goes on in {now}; what it has committed is in {before}",
                node.name
            );
        }
    }
}

fn for_sinks(
    graph: &Graph,
    mut call: impl FnMut(&dyn crate::graph::SinkPart) -> Result<()>,
) -> Result<()> {
    for node in &graph.nodes {
        if let Part::Sink(_, sink) = &node.part {
            call(&**sink).map_err(|error| error.within(&format!("sink `{}`", node.name)))?;
        }
    }
    Ok(())
}

fn claim(
    store: &Arc<dyn Store>,
    job: JobId,
    name: &str,
    config: &JobConfig,
    base: Option<&Base>,
    clock: SystemClock,
) -> Result<Owner> {
    let savepoint = base.filter(|base| base.savepoint.is_some());
    let claim = Claim {
        job,
        holder: format!("process {}", std::process::id()),
        host: host_name(),
        nonce: Nonce::random(),
        now_ms: unix_ms(),
        lease_ms: millis(config.lease),
        fresh: config.fresh,
        savepoint: savepoint.and_then(|base| base.savepoint.clone()),
        above: savepoint.map_or(0, |base| base.listed.checkpoint),
        take_over: config.take_over,
        compression: config.compression,
        ..Claim::new(name)
    };
    wait_for_claim(Claimant::new(Arc::clone(store), claim), clock).map_err(|error| {
        let kind = claim_kind(error.kind());
        Error::new(kind, format!("job `{name}` can't be started")).because(error)
    })
}

/// Where storage has no locks, a dead owner's lease must run out first.
fn wait_for_claim(
    mut claimant: Claimant,
    clock: SystemClock,
) -> strandline_snapshot::Result<Owner> {
    let mut told = false;
    loop {
        match claimant.attempt(millis(clock.monotonic()))? {
            ClaimAttempt::Claimed(owner) => return Ok(*owner),
            ClaimAttempt::Wait(wait_ms) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!(
                        "waits for a sign of life of the process that ran this job: wait_ms={wait_ms}"
                    );
                }
                pause(Duration::from_millis(wait_ms).min(LONGEST_WAIT));
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// For people; empty where it can't be found out.
fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_owned()).unwrap_or_default()
}

fn claim_kind(kind: strandline_snapshot::ErrorKind) -> ErrorKind {
    use strandline_snapshot::ErrorKind as Kind;
    if kind == Kind::Held {
        ErrorKind::Refused
    } else if kind == Kind::Damaged {
        ErrorKind::Restore
    } else {
        ErrorKind::Invalid
    }
}

fn start_sinks(graph: &Graph, owner: &SinkOwner, base: Option<&Base>) -> Result<()> {
    let Some(base) = base else {
        return for_sinks(graph, |sink| sink.start_fresh(owner));
    };
    let restored = CheckpointId(base.listed.checkpoint);
    let whole = base.slice(0, &JobConfig::default());
    for node in &graph.nodes {
        if let Part::Sink(_, sink) = &node.part {
            let mut pending: Vec<Committable> = Vec::new();
            whole.entries(&format!("{}/pending", node.uid), |_, value| {
                pending.push(decode_value(value)?);
                Ok(())
            })?;
            sink.recover(owner, restored, pending)
                .map_err(|error| error.within(&format!("sink `{}`", node.name)))?;
        }
    }
    Ok(())
}

/// All that a job is started from.
struct Start<'a> {
    name: &'a str,
    id: JobId,
    config: JobConfig,
    store: Arc<dyn Store>,
    graph: Graph,
    counts: Vec<NamedCount>,
    owner: Arc<Owner>,
    sink_owner: SinkOwner,
    base: Option<Base>,
    clock: SystemClock,
}

fn launch(start: Start<'_>) -> Result<JobHandle> {
    let clock = start.clock;
    let board = Arc::new(Board::default());
    let (outbox, inbox) = unbounded::<Message>();
    let planned = Planner {
        graph: &start.graph,
        config: &start.config,
        sink_owner: &start.sink_owner,
        reports: &outbox,
        pace: start.config.rate.map(|rate| Arc::new(Pace::new(rate))),
        base: start.base.as_ref().map(|base| &base.metadata),
    }
    .plan()?;
    let note = ProgressNote::new(&start.store, start.id);
    let resumed = start.base.as_ref().map(|base| resumed(base, read_again(&note, base)));
    let (executor, storage) = StorageThreads::start(start.storage_threads(), &outbox)?;
    let plan = Plan { tasks: planned.tasks.iter().map(PlannedSeat::spec).collect() };
    let Planned { tasks, operators, sources } = planned;
    let (desks, drives) = start.seat(tasks, clock, &board, &outbox);
    let first = CheckpointId(start.owner.first_checkpoint());
    let master = JobMaster::new(Parts {
        job_name: start.name.to_owned(),
        machine: Machine::new(start.config.checkpoints.clone(), plan, ATTEMPT, first),
        attempt: ATTEMPT,
        tasks: desks,
        operators,
        max_parallelism: start.config.max_parallelism.get(),
        owner: Arc::clone(&start.owner),
        retained_count: start.config.retained_count,
        inbox: inbox.clone(),
        outbox: outbox.clone(),
        executor,
        board: Arc::clone(&board),
        store: Arc::clone(&start.store),
        job: start.id,
        restored: start.base.as_ref().map(|base| base.listed.checkpoint),
    });
    let (master, ended) = start_master(master, inbox, clock, storage)?;
    let started = drives.into_iter().try_for_each(start_task);
    // While tasks restore, the counts are not yet what they were.
    let floor = start.base.as_ref().map_or(0, |base| base.metadata.records_read);
    let ticker = started
        .and_then(|()| note.map(|note| note_progress(note, sources.clone(), floor)).transpose());
    let ticker = ticker.inspect_err(|_| {
        // What has started ends before the error is told.
        drop(outbox.send(Message::Request(Request::Cancel)));
        ended.recv().ok();
    })?;
    let lease = give_signs_of_life(&start, &outbox)?;
    let counts = start.counts.into_iter().map(|of| (of.name, of.count)).collect();
    let live = Live { inbox: outbox, board, clock, sources, counts, master, ticker, lease, ended };
    Ok(JobHandle { id: start.id, resumed, run: Run::Live(live) })
}

impl Start<'_> {
    /// One for the manifests, and enough for tasks to write side by side.
    fn storage_threads(&self) -> usize {
        1 + self.config.parallelism.min(3) as usize
    }

    /// Parts each task into the master's side and the thread's.
    fn seat(
        &self,
        tasks: Vec<PlannedSeat>,
        clock: SystemClock,
        board: &Arc<Board>,
        outbox: &Sender<Message>,
    ) -> (BTreeMap<TaskId, Desk>, Vec<Drive>) {
        let mut desks = BTreeMap::new();
        let mut drives = Vec::new();
        for seat in tasks {
            desks.insert(seat.id, seat.desk);
            drives.push(Drive {
                id: seat.id,
                name: seat.name,
                task: seat.task,
                restored: self.base.as_ref().map(|base| base.slice(seat.subtask, &self.config)),
                parker: seat.parker,
                clock,
                board: Arc::clone(board),
                reports: outbox.clone(),
            });
        }
        (desks, drives)
    }
}

impl Base {
    /// The checkpoint as one subtask sees it.
    fn slice(&self, subtask: u32, config: &JobConfig) -> Restored {
        let own = self.savepoint.is_none();
        Restored {
            checkpoint: own.then_some(CheckpointId(self.listed.checkpoint)),
            snapshot: Arc::clone(&self.snapshot),
            subtask,
            parallelism: config.parallelism,
            max: config.max_parallelism,
        }
    }
}

/// Three times within the lease; the master hears when somebody has taken over.
fn give_signs_of_life(start: &Start<'_>, outbox: &Sender<Message>) -> Result<Ticker> {
    let owner = Arc::downgrade(&start.owner);
    let outbox = outbox.clone();
    start_ticker("lease", start.config.lease / 3, move || {
        // The last tick comes when the job has let go of it.
        let Some(owner) = owner.upgrade() else { return };
        match owner.renew(unix_ms()) {
            Err(error) if error.kind() == strandline_snapshot::ErrorKind::Fenced => {
                drop(outbox.send(Message::OwnerLost(storage_error(error))));
            }
            Err(error) => tracing::warn!("no sign of life could be given: {error}"),
            Ok(()) => {}
        }
    })
}

fn note_progress(
    mut note: ProgressNote,
    sources: Vec<Arc<TaskCounters>>,
    floor: u64,
) -> Result<Ticker> {
    start_ticker("progress-note", NOTE_INTERVAL, move || note.write(total(&sources).max(floor)))
}

fn read_again(note: &Option<ProgressNote>, base: &Base) -> Option<u64> {
    let noted = note.as_ref()?.read()?;
    Some(noted.saturating_sub(base.metadata.records_read))
}

fn refused(text: &str) -> Error {
    Error::new(ErrorKind::Refused, text)
}

/// Damage is a matter of the restore; anything else stands in the way of the start.
fn unreadable(error: strandline_snapshot::Error) -> Error {
    let damaged = error.kind() == strandline_snapshot::ErrorKind::Damaged;
    let kind = if damaged { ErrorKind::Restore } else { ErrorKind::Invalid };
    Error::new(kind, "checkpoints can't be read").because(error)
}
