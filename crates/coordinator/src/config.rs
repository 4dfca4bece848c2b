//! When checkpoints are taken, and how much failing is borne.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strandline_barrier::Alignment;

/// The shortest legal interval and timeout: below it a job would do nothing but checkpoints.
pub const SHORTEST: Duration = Duration::from_millis(10);

/// Settings of the coordinator. Plain data; [`validate`](Self::validate) checks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointConfig {
    /// Time between the triggers of periodic checkpoints; at least [`SHORTEST`]. `None`: only on
    /// request, and the last one when all input has ended.
    pub interval: Option<Duration>,
    /// Least time from the end of a checkpoint, completed or failed, to the next periodic trigger.
    /// With `max_concurrent` above 1 others may be pending meanwhile.
    pub min_pause: Duration,
    /// A checkpoint that is not being published this long after its trigger is aborted; at least
    /// [`SHORTEST`].
    pub timeout: Duration,
    /// Checkpoints pending at the same time; at least 1.
    pub max_concurrent: u32,
    /// Failures in a row that the job survives; `u32::MAX`: any number.
    pub tolerable_failures: u32,
    /// How tasks with several inputs wait for a barrier.
    pub alignment: Alignment,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            interval: None,
            min_pause: Duration::ZERO,
            timeout: Duration::from_secs(600),
            max_concurrent: 1,
            tolerable_failures: 0,
            alignment: Alignment::Aligned,
        }
    }
}

impl CheckpointConfig {
    /// Checks every option against its legal range.
    ///
    /// # Errors
    /// The first option that is outside of its range, by name.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Some(interval) = self.interval {
            at_least_shortest("interval", interval)?;
        }
        at_least_shortest("timeout", self.timeout)?;
        if self.max_concurrent == 0 {
            let value = self.max_concurrent.to_string();
            return Err(ConfigError { option: "max_concurrent", value, legal: "at least 1" });
        }
        Ok(())
    }

    /// The nearest legal settings.
    pub(crate) fn clamped(mut self) -> Self {
        self.interval = self.interval.map(|interval| interval.max(SHORTEST));
        self.timeout = self.timeout.max(SHORTEST);
        self.max_concurrent = self.max_concurrent.max(1);
        self
    }
}

fn at_least_shortest(option: &'static str, value: Duration) -> Result<(), ConfigError> {
    if value < SHORTEST {
        let value = format!("{value:?}");
        return Err(ConfigError { option, value, legal: "at least 10 ms" });
    }
    Ok(())
}

/// An option outside of its legal range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field of [`CheckpointConfig`].
    pub option: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it may be set to.
    pub legal: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { option, value, legal } = self;
        write!(f, "a checkpoint option must be {legal} option={option} value={value}")
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(&mut CheckpointConfig), expected: Option<&str>) {
        let mut config = CheckpointConfig::default();
        change(&mut config);
        assert_eq!(config.validate().err().map(|error| error.to_string()).as_deref(), expected);
        assert_eq!(config.clamped().validate(), Ok(()));
    }

    #[test]
    fn options_outside_their_range_are_named() {
        check(|_| (), None);
        check(|config| config.interval = Some(SHORTEST), None);
        check(|config| config.interval = Some(Duration::MAX), None);
        check(
            |config| config.interval = Some(Duration::from_millis(9)),
            Some("a checkpoint option must be at least 10 ms option=interval value=9ms"),
        );
        check(
            |config| config.timeout = Duration::ZERO,
            Some("a checkpoint option must be at least 10 ms option=timeout value=0ns"),
        );
        check(
            |config| config.max_concurrent = 0,
            Some("a checkpoint option must be at least 1 option=max_concurrent value=0"),
        );
    }
}
