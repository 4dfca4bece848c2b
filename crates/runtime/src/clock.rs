//! The only place that reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::master::Now;

/// The machine's clocks, monotonic time counted from its making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Monotonic time since the clock was made.
    pub(crate) fn monotonic(self) -> Duration {
        self.origin.elapsed()
    }

    /// Both times.
    pub(crate) fn now(self) -> Now {
        Now { monotonic: self.monotonic(), unix_ms: unix_ms() }
    }
}

/// Wall clock, Unix milliseconds; 0 before the epoch.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
