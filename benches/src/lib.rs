//! What the benchmarks share: keys, percentiles, and waiting.

use std::time::{Duration, Instant};

/// The `index`-th of a sequence of well-mixed numbers (SplitMix64, Steele, Lea, Flood 2014).
#[must_use]
pub fn mixed(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number below `n`, uniform: the high part of a 128-bit product.
#[must_use]
pub fn below(mixed: u64, n: u64) -> u64 {
    let product = u128::from(mixed) * u128::from(n);
    u64::try_from(product >> 64).expect("a 128-bit number has a 64-bit high half")
}

/// The value that `percent` of the values don't exceed; 0 where there are none.
#[must_use]
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

/// Waits. A benchmark has nothing to wait on but time.
#[expect(clippy::disallowed_methods, reason = "benchmarks measure by the clock")]
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Measures wall time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "benchmarks measure by the clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds since then.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Processor time that this process has used, seconds; 0 where the system does not tell.
#[must_use]
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in parentheses that may have blanks.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks = ticks.filter_map(|field| field.parse::<u32>().ok());
    // Linux counts in hundredths everywhere.
    ticks.map(f64::from).sum::<f64>() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 50).to_bits(), 50.0_f64.to_bits());
        assert_eq!(percentile(&values, 99).to_bits(), 99.0_f64.to_bits());
        assert_eq!(percentile(&values, 100).to_bits(), 100.0_f64.to_bits());
        assert_eq!(percentile(&[7.0], 50).to_bits(), 7.0_f64.to_bits());
        assert_eq!(percentile(&[], 50).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn keys_are_below_the_bound_and_spread() {
        let mut counts = [0_u32; 10];
        for index in 0..10_000 {
            let key = usize::try_from(below(mixed(index), 10)).expect("below 10");
            counts[key] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
