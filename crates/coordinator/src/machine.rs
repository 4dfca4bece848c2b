//! The rules of the round, as a function of event and time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use strandline_barrier::{CheckpointId, CheckpointKind, CheckpointOptions};

use crate::history::History;
use crate::pending::{Pending, Round};
use crate::schedule::Schedule;
use crate::{
    Action, Attempt, CheckpointConfig, Event, Failure, Outcome, Plan, Purpose, Refusal, Status,
    TaskId,
};

#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;

/// Tickets that wait for a checkpoint, at most; a request beyond it is refused.
pub const TICKETS_LIMIT: usize = 1000;

/// A last checkpoint that has failed is tried again after this time, or after one interval if that
/// is shorter.
pub const LAST_RETRY: Duration = Duration::from_secs(1);

/// The coordinator of one attempt of a job.
///
/// Time is whatever the host counts from its own start, and never runs backwards: an earlier `now`
/// than the one before is taken as that one.
///
/// # Rules
///
/// Each with the test that shows it, in `machine/tests.rs`.
///
/// Starting a checkpoint:
/// 1. The first periodic trigger comes one interval after [`Event::Running`], the others on a fixed
///    grid from there (`periodic_triggers_keep_a_fixed_rate`).
/// 2. A periodic trigger that finds no slot, or the pause, waits. However long it waits, it is one
///    trigger, and it is followed by the next point of the grid: no burst
///    (`a_deferred_trigger_is_one_trigger`).
/// 3. The pause counts from the end of the checkpoint that ended last, completed or failed, and
///    holds back periodic triggers only (`the_pause_counts_from_the_end_of_the_last_one`).
/// 4. At most `max_concurrent` checkpoints are pending; one that is being published is
///    (`slots_are_never_exceeded`).
/// 5. A request skips the pause, and waits for a slot in its order, before a periodic trigger that
///    waits too; each is one checkpoint (`requests_skip_the_pause_and_wait_in_order`).
/// 6. Before all tasks run, and when the job is over, a request is refused, and says why
///    (`requests_are_refused_by_name`); so is one more than [`TICKETS_LIMIT`]
///    (`tickets_are_limited`).
/// 7. Triggers come one at a time: one is decided whole, then the next; ids only grow, and the id
///    of a failed checkpoint is burnt (`ids_only_grow`).
///
/// Ending it:
/// 8. It is published when every task has acknowledged, and completed when that has succeeded
///    (`all_tasks_acknowledge`).
/// 9. One publish is in flight at a time; of several that wait, the oldest is next
///    (`one_publish_at_a_time`).
/// 10. Completing one aborts all older ones as subsumed, acknowledged or not; so completed ids only
///     grow. Newer ones go on (`completing_subsumes_older_ones`).
/// 11. One decline aborts the whole (`one_decline_aborts`).
/// 12. It expires at trigger + timeout. Time passes before the event that comes with it, so an
///     acknowledgement is too late by the clock, not by whether a tick came first
///     (`expiry_is_by_the_clock`).
/// 13. Once its publish is in flight, nothing aborts it but the publish's own failure, neither
///     expiry nor decline nor shutdown: the manifest may be durable already, and a checkpoint that
///     exists must not be called aborted (`a_publish_in_flight_is_awaited`).
///
/// Counting failures:
/// 14. Declined, expired and not published ones count, each id once; subsumed ones and those
///     aborted with the job don't (`failures_are_counted_once`). A completed one resets the count,
///     and what comes late about it or older ones counts no more (`success_resets_the_count`).
/// 15. More than `tolerable_failures` fail the job: once, with the last cause. All others are
///     aborted, and no [`Action::Completed`] follows. A publish in flight is still awaited for the
///     record and its tickets; if it has succeeded, the next attempt restores it
///     (`too_many_failures_fail_the_job`).
///
/// Messages from the past:
/// 16. An acknowledgement that is late, doubled, of an unknown id, an unknown task or another
///     attempt changes nothing, and its handle is discarded
///     (`stray_acknowledgements_are_discarded`). Other strays change nothing
///     (`stray_messages_change_nothing`).
/// 17. Every handle is published once or discarded once. After [`Action::Publish`] it is the host's
///     (`tests/model.rs`).
///
/// Tasks that end:
/// 18. A trigger goes to sources that have not ended and to every task that has ended
///     (`ended_tasks_are_triggered_directly`).
/// 19. A task that ends is triggered at once for every checkpoint that still waits for it: the
///     barrier may never reach it (`a_task_that_ends_is_triggered_for_what_waits_for_it`).
/// 20. When all have ended, nothing is periodic any more. A last checkpoint is triggered as soon as
///     there is a slot, with or without an interval, and answers every request that waits or comes
///     (`the_last_checkpoint`). Those triggered before are not last
///     (`checkpoints_before_the_last_are_not_last`).
/// 21. A last checkpoint that has failed, tolerably, is tried again after [`LAST_RETRY`] or one
///     interval (`a_failed_last_checkpoint_is_tried_again`).
/// 22. After it has been completed nothing is triggered (`the_last_checkpoint`).
///
/// Leaving:
/// 23. A suspend is a request that ends periodic triggering. Requests that wait before it come
///     first; pending ones complete or are subsumed; later requests for a checkpoint are refused,
///     later suspends share it. After it nothing is triggered
///     (`suspend_is_the_last_before_a_stop`). If it fails, another may be asked for; periodic
///     triggers don't come back, since its barrier may have stopped the sources
///     (`a_failed_suspend_may_be_asked_for_again`).
/// 24. When all tasks have ended before it is triggered, the last checkpoint serves as suspend;
///     when they end after that, and the last checkpoint is completed first, that answers it
///     (`the_last_checkpoint_serves_as_suspend`).
/// 25. A shutdown aborts what is pending, refuses what waits, and starts nothing
///     (`shutdown_aborts_and_starts_nothing`).
#[derive(Debug)]
pub struct Machine<H> {
    config: CheckpointConfig,
    attempt: Attempt,
    /// Who acknowledges, and whether it is a source.
    tasks: BTreeMap<TaskId, bool>,
    ended: BTreeSet<TaskId>,
    phase: Phase,
    now: Duration,
    /// Invariant: greater than every id that was ever triggered.
    next: CheckpointId,
    /// Invariant: every id in it is greater than the last completed one.
    pending: BTreeMap<CheckpointId, Pending<H>>,
    /// Requests that wait for a slot.
    requests: VecDeque<(u64, Purpose)>,
    schedule: Schedule,
    /// No last checkpoint is triggered before this time.
    last_not_before: Duration,
    failures: u32,
    history: History,
}

