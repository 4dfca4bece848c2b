//! Random interleavings of everything that can be said to a coordinator, on a small simulated job,
//! against a naive model of what must hold.
//!
//! The job's tasks answer triggers into a heap of mail. Mail is delivered late, twice and in any
//! order, among requests, ends of input, ticks, expiries, declines, failed publishes and messages
//! of an older attempt. The model follows each checkpoint and each handle through the actions. In the
//! end all mail is delivered, nothing fails any more, and one more checkpoint must be completed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::FileFailurePersistence;
use strandline_barrier::CheckpointId;
use strandline_coordinator::{
    Action, Attempt, CheckpointConfig, Event, Failure, Machine, Outcome, Plan, PlannedTask,
    Purpose, TaskId,
};

const ATTEMPT: Attempt = Attempt(1);
const CASES: u32 = 2000;

#[derive(Clone, Debug)]
enum Op {
    /// Time passes, by milliseconds.
    Advance(u64),
    Tick,
    Deliver(Index),
    /// Delivers a copy, which has a handle of its own; the original stays in the mail.
    Double(Index),
    /// The same from the attempt before.
    Stray(Index),
    /// What the next answers of tasks, or of storage, are going to be.
    Healthy(bool),
    Request(Purpose),
    EndInput(Index),
    Shutdown,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_u64..60).prop_map(Op::Advance),
        1 => (0_u64..400).prop_map(Op::Advance),
        4 => Just(Op::Tick),
        40 => any::<Index>().prop_map(Op::Deliver),
        3 => any::<Index>().prop_map(Op::Double),
        3 => any::<Index>().prop_map(Op::Stray),
        2 => Just(Op::Healthy(false)),
        6 => Just(Op::Healthy(true)),
        8 => Just(Op::Request(Purpose::Checkpoint)),
        1 => Just(Op::Request(Purpose::Suspend)),
        2 => any::<Index>().prop_map(Op::EndInput),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let last = prop_oneof![9 => Just(None), 1 => Just(Some(Op::Shutdown))];
    let ops = prop::collection::vec(op(), 0..120);
    (ops, last, any::<Index>()).prop_map(|(mut ops, last, at)| {
        if let Some(op) = last {
            ops.insert(at.index(ops.len() + 1), op);
        }
        ops
    })
}

fn config() -> impl Strategy<Value = CheckpointConfig> {
    let ms = |ms| prop::sample::select(ms).prop_map(Duration::from_millis);
    let interval = prop::option::of(ms(vec![20, 50, 1000]));
    let tolerable = prop::sample::select(vec![0, 1, 3, u32::MAX]);
    (interval, ms(vec![0, 0, 100]), ms(vec![100, 300, 5000]), 1_u32..=3, tolerable).prop_map(
        |(interval, min_pause, timeout, max_concurrent, tolerable_failures)| CheckpointConfig {
            interval,
            min_pause,
            timeout,
            max_concurrent,
            tolerable_failures,
            ..CheckpointConfig::default()
        },
    )
}

/// A task of the simulated job.
#[derive(Debug, Default)]
struct SimTask {
    source: bool,
    ended: bool,
    /// The newest checkpoint that it has answered.
    answered: CheckpointId,
}

/// Where a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    Published,
    Discarded,
}

/// A checkpoint as the model sees it.
#[derive(Debug)]
struct Live {
    triggered_at: Duration,
    acks: BTreeSet<TaskId>,
    publishing: bool,
}

/// What the events of a step may cause, beyond time.
#[derive(Debug)]
struct Cause {
    /// A handle that has just arrived.
    handle: Option<u32>,
    /// An acknowledgement that the model takes, if its checkpoint is still live then.
    ack: Option<(CheckpointId, TaskId)>,
    declined: Option<(CheckpointId, TaskId)>,
    published: Option<(CheckpointId, bool)>,
    shutdown: bool,
}

