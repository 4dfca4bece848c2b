//! What has become of the checkpoints: counts, and the records of the latest ones.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strandline_barrier::CheckpointId;

use crate::{Failure, Purpose};

/// Records that a history keeps at most; the oldest goes first.
pub const HISTORY_LIMIT: usize = 100;

/// A coordinator's figures at one moment.
///
/// `triggered == completed + failed + subsumed + in_progress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Checkpoints started by this coordinator.
    pub triggered: u64,
    /// Of these, the completed ones.
    pub completed: u64,
    /// Of these, the ones that were declined, expired, not published, or aborted with the job.
    pub failed: u64,
    /// Of these, the ones that a newer one has made needless.
    pub subsumed: u64,
    /// Of these, the pending ones.
    pub in_progress: u64,
    /// Failures since the last completed checkpoint that count against the tolerable ones.
    pub failures_in_a_row: u32,
    /// The last completed one, and the time from its trigger to its end.
    pub last_completed: Option<(CheckpointId, Duration)>,
    /// Records of the latest ones, at most [`HISTORY_LIMIT`], ascending; failed ones stay in it.
    pub history: Vec<CheckpointRecord>,
}

/// What is known of one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// Its number.
    pub id: CheckpointId,
    /// What it is for.
    pub purpose: Purpose,
    /// All tasks had ended when it was triggered.
    pub last: bool,
    /// How far it has come.
    pub state: CheckpointState,
    /// When it was triggered, on the clock of `now`.
    pub triggered_at: Duration,
    /// From its trigger to its end; `None` while it is pending.
    pub duration: Option<Duration>,
    /// Why it was aborted.
    pub failure: Option<Failure>,
    /// Tasks that have acknowledged.
    pub acknowledged: u32,
    /// Tasks that take part.
    pub tasks: u32,
}

/// How far a checkpoint has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointState {
    /// Tasks are still to acknowledge, or another one is being published.
    Pending,
    /// All tasks have acknowledged, and the manifest is being made durable.
    Publishing,
    /// The manifest is durable.
    Completed,
    /// It has been given up.
    Aborted,
}

/// The counts and records behind a [`Status`].
#[derive(Debug, Default)]
pub(crate) struct History {
    triggered: u64,
    completed: u64,
    failed: u64,
    subsumed: u64,
    last_completed: Option<(CheckpointId, Duration)>,
    /// Ascending by id, so that one is found by bisection.
    records: VecDeque<CheckpointRecord>,
}

impl History {
    pub(crate) fn triggered(
        &mut self,
        id: CheckpointId,
        (purpose, last): (Purpose, bool),
        tasks: usize,
        now: Duration,
    ) {
        self.triggered += 1;
        if self.records.len() == HISTORY_LIMIT {
            self.records.pop_front();
        }
        self.records.push_back(CheckpointRecord {
            id,
            purpose,
            last,
            state: CheckpointState::Pending,
            triggered_at: now,
            duration: None,
            failure: None,
            acknowledged: 0,
            tasks: u32::try_from(tasks).expect("tasks are numbered by u32"),
        });
    }

    pub(crate) fn acknowledged(&mut self, id: CheckpointId) {
        if let Some(record) = self.record(id) {
            record.acknowledged += 1;
        }
    }

    pub(crate) fn publishing(&mut self, id: CheckpointId) {
        if let Some(record) = self.record(id) {
            record.state = CheckpointState::Publishing;
        }
    }

    pub(crate) fn completed(&mut self, id: CheckpointId, triggered_at: Duration, now: Duration) {
        self.completed += 1;
        let duration = now.saturating_sub(triggered_at);
        self.last_completed = Some((id, duration));
        if let Some(record) = self.record(id) {
            record.state = CheckpointState::Completed;
            record.duration = Some(duration);
        }
    }

    pub(crate) fn aborted(&mut self, id: CheckpointId, failure: &Failure, now: Duration) {
        match failure {
            Failure::Subsumed { .. } => self.subsumed += 1,
            Failure::Declined { .. }
            | Failure::Expired
            | Failure::PublishFailed { .. }
            | Failure::JobFailed
            | Failure::ShutDown => self.failed += 1,
        }
        if let Some(record) = self.record(id) {
            record.state = CheckpointState::Aborted;
            record.duration = Some(now.saturating_sub(record.triggered_at));
            record.failure = Some(failure.clone());
        }
    }

    pub(crate) fn status(&self, failures_in_a_row: u32) -> Status {
        Status {
            triggered: self.triggered,
            completed: self.completed,
            failed: self.failed,
            subsumed: self.subsumed,
            in_progress: self.triggered - self.completed - self.failed - self.subsumed,
            failures_in_a_row,
            last_completed: self.last_completed,
            history: self.records.iter().cloned().collect(),
        }
    }

    fn record(&mut self, id: CheckpointId) -> Option<&mut CheckpointRecord> {
        let index = self.records.binary_search_by_key(&id, |record| record.id).ok()?;
        self.records.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_record_goes_first_and_the_counts_stay() {
        let mut history = History::default();
        for id in 1..=130 {
            let id = CheckpointId(id);
            history.triggered(id, (Purpose::Checkpoint, false), 1, Duration::ZERO);
            history.aborted(id, &Failure::Expired, Duration::ZERO);
        }
        // One that has left the history still counts when it ends.
        history.triggered = 131;
        history.completed(CheckpointId(1), Duration::ZERO, Duration::from_secs(1));
        let status = history.status(0);
        assert_eq!((status.triggered, status.failed, status.completed), (131, 130, 1));
        assert_eq!(status.history.len(), HISTORY_LIMIT);
        assert_eq!(status.history.first().map(|record| record.id), Some(CheckpointId(31)));
        assert_eq!(status.last_completed, Some((CheckpointId(1), Duration::from_secs(1))));
    }
}
