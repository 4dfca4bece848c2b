//! When the next periodic checkpoint is due.
//!
//! Triggers are planned on a fixed grid, one interval apart, so that they don't drift. What can't
//! start in time is remembered as one checkpoint that is due, however many points of the grid have
//! passed meanwhile: a stall is followed by one trigger, not by a burst.

use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The grid, and the pause.
#[derive(Debug)]
pub(crate) struct Schedule {
    interval: Option<Duration>,
    min_pause: Duration,
    /// The next point of the grid; `None` while nothing is periodic.
    planned: Option<Duration>,
    /// A point of the grid has passed, and its checkpoint has not started.
    due: bool,
    pause_until: Duration,
}

impl Schedule {
    pub(crate) fn new(interval: Option<Duration>, min_pause: Duration) -> Self {
        Self { interval, min_pause, planned: None, due: false, pause_until: Duration::ZERO }
    }

    /// The first trigger is planned one interval from now.
    pub(crate) fn start(&mut self, now: Duration) {
        self.planned = self.interval.map(|interval| now.saturating_add(interval));
    }

    pub(crate) fn stop(&mut self) {
        self.planned = None;
        self.due = false;
    }

    /// Notes that time has passed.
    pub(crate) fn advance(&mut self, now: Duration) {
        if let (Some(planned), Some(interval)) = (self.planned, self.interval)
            && let Some(late) = now.checked_sub(planned)
        {
            self.due = true;
            let rest = interval.saturating_sub(remainder(late, interval));
            self.planned = Some(now.saturating_add(rest));
        }
    }

    /// Notes that a checkpoint has ended, however: the pause begins again.
    pub(crate) fn pause(&mut self, now: Duration) {
        self.pause_until = now.saturating_add(self.min_pause);
    }

    /// Takes the checkpoint that is due, if there is one and the pause is over.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let starts = self.due && self.pause_until <= now;
        self.due &= !starts;
        starts
    }

    /// When [`take`](Self::take) may next say yes. Without a slot, what is due waits for something
    /// other than time.
    pub(crate) fn next(&self, has_slot: bool) -> Option<Duration> {
        match (self.due, has_slot) {
            (false, _) => self.planned,
            (true, true) => Some(self.pause_until),
            (true, false) => None,
        }
    }
}

/// `time` modulo `step`; the step is not zero.
fn remainder(time: Duration, step: Duration) -> Duration {
    let nanos = time.as_nanos() % step.as_nanos();
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).expect("a part of a Duration");
    let nanos = u32::try_from(nanos % NANOS_PER_SECOND).expect("less than a second");
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Starts at 0 with an interval of 10 s, lets time pass at these seconds, and takes at once.
    fn check(seconds: &[f64], expected: &[bool]) {
        let mut schedule = Schedule::new(Some(10 * SECOND), Duration::ZERO);
        schedule.start(Duration::ZERO);
        let taken: Vec<bool> = seconds
            .iter()
            .map(|&at| {
                let now = SECOND.mul_f64(at);
                schedule.advance(now);
                schedule.take(now)
            })
            .collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn the_grid_does_not_drift() {
        check(&[9.9, 10.0, 10.1, 20.5, 29.9, 30.0], &[false, true, false, true, false, true]);
    }

    #[test]
    fn a_stall_is_followed_by_one_trigger() {
        check(&[57.0, 57.0, 59.9, 60.0], &[true, false, false, true]);
        check(&[60.0, 60.0, 69.9, 70.0], &[true, false, false, true]);
    }

    #[test]
    fn extreme_times_neither_panic_nor_overflow() {
        for interval in [Duration::from_nanos(1), SECOND, Duration::MAX] {
            for now in [Duration::ZERO, SECOND, Duration::MAX] {
                let mut schedule = Schedule::new(Some(interval), Duration::MAX);
                schedule.start(now);
                schedule.advance(Duration::MAX);
                assert!(schedule.take(Duration::MAX));
                schedule.pause(now);
                assert!(schedule.next(true) >= Some(now));
            }
        }
    }
}
