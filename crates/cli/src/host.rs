//! What the process knows of its surroundings: clocks, and its own name.

use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Wall clock, Unix milliseconds; 0 before the epoch.
#[expect(clippy::disallowed_methods, reason = "a command has no caller to take the time from")]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Who reads or deletes, for those who meet its traces.
pub(crate) fn holder(command: &str) -> String {
    format!("strandline {command}, process {}", std::process::id())
}

/// For people; empty where it can't be found out.
pub(crate) fn name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// Waits.
pub(crate) fn pause(time: Duration) {
    let (_never, waiting) = mpsc::channel::<()>();
    waiting.recv_timeout(time).ok();
}