/// What may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing yet.
    Starting,
    /// Everything.
    Running,
    /// What has been asked for, and the last checkpoint.
    Suspending,
    /// Nothing any more.
    Over(Refusal),
}

impl Phase {
    fn is_over(self) -> bool {
        matches!(self, Self::Over(_))
    }

    fn refusal(self, purpose: Purpose) -> Option<Refusal> {
        match (self, purpose) {
            (Self::Starting, _) => Some(Refusal::NotRunning),
            (Self::Suspending, Purpose::Checkpoint) => Some(Refusal::Suspending),
            (Self::Running, _) | (Self::Suspending, Purpose::Suspend) => None,
            (Self::Over(refusal), _) => Some(refusal),
        }
    }
}

impl<H> Machine<H> {
    /// A coordinator at rest. Ids are handed out from `first` on, which must be greater than any id
    /// that the job has used before. A `config` that does not
    /// [validate](CheckpointConfig::validate) is taken as the nearest one that does.
    #[must_use]
    pub fn new(
        config: CheckpointConfig,
        plan: Plan,
        attempt: Attempt,
        first: CheckpointId,
    ) -> Self {
        let config = config.clamped();
        Self {
            attempt,
            tasks: plan.tasks.iter().map(|task| (task.id, task.source)).collect(),
            ended: BTreeSet::new(),
            phase: Phase::Starting,
            now: Duration::ZERO,
            next: first,
            pending: BTreeMap::new(),
            requests: VecDeque::new(),
            schedule: Schedule::new(config.interval, config.min_pause),
            last_not_before: Duration::ZERO,
            failures: 0,
            history: History::default(),
            config,
        }
    }

    /// Lets time pass to `now`, takes the event, and appends what is to be done to `actions`, in
    /// order.
    pub fn handle(&mut self, event: Event<H>, now: Duration, actions: &mut Vec<Action<H>>) {
        self.now = self.now.max(now);
        self.schedule.advance(self.now);
        self.expire(actions);
        self.take(event, actions);
        self.start(actions);
        self.publish(actions);
    }

