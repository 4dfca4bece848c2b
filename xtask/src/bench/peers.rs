//! What others have reached with the same work: constants, measured once.

/// A system that does the same work.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// What it guarantees meanwhile, and what to keep in mind.
    pub(super) conditions: &'static str,
    /// One for each row of the benchmark; `None` where it wasn't measured or didn't finish.
    pub(super) results: &'static [Option<Reached>],
}

/// What a peer has reached in one row.
#[derive(Debug)]
pub(super) struct Reached {
    /// The worst and the best run.
    pub(super) records_per_s: (f64, f64),
    /// Empty where it takes no checkpoints or they were not timed.
    pub(super) checkpoint_ms_p50: &'static str,
    pub(super) checkpoint_ms_max: &'static str,
}

const fn rate(worst: f64, best: f64) -> Option<Reached> {
    Some(Reached { records_per_s: (worst, best), checkpoint_ms_p50: "", checkpoint_ms_max: "" })
}

const fn timed(worst: f64, best: f64, p50: &'static str, max: &'static str) -> Option<Reached> {
    Some(Reached { records_per_s: (worst, best), checkpoint_ms_p50: p50, checkpoint_ms_max: max })
}

/// For 10⁴, 10⁶ and 10⁷ keys.
pub(super) const KEYED_COUNT: &[Peer] = &[
    Peer {
        name: "Flink 2.3, heap",
        conditions: "exactly once, a full snapshot each second; JVM settings chosen for its best",
        results: &[
            timed(4.5e6, 4.5e6, "42", "97"),
            timed(1.9e6, 2.0e6, "365–379", "686–817"),
            timed(0.96e6, 0.96e6, "2,989", "3,996"),
        ],
    },
    Peer {
        name: "Flink 2.3, RocksDB",
        conditions: "exactly once, an incremental snapshot each second; default tuning",
        results: &[rate(0.28e6, 0.28e6), rate(0.07e6, 0.07e6), None],
    },
    Peer {
        name: "Timely 0.32",
        conditions: "a job written by hand with barriers in its channels; a full snapshot each \
                     second, written by the worker itself and not synced to disk",
        results: &[rate(124.0e6, 124.0e6), rate(22.5e6, 24.8e6), None],
    },
    Peer {
        name: "renoir 0.6",
        conditions: "no fault tolerance",
        results: &[rate(26.0e6, 26.0e6), rate(10.8e6, 10.8e6), rate(6.5e6, 6.5e6)],
    },
    Peer {
        name: "bytewax 0.21",
        conditions: "epochs of one second, changed keys to SQLite; 10⁶ keys did not finish in 120 s",
        results: &[rate(0.10e6, 0.10e6), None, None],
    },
];
