//! Settings.

use std::time::Duration;

use strandline_snapshot::{Error, ErrorKind, Result};

/// How long to wait, how often to try, how much to hold in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// For one request and its reply. 20 s.
    pub request_timeout: Duration,
    /// For one call and all its attempts. 60 s.
    pub total_timeout: Duration,
    /// How often a request is made before its failure is told. 5.
    pub attempts: u32,
    /// Size of the parts of a large object, in bytes; the last may be smaller. Services take 10,000
    /// parts of an object, and none below 5 MiB. 8 MiB, so 80 GB for an object.
    pub part_bytes: usize,
}

/// What S3 asks of every part but the last.
const PART_BYTES_MIN: usize = 5 << 20;
/// Three of them are held in memory.
const PART_BYTES_MAX: usize = 1 << 30;

impl Default for Options {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(20),
            total_timeout: Duration::from_secs(60),
            attempts: 5,
            part_bytes: 8 << 20,
        }
    }
}

impl Options {
    pub(crate) fn check(self) -> Result<Self> {
        let wrong = |text: &str| Err(Error::new(ErrorKind::Invalid, text));
        if self.request_timeout.is_zero() || self.total_timeout < self.request_timeout {
            return wrong("0 < request_timeout <= total_timeout must hold");
        }
        if self.attempts == 0 {
            return wrong("there must be at least one attempt");
        }
        if !(PART_BYTES_MIN..=PART_BYTES_MAX).contains(&self.part_bytes) {
            return wrong("parts have 5 MiB to 1 GiB");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(options: Options) {
        let error = options.check().expect_err("the settings are wrong");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn limits() {
        let usual = Options::default();
        assert_eq!(usual.check().ok(), Some(usual));
        refused(Options { attempts: 0, ..usual });
        refused(Options { part_bytes: 5 << 19, ..usual });
        refused(Options { part_bytes: usize::MAX, ..usual });
        refused(Options { request_timeout: Duration::ZERO, ..usual });
        refused(Options { total_timeout: Duration::from_secs(1), ..usual });
    }
}
