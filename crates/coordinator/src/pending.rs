//! One checkpoint on its way: who has acknowledged, and with what.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use crate::{Purpose, TaskId};

/// A checkpoint between its trigger and its end.
#[derive(Debug)]
pub(crate) struct Pending<H> {
    pub(crate) purpose: Purpose,
    /// All tasks had ended when it was triggered.
    pub(crate) last: bool,
    /// Who waits for it.
    pub(crate) tickets: Vec<u64>,
    pub(crate) triggered_at: Duration,
    pub(crate) expires_at: Duration,
    missing: BTreeSet<TaskId>,
    handles: BTreeMap<TaskId, H>,
    /// Invariant: then nothing is missing, and the handles are gone.
    publishing: bool,
}

impl<H> Pending<H> {
    pub(crate) fn new(
        round: Round,
        triggered_at: Duration,
        timeout: Duration,
        tasks: BTreeSet<TaskId>,
    ) -> Self {
        Self {
            purpose: round.purpose,
            last: round.last,
            tickets: round.tickets,
            triggered_at,
            expires_at: triggered_at.saturating_add(timeout),
            missing: tasks,
            handles: BTreeMap::new(),
            publishing: false,
        }
    }

    /// Takes a task's handle, or gives it back if none is expected from this task.
    pub(crate) fn acknowledge(&mut self, task: TaskId, handle: H) -> Result<(), H> {
        if !self.missing.remove(&task) {
            return Err(handle);
        }
        self.handles.insert(task, handle);
        Ok(())
    }

    pub(crate) fn awaits(&self, task: TaskId) -> bool {
        self.missing.contains(&task)
    }

    pub(crate) fn is_publishing(&self) -> bool {
        self.publishing
    }

    /// Every task has acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.missing.is_empty()
    }

    /// Gives the handles away for publishing.
    pub(crate) fn publish(&mut self) -> Vec<(TaskId, H)> {
        self.publishing = true;
        mem::take(&mut self.handles).into_iter().collect()
    }

    /// What is to be discarded if it ends here.
    pub(crate) fn take_handles(&mut self) -> Vec<H> {
        mem::take(&mut self.handles).into_values().collect()
    }
}

/// A checkpoint that is about to be triggered.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) purpose: Purpose,
    pub(crate) last: bool,
    pub(crate) tickets: Vec<u64>,
}