    /// When [`Event::Tick`] is needed next: a checkpoint expires, or one may start. `None`: time
    /// alone changes nothing.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let expiries = self.open().map(|(_, pending)| pending.expires_at);
        // What would come at the end of time never comes.
        expiries.chain(self.next_start()).min().filter(|&time| time < Duration::MAX)
    }

    /// The figures of this moment.
    #[must_use]
    pub fn status(&self) -> Status {
        self.history.status(self.failures)
    }

    fn take(&mut self, event: Event<H>, actions: &mut Vec<Action<H>>) {
        match event {
            Event::Running => self.run(),
            Event::Tick => {}
            Event::Request { ticket, purpose } => self.request(ticket, purpose, actions),
            Event::Acknowledged { attempt, id, task, handle } => {
                self.acknowledge(attempt, (id, task), handle, actions);
            }
            Event::Declined { attempt, id, task, reason } => {
                self.decline(attempt, (id, task), reason, actions);
            }
            Event::Ended { attempt, task } => self.end(attempt, task, actions),
            Event::Published { id, result } => self.published(id, result, actions),
            Event::Shutdown => self.shut_down(actions),
        }
    }

    fn run(&mut self) {
        if self.phase == Phase::Starting {
            self.phase = Phase::Running;
            self.schedule.start(self.now);
        }
    }
}

/// What starts a checkpoint.
impl<H> Machine<H> {
    fn request(&mut self, ticket: u64, purpose: Purpose, actions: &mut Vec<Action<H>>) {
        let crowded = (self.tickets() >= TICKETS_LIMIT).then_some(Refusal::TooManyRequests);
        if let Some(refusal) = self.phase.refusal(purpose).or(crowded) {
            actions.push(Action::Reply { ticket, outcome: Outcome::Refused(refusal) });
            return;
        }
        if purpose == Purpose::Suspend {
            self.phase = Phase::Suspending;
            self.schedule.stop();
        }
        match self.joinable(purpose) {
            Some(pending) => pending.tickets.push(ticket),
            None => self.requests.push_back((ticket, purpose)),
        }
    }

    fn tickets(&self) -> usize {
        let joined: usize = self.pending.values().map(|pending| pending.tickets.len()).sum();
        self.requests.len() + joined
    }

    /// The pending checkpoint that a new request is answered by: nothing can happen between the two
    /// that the request would not find in it.
    fn joinable(&mut self, purpose: Purpose) -> Option<&mut Pending<H>> {
        let joins = |pending: &&mut Pending<H>| {
            pending.last || (purpose, pending.purpose) == (Purpose::Suspend, Purpose::Suspend)
        };
        self.pending.values_mut().rev().find(joins)
    }

    /// Triggers all that may start now, one after another.
    fn start(&mut self, actions: &mut Vec<Action<H>>) {
        while self.has_slot()
            && let Some(round) = self.next_round()
        {
            self.trigger(round, actions);
        }
    }

    fn has_slot(&self) -> bool {
        // A count that does not fit is greater than any limit.
        u32::try_from(self.pending.len()).is_ok_and(|count| count < self.config.max_concurrent)
    }

