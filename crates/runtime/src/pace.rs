//! A limit on how fast a job reads, shared by all its sources.

use std::time::Duration;

use parking_lot::Mutex;

/// Permits that come in at a steady rate. At most a twentieth of a second's worth is saved up, so
/// a job that was held up does not make up for it in one burst.
#[derive(Debug)]
pub(crate) struct Pace {
    per_s: f64,
    saved: Mutex<Saved>,
}

#[derive(Debug)]
struct Saved {
    permits: f64,
    at: Duration,
}

/// Waits are at least this long, so that a slow rate does not wake a task for each record's worth
/// of time.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

impl Pace {
    pub(crate) fn new(per_s: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate above 2^52 a second is no limit")]
        let per_s = per_s.max(1) as f64;
        Self { per_s, saved: Mutex::new(Saved { permits: 0.0, at: Duration::ZERO }) }
    }

    /// Between 1 and `want` permits, or the time at which there will be one.
    pub(crate) fn permits(&self, now: Duration, want: usize) -> Result<usize, Duration> {
        let mut saved = self.saved.lock();
        let passed = now.saturating_sub(saved.at).as_secs_f64();
        saved.permits = passed.mul_add(self.per_s, saved.permits).min((self.per_s / 20.0).max(1.0));
        saved.at = now.max(saved.at);
        if saved.permits < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - saved.permits) / self.per_s);
            return Err(now + wait.max(SHORTEST_WAIT));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and cut to `want` before it is used"
        )]
        let granted = (saved.permits as usize).min(want);
        #[expect(clippy::cast_precision_loss, reason = "at most one batch")]
        let taken = granted as f64;
        saved.permits -= taken;
        Ok(granted)
    }

    /// Returns permits that were not used.
    pub(crate) fn give_back(&self, permits: usize) {
        #[expect(clippy::cast_precision_loss, reason = "at most one batch")]
        let permits = permits as f64;
        self.saved.lock().permits += permits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_what_the_rate_allows_and_no_burst_after_a_pause() {
        let pace = Pace::new(1000);
        let mut granted = 0;
        for ms in 0..1000 {
            granted += pace.permits(Duration::from_millis(ms), 1024).unwrap_or(0);
        }
        assert!((990..=1000).contains(&granted), "granted={granted}");
        let burst = pace.permits(Duration::from_secs(60), 1024);
        assert_eq!(burst, Ok(50));
    }

    #[test]
    fn names_a_time_when_there_will_be_one() {
        let pace = Pace::new(10);
        let until = pace.permits(Duration::ZERO, 1).expect_err("nothing has been saved up yet");
        assert_eq!(pace.permits(until, 1), Ok(1));
    }
}
