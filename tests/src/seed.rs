//! Randomness that can be had again.

use std::time::{SystemTime, UNIX_EPOCH};

/// Random numbers from a seed (SplitMix64, Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Takes the seed from `STRANDLINE_SEED`, or else from the clock, and prints it.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a seed from nowhere, printed")]
    #[expect(clippy::print_stdout, reason = "a random test prints its seed")]
    pub fn from_env(test: &str) -> Self {
        let given = std::env::var("STRANDLINE_SEED").ok().and_then(|seed| seed.parse().ok());
        let state = given.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::from(since.subsec_nanos()) ^ (since.as_secs() << 20)
        });
        println!("{test}: STRANDLINE_SEED={state}");
        Self { state }
    }

    /// A number of the range, both ends included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        low + (z ^ (z >> 31)) % (high - low + 1)
    }
}