    fn may_start(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Suspending)
    }

    fn next_round(&mut self) -> Option<Round> {
        if !self.may_start() {
            return None;
        }
        // From here on nothing is periodic any more.
        if self.all_ended() {
            return self.last_round();
        }
        self.requested_round().or_else(|| self.periodic_round())
    }

    fn last_round(&mut self) -> Option<Round> {
        if self.last_is_pending() || self.now < self.last_not_before {
            return None;
        }
        let tickets = self.requests.drain(..).map(|(ticket, _)| ticket).collect();
        Some(Round { purpose: Purpose::Checkpoint, last: true, tickets })
    }

    fn requested_round(&mut self) -> Option<Round> {
        let (ticket, purpose) = self.requests.pop_front()?;
        let mut tickets = vec![ticket];
        if purpose == Purpose::Suspend {
            // Behind a suspend only suspends are let in: they share it.
            tickets.extend(self.requests.drain(..).map(|(ticket, _)| ticket));
        }
        Some(Round { purpose, last: false, tickets })
    }

    fn periodic_round(&mut self) -> Option<Round> {
        let round = || Round { purpose: Purpose::Checkpoint, last: false, tickets: Vec::new() };
        self.schedule.take(self.now).then(round)
    }

    /// When time alone may start a checkpoint.
    fn next_start(&self) -> Option<Duration> {
        if !self.may_start() {
            return None;
        }
        if self.all_ended() {
            let starts = self.has_slot() && !self.last_is_pending();
            return starts.then_some(self.last_not_before);
        }
        self.schedule.next(self.has_slot())
    }

    fn trigger(&mut self, round: Round, actions: &mut Vec<Action<H>>) {
        let id = self.next;
        self.next = id.next();
        let purpose = round.purpose;
        self.history.triggered(id, (purpose, round.last), self.tasks.len(), self.now);
        actions.push(self.trigger_at(id, purpose, self.roots()));
        let tasks = self.tasks.keys().copied().collect();
        self.pending.insert(id, Pending::new(round, self.now, self.config.timeout, tasks));
    }

    fn trigger_at(&self, id: CheckpointId, purpose: Purpose, roots: Vec<TaskId>) -> Action<H> {
        let options = CheckpointOptions::new(CheckpointKind::Checkpoint, self.config.alignment);
        Action::Trigger { id, options, purpose, roots }
    }

    fn roots(&self) -> Vec<TaskId> {
        let is_root = |task: &TaskId, source: bool| source || self.ended.contains(task);
        self.tasks
            .iter()
            .filter(|&(task, &source)| is_root(task, source))
            .map(|(&task, _)| task)
            .collect()
    }
}

/// What tasks and storage say.
impl<H> Machine<H> {
    fn acknowledge(
        &mut self,
        attempt: Attempt,
        (id, task): (CheckpointId, TaskId),
        handle: H,
        actions: &mut Vec<Action<H>>,
    ) {
        let taken = match self.pending.get_mut(&id) {
            Some(pending) if attempt == self.attempt => pending.acknowledge(task, handle),
            Some(_) | None => Err(handle),
        };
        match taken {
            Ok(()) => self.history.acknowledged(id),
            Err(handle) => actions.push(Action::Discard { id, handles: vec![handle] }),
        }
    }

    fn decline(
        &mut self,
        attempt: Attempt,
        (id, task): (CheckpointId, TaskId),
        reason: String,
        actions: &mut Vec<Action<H>>,
    ) {
        let open = self.pending.get(&id).is_some_and(|pending| !pending.is_publishing());
        if open && attempt == self.attempt && self.tasks.contains_key(&task) {
            self.abort(id, Failure::Declined { task, reason }, actions);
        }
    }

    fn end(&mut self, attempt: Attempt, task: TaskId, actions: &mut Vec<Action<H>>) {
        let known = attempt == self.attempt && self.tasks.contains_key(&task);
        if !known || !self.ended.insert(task) {
            return;
        }
        for (&id, pending) in &self.pending {
            if pending.awaits(task) {
                actions.push(self.trigger_at(id, pending.purpose, vec![task]));
            }
        }
    }

    /// Asks for the next publish, if none is in flight.
    fn publish(&mut self, actions: &mut Vec<Action<H>>) {
        if self.pending.values().any(Pending::is_publishing) {
            return;
        }
        let mut waiting = self.pending.iter_mut();
        if let Some((&id, pending)) = waiting.find(|(_, pending)| pending.is_acknowledged()) {
            self.history.publishing(id);
            actions.push(Action::Publish { id, handles: pending.publish(), last: pending.last });
        }
    }

    fn published(
        &mut self,
        id: CheckpointId,
        result: Result<(), String>,
        actions: &mut Vec<Action<H>>,
    ) {
        if !self.pending.get(&id).is_some_and(Pending::is_publishing) {
            return;
        }
        match result {
            Ok(()) => self.complete(id, actions),
            Err(reason) => self.abort(id, Failure::PublishFailed { reason }, actions),
        }
    }
}

/// What ends a checkpoint.
impl<H> Machine<H> {
    fn complete(&mut self, id: CheckpointId, actions: &mut Vec<Action<H>>) {
        let Some(pending) = self.pending.remove(&id) else { return };
        let Pending { purpose, last, triggered_at, .. } = pending;
        self.history.completed(id, triggered_at, self.now);
        self.schedule.pause(self.now);
        self.failures = 0;
        if self.phase != Phase::Over(Refusal::JobFailed) {
            actions.push(Action::Completed { id, purpose, last });
        }
        reply(pending.tickets, &Outcome::Completed(id), actions);
        self.subsume(id, last, actions);
        if !self.phase.is_over() && last {
            self.close(Refusal::Finished, actions);
        } else if !self.phase.is_over() && purpose == Purpose::Suspend {
            self.close(Refusal::Suspended, actions);
        }
    }