struct World {
    config: CheckpointConfig,
    machine: Machine<u32>,
    now: Duration,
    tasks: BTreeMap<TaskId, SimTask>,
    mail: Vec<Event<u32>>,
    healthy: bool,
    // The model.
    live: BTreeMap<CheckpointId, Live>,
    /// How each ended: completed or not.
    ended: BTreeMap<CheckpointId, bool>,
    handles: BTreeMap<u32, Fate>,
    /// Tasks whose end has been delivered.
    told_ended: BTreeSet<TaskId>,
    newest: CheckpointId,
    newest_completed: CheckpointId,
    last_end: Duration,
    periodic: u32,
    failures: u32,
    job_failed: bool,
    over: bool,
    suspending: bool,
    tickets: u64,
    replies: BTreeMap<u64, Outcome>,
}

impl World {
    fn new(config: CheckpointConfig, sources: u32, others: u32) -> Self {
        let ids = (0..sources + others).map(|id| (TaskId(id), id < sources));
        let planned = ids.clone().map(|(id, source)| PlannedTask { id, source });
        let plan = Plan { tasks: planned.collect() };
        let first = CheckpointId(5);
        let sim = |(id, source)| (id, SimTask { source, ..SimTask::default() });
        let mut world = Self {
            machine: Machine::new(config.clone(), plan, ATTEMPT, first),
            config,
            now: Duration::ZERO,
            tasks: ids.map(sim).collect(),
            mail: Vec::new(),
            healthy: true,
            live: BTreeMap::new(),
            ended: BTreeMap::new(),
            handles: BTreeMap::new(),
            told_ended: BTreeSet::new(),
            newest: CheckpointId(first.0 - 1),
            newest_completed: CheckpointId(0),
            last_end: Duration::ZERO,
            periodic: 0,
            failures: 0,
            job_failed: false,
            over: false,
            suspending: false,
            tickets: 0,
            replies: BTreeMap::new(),
        };
        world.tell(Event::Running);
        world
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Advance(ms) => self.now += Duration::from_millis(*ms),
            Op::Tick => self.tell(Event::Tick),
            Op::Deliver(index) => {
                if !self.mail.is_empty() {
                    let event = self.mail.swap_remove(index.index(self.mail.len()));
                    self.tell(event);
                }
            }
            Op::Double(index) => {
                if let Some(event) = self.copy(*index, ATTEMPT) {
                    self.tell(event);
                }
            }
            Op::Stray(index) => {
                if let Some(event) = self.copy(*index, Attempt(ATTEMPT.0 - 1)) {
                    self.tell(event);
                }
            }
            Op::Healthy(healthy) => self.healthy = *healthy,
            Op::Request(purpose) => self.request(*purpose),
            Op::EndInput(index) => self.end_input(*index),
            Op::Shutdown => self.tell(Event::Shutdown),
        }
    }

    fn request(&mut self, purpose: Purpose) {
        self.tickets += 1;
        self.suspending |= purpose == Purpose::Suspend;
        self.tell(Event::Request { ticket: self.tickets, purpose });
    }

    fn handle(&mut self) -> u32 {
        let handle = u32::try_from(self.handles.len()).expect("few handles");
        self.handles.insert(handle, Fate::Sent);
        handle
    }

    fn copy(&mut self, index: Index, attempt: Attempt) -> Option<Event<u32>> {
        let at = index.index(self.mail.len().max(1));
        let mut event = self.mail.get(at)?.clone();
        match &mut event {
            Event::Acknowledged { attempt: of, handle, .. } => {
                *of = attempt;
                *handle = self.handle();
            }
            Event::Declined { attempt: of, .. } | Event::Ended { attempt: of, .. } => *of = attempt,
            // Storage is not of an attempt, and answers once.
            Event::Published { .. } => return None,
            Event::Running | Event::Tick | Event::Request { .. } | Event::Shutdown => {}
        }
        Some(event)
    }

    /// A source ends at any time, another task when all sources have.
    fn end_input(&mut self, index: Index) {
        let drained = self.drained();
        let open = |task: &SimTask| !task.ended && (task.source || drained);
        let mut open: Vec<_> = self.tasks.iter_mut().filter(|(_, task)| open(task)).collect();
        let at = index.index(open.len().max(1));
        if let Some((id, task)) = open.get_mut(at) {
            task.ended = true;
            self.mail.push(Event::Ended { attempt: ATTEMPT, task: **id });
        }
    }

    fn drained(&self) -> bool {
        self.tasks.values().all(|task| task.ended || !task.source)
    }

    fn tell(&mut self, event: Event<u32>) {
        let cause = self.cause(&event);
        let mut actions = Vec::new();
        self.machine.handle(event, self.now, &mut actions);
        for action in actions {
            self.follow(action, &cause);
        }
        let too_many = self.failures > self.config.tolerable_failures;
        assert!(!too_many || self.over || cause.shutdown, "too many failures fail the job");
        self.settle(&cause);
    }

    fn cause(&mut self, event: &Event<u32>) -> Cause {
        let known = |attempt, task| attempt == ATTEMPT && self.tasks.contains_key(&task);
        let mut cause =
            Cause { handle: None, ack: None, declined: None, published: None, shutdown: false };
        match event {
            Event::Acknowledged { attempt, id, task, handle } => {
                cause.handle = Some(*handle);
                cause.ack = known(*attempt, *task).then_some((*id, *task));
            }
            Event::Declined { attempt, id, task, .. } => {
                cause.declined = known(*attempt, *task).then_some((*id, *task));
            }
            Event::Published { id, result } => cause.published = Some((*id, result.is_ok())),
            Event::Shutdown => cause.shutdown = true,
            Event::Ended { attempt, task } => {
                if known(*attempt, *task) {
                    self.told_ended.insert(*task);
                }
            }
            Event::Running | Event::Tick | Event::Request { .. } => {}
        }
        // An acknowledgement comes after the aborts of its step; it may complete its checkpoint.
        if let Some((id, task)) = cause.ack
            && let Some(live) = self.live.get_mut(&id)
            && (live.publishing || self.now < live.triggered_at + self.config.timeout)
            && !live.acks.insert(task)
        {
            cause.ack = None;
        }
        cause
    }

    fn follow(&mut self, action: Action<u32>, cause: &Cause) {
        match action {
            Action::Trigger { id, roots, .. } => self.triggered(id, &roots),
            Action::Publish { id, handles, .. } => self.publish(id, &handles),
            Action::Completed { id, .. } => {
                assert_eq!(cause.published, Some((id, true)));
                assert!(!self.job_failed, "nothing completes after the job has failed");
                self.completed(id);
            }
            Action::Aborted { id, reason } => self.aborted(id, &reason, cause),
            Action::Discard { id: _, handles } => {
                for handle in handles {
                    self.settle_handle(handle, Fate::Discarded);
                }
            }
            Action::Reply { ticket, outcome } => self.replied(ticket, outcome, cause),
            Action::FailJob { .. } => {
                assert!(!self.over, "a job fails once");
                assert!(self.failures > self.config.tolerable_failures, "and not too early");
                self.job_failed = true;
                self.over = true;
            }
        }
    }

    fn triggered(&mut self, id: CheckpointId, roots: &[TaskId]) {
        assert!(!self.over, "nothing starts when all is over");
        if let Some(live) = self.live.get(&id) {
            assert!(!live.publishing);
            let [root] = roots else { panic!("one task, again") };
            assert!(self.told_ended.contains(root) && !live.acks.contains(root));
        } else {
            self.started(id, roots);
        }
        self.answer(id, roots);
    }

    fn started(&mut self, id: CheckpointId, roots: &[TaskId]) {
        assert_eq!(id, self.newest.next(), "ids only grow");
        self.newest = id;
        let is_root = |(id, task): (&TaskId, &SimTask)| {
            (task.source || self.told_ended.contains(id)).then_some(*id)
        };
        let expected: Vec<TaskId> = self.tasks.iter().filter_map(is_root).collect();
        assert_eq!(roots, expected);
        let asked = u64::try_from(self.replies.len()).expect("few") < self.tickets;
        if !asked && self.told_ended.len() < self.tasks.len() {
            self.periodic += 1;
            let interval = self.config.interval.expect("nobody has asked for it");
            assert!(self.now >= interval * self.periodic, "no burst");
            let paused = self.last_end + self.config.min_pause;
            assert!(self.ended.is_empty() || self.now >= paused, "the pause holds");
        }
        let (triggered_at, acks) = (self.now, BTreeSet::new());
        self.live.insert(id, Live { triggered_at, acks, publishing: false });
        let max = self.config.max_concurrent;
        assert!(u32::try_from(self.live.len()).is_ok_and(|count| count <= max), "slots");
    }

    /// The tasks that a trigger reaches, and whether it comes through.
    fn answer(&mut self, id: CheckpointId, roots: &[TaskId]) {
        let source = |root| self.tasks.get(root).is_some_and(|task| task.source && !task.ended);
        let flows = roots.iter().any(source);
        let mut answering = Vec::new();
        for (&name, task) in &mut self.tasks {
            let reached = roots.contains(&name) || (flows && !task.source && !task.ended);
            if reached && task.answered < id {
                task.answered = id;
                answering.push(name);
            }
        }
        for (index, task) in answering.into_iter().enumerate() {
            let attempt = ATTEMPT;
            let event = if self.healthy || index > 0 {
                Event::Acknowledged { attempt, id, task, handle: self.handle() }
            } else {
                Event::Declined { attempt, id, task, reason: "no".to_owned() }
            };
            self.mail.push(event);
        }
    }

    fn publish(&mut self, id: CheckpointId, handles: &[(TaskId, u32)]) {
        assert!(!self.live.values().any(|live| live.publishing), "one publish at a time");
        let live = self.live.get_mut(&id).expect("only a pending checkpoint is published");
        live.publishing = true;
        let tasks: Vec<TaskId> = handles.iter().map(|&(task, _)| task).collect();
        assert_eq!(tasks, self.tasks.keys().copied().collect::<Vec<_>>());
        for &(_, handle) in handles {
            self.settle_handle(handle, Fate::Published);
        }
        let result = if self.healthy { Ok(()) } else { Err("no".to_owned()) };
        self.mail.push(Event::Published { id, result });
    }

    fn completed(&mut self, id: CheckpointId) {
        assert!(id > self.newest_completed, "completed ids only grow");
        self.newest_completed = id;
        self.failures = 0;
        self.end(id, true);
    }

    fn aborted(&mut self, id: CheckpointId, reason: &Failure, cause: &Cause) {
        let live = self.live.get(&id).expect("only a pending checkpoint is aborted");
        let publishing = live.publishing;
        let expired = self.now >= live.triggered_at + self.config.timeout;
        let just = match reason {
            Failure::Declined { task, .. } => !publishing && cause.declined == Some((id, *task)),
            Failure::Expired => !publishing && expired,
            Failure::PublishFailed { .. } => publishing && cause.published == Some((id, false)),
            Failure::Subsumed { by } => !publishing && *by > id && *by == self.newest_completed,
            Failure::JobFailed => !publishing && self.failures > self.config.tolerable_failures,
            Failure::ShutDown => !publishing && cause.shutdown,
        };
        assert!(just, "aborted {id} for no reason: {reason:?}");
        if reason.counts() {
            self.failures += 1;
        }
        self.end(id, false);
    }

    fn end(&mut self, id: CheckpointId, completed: bool) {
        self.live.remove(&id);
        self.last_end = self.now;
        assert_eq!(self.ended.insert(id, completed), None, "one end each");
    }

    fn replied(&mut self, ticket: u64, outcome: Outcome, cause: &Cause) {
        match &outcome {
            Outcome::Completed(id) => {
                // The record of a failed job is all that says so.
                if self.job_failed
                    && cause.published == Some((*id, true))
                    && self.live.contains_key(id)
                {
                    self.completed(*id);
                }
                assert_eq!(self.ended.get(id), Some(&true));
            }
            Outcome::Failed(_) | Outcome::Refused(_) => {}
        }
        assert_eq!(self.replies.insert(ticket, outcome), None, "one reply each");
    }

    fn settle_handle(&mut self, handle: u32, fate: Fate) {
        let before = self.handles.insert(handle, fate);
        assert_eq!(before, Some(Fate::Sent), "a handle ends once");
    }

    /// What must hold after every step.
    fn settle(&mut self, cause: &Cause) {
        // A failed job says nothing of a publish that has succeeded when nobody has asked for it.
        if let Some((id, true)) = cause.published
            && self.job_failed
            && self.live.contains_key(&id)
        {
            self.completed(id);
        }
        self.over |= cause.shutdown;
        self.over |= self.machine_is_over();
        let arrived = cause.handle.and_then(|handle| self.handles.get(&handle));
        let expected = cause.ack.is_some_and(|(id, _)| self.live.contains_key(&id));
        match arrived {
            Some(Fate::Discarded) => assert!(!expected, "a good handle was discarded"),
            Some(Fate::Sent | Fate::Published) => assert!(expected, "a bad handle was kept"),
            None => {}
        }
        let publishing = self.live.values().any(|live| live.publishing);
        for live in self.live.values().filter(|live| !live.publishing) {
            assert!(self.now < live.triggered_at + self.config.timeout, "expires in time");
            assert!(publishing || live.acks.len() < self.tasks.len(), "is published in time");
        }
        let status = self.machine.status();
        let live = u64::try_from(self.live.len()).expect("few");
        assert_eq!(status.in_progress, live);
        let ended = status.completed + status.failed + status.subsumed;
        assert_eq!(u64::try_from(self.ended.len()).expect("few"), ended);
        if let Some(deadline) = self.machine.deadline() {
            assert!(deadline > self.now, "a tick brings time on");
        }
    }

    /// The last checkpoint, or the one before the stop, has been completed.
    fn machine_is_over(&self) -> bool {
        let status = self.machine.status();
        status.history.iter().any(|record| {
            let ends = record.last || record.purpose == Purpose::Suspend;
            ends && self.ended.get(&record.id) == Some(&true)
        })
    }

    fn drain(&mut self) {
        while !self.mail.is_empty() {
            let event = self.mail.remove(0);
            self.tell(event);
        }
    }

    /// All mail comes in, nothing fails any more: one more checkpoint is completed, unless all is
    /// over, and nothing is left over.
    fn finish(&mut self) {
        self.healthy = true;
        self.drain();
        if self.drained() {
            for (&task, sim) in &mut self.tasks {
                sim.ended = true;
                self.mail.push(Event::Ended { attempt: ATTEMPT, task });
            }
        }
        self.drain();
        let was_over = self.over;
        let failed = self.machine.status().failed;
        let before = self.newest_completed;
        self.request(if self.suspending { Purpose::Suspend } else { Purpose::Checkpoint });
        let ticket = self.tickets;
        for _ in 0..200 {
            self.drain();
            if self.replies.contains_key(&ticket) {
                break;
            }
            self.now = self.machine.deadline().expect("somebody waits");
            self.tell(Event::Tick);
        }
        match self.replies.get(&ticket) {
            Some(Outcome::Completed(id)) => assert!(*id > before),
            Some(Outcome::Refused(_)) => assert!(was_over),
            outcome => panic!("no checkpoint any more: {outcome:?}"),
        }
        assert_eq!(self.machine.status().failed, failed, "nothing fails any more");
        self.tell(Event::Shutdown);
        self.drain();
        assert!(self.live.is_empty());
        assert!(self.handles.values().all(|&fate| fate != Fate::Sent), "no handle is lost");
        assert_eq!(u64::try_from(self.replies.len()).expect("few"), self.tickets);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_interleaving_keeps_the_rules(
        config in config(),
        sources in 1_u32..=2,
        others in 2_u32..=3,
        ops in ops(),
    ) {
        let mut world = World::new(config, sources, others);
        for op in &ops {
            world.apply(op);
        }
        world.finish();
    }
}
