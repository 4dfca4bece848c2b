//! Randomness that can be had again.

/// Random numbers from a seed (SplitMix64, Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// Takes the seed from `STRANDLINE_SEED`, or else from the process, and prints it.
    #[expect(clippy::print_stdout, reason = "a random test prints its seed")]
    pub(crate) fn from_env(test: &str) -> Self {
        let given = std::env::var("STRANDLINE_SEED").ok().and_then(|seed| seed.parse().ok());
        let state = given.unwrap_or_else(|| {
            let hash = blake3::hash(format!("{test} {}", std::process::id()).as_bytes());
            hash.as_bytes().iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
        });
        println!("{test}: STRANDLINE_SEED={state}");
        Self { state }
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let below = (z ^ (z >> 31)) % limit as u64;
        usize::try_from(below).expect("it is below a usize")
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}