    /// Aborts everything older than what has just been completed.
    fn subsume(&mut self, by: CheckpointId, last: bool, actions: &mut Vec<Action<H>>) {
        let older: Vec<_> = self.pending.range(..by).map(|(&id, _)| id).collect();
        for id in older {
            if let Some(pending) = self.pending.get_mut(&id)
                && last
                && pending.purpose == Purpose::Suspend
            {
                let tickets = std::mem::take(&mut pending.tickets);
                reply(tickets, &Outcome::Completed(by), actions);
            }
            self.abort(id, Failure::Subsumed { by }, actions);
        }
    }

    /// The end of every checkpoint that is not completed.
    fn abort(&mut self, id: CheckpointId, failure: Failure, actions: &mut Vec<Action<H>>) {
        let Some(mut pending) = self.pending.remove(&id) else { return };
        self.history.aborted(id, &failure, self.now);
        self.schedule.pause(self.now);
        if pending.last {
            let pause = self.config.interval.map_or(LAST_RETRY, |it| it.min(LAST_RETRY));
            self.last_not_before = self.now.saturating_add(pause);
        }
        actions.push(Action::Aborted { id, reason: failure.clone() });
        let handles = pending.take_handles();
        if !handles.is_empty() {
            actions.push(Action::Discard { id, handles });
        }
        reply(pending.tickets, &Outcome::Failed(failure.clone()), actions);
        if failure.counts() {
            self.count(failure, actions);
        }
    }

    fn count(&mut self, failure: Failure, actions: &mut Vec<Action<H>>) {
        self.failures = self.failures.saturating_add(1);
        if self.failures > self.config.tolerable_failures && !self.phase.is_over() {
            self.close(Refusal::JobFailed, actions);
            self.abort_open(&Failure::JobFailed, actions);
            actions.push(Action::FailJob { reason: failure });
        }
    }

    fn expire(&mut self, actions: &mut Vec<Action<H>>) {
        while let Some(id) = self.first_expired() {
            self.abort(id, Failure::Expired, actions);
        }
    }

    fn shut_down(&mut self, actions: &mut Vec<Action<H>>) {
        // A failed job stays one: a publish that is still in flight must not complete it.
        if self.phase != Phase::Over(Refusal::JobFailed) {
            self.close(Refusal::ShutDown, actions);
            self.abort_open(&Failure::ShutDown, actions);
        }
    }

    fn abort_open(&mut self, failure: &Failure, actions: &mut Vec<Action<H>>) {
        let open: Vec<_> = self.open().map(|(id, _)| id).collect();
        for id in open {
            self.abort(id, failure.clone(), actions);
        }
    }

    /// Nothing starts any more, for this reason.
    fn close(&mut self, refusal: Refusal, actions: &mut Vec<Action<H>>) {
        self.phase = Phase::Over(refusal);
        self.schedule.stop();
        let waiting = self.requests.drain(..).map(|(ticket, _)| ticket).collect();
        reply(waiting, &Outcome::Refused(refusal), actions);
    }
}

/// Plain questions.
impl<H> Machine<H> {
    /// Pending checkpoints whose end is still open: none of them is being published.
    fn open(&self) -> impl Iterator<Item = (CheckpointId, &Pending<H>)> {
        let open = self.pending.iter().filter(|(_, pending)| !pending.is_publishing());
        open.map(|(&id, pending)| (id, pending))
    }

    fn first_expired(&self) -> Option<CheckpointId> {
        self.open().find(|(_, pending)| pending.expires_at <= self.now).map(|(id, _)| id)
    }

    fn all_ended(&self) -> bool {
        self.ended.len() == self.tasks.len()
    }

    fn last_is_pending(&self) -> bool {
        self.pending.values().any(|pending| pending.last)
    }
}

fn reply<H>(tickets: Vec<u64>, outcome: &Outcome, actions: &mut Vec<Action<H>>) {
    let replies = tickets.into_iter();
    actions.extend(replies.map(|ticket| Action::Reply { ticket, outcome: outcome.clone() }));
}
