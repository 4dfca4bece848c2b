//! Counts uniform keys: in-process source → `key_by` → value state + 1 → discard, with a
//! checkpoint each interval to a local folder, synced.
//!
//! Measured from the moment every key has been seen twice on average, for the seconds asked for.
//! The last line of standard output is one JSON object. The folder is removed at the end.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use strandline::connectors::generator::Generator;
use strandline::units::parse_duration;
use strandline::{CompletedCheckpoint, Environment, JobHandle, Result};
use strandline_benches::{below, mixed, percentile, sleep};

#[derive(Parser)]
struct Flags {
    /// Different keys
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Seconds to measure
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Time between checkpoints; 0 for none
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Subtasks of each operator
    #[arg(long, default_value_t = 2)]
    parallelism: u32,
    /// Print nothing but the JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Figures {
    case: &'static str,
    keys: u64,
    parallelism: u32,
    interval_ms: u64,
    seconds: f64,
    records_per_s: f64,
    checkpoints: usize,
    checkpoint_ms_p50: f64,
    checkpoint_ms_p99: f64,
    checkpoint_ms_max: f64,
    pause_us_p50: f64,
    pause_us_p99: f64,
    pause_us_max: f64,
    bytes_full: f64,
    bytes_written: f64,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match run(&flags) {
        Ok(figures) => {
            print(&flags, &figures);
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&error.full());
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<Figures> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch()?).map_err(io)?;
    let mut env = Environment::new();
    env.set_parallelism(flags.parallelism);
    env.checkpoint_storage(&folder.path().display().to_string());
    if !flags.interval.is_zero() {
        env.enable_checkpointing(flags.interval);
    }
    let keys = flags.keys.max(1);
    let source = Generator::new(flags.parallelism, None, move |split, index| {
        below(mixed((u64::from(split) << 48) + index), keys)
    });
    env.from_source(source)
        .uid("keys")
        .key_by(|key| *key)
        .flat_map_with_state(|_, _, count: &mut u64, _: &mut Vec<()>| *count += 1)
        .uid("counts")
        .discard();
    let handle = env.start("keyed-count")?;
    let figures = measure(flags, &handle)?;
    handle.cancel();
    handle.wait()?;
    Ok(figures)
}

fn measure(flags: &Flags, handle: &JobHandle) -> Result<Figures> {
    while handle.progress().records_read < 2 * flags.keys {
        if handle.wait_for(Duration::from_millis(20)) {
            break;
        }
    }
    let before = (handle.progress(), handle.checkpoints().len(), handle.pauses().len());
    sleep(Duration::from_secs(flags.seconds));
    let after = handle.progress();
    let checkpoints = handle.checkpoints().split_off(before.1);
    let pauses = handle.pauses().split_off(before.2);
    let seconds = after.running.saturating_sub(before.0.running).as_secs_f64();
    let records = after.records_read.saturating_sub(before.0.records_read);
    let ms =
        |at: usize| percentile(&values(&checkpoints, |of| of.duration.as_secs_f64() * 1e3), at);
    let pauses: Vec<f64> = pauses.iter().map(|pause| pause.as_secs_f64() * 1e6).collect();
    Ok(Figures {
        case: "keyed-count",
        keys: flags.keys,
        parallelism: flags.parallelism,
        interval_ms: u64::try_from(flags.interval.as_millis()).unwrap_or(u64::MAX),
        seconds,
        records_per_s: float(records) / seconds,
        checkpoints: checkpoints.len(),
        checkpoint_ms_p50: ms(50),
        checkpoint_ms_p99: ms(99),
        checkpoint_ms_max: ms(100),
        pause_us_p50: percentile(&pauses, 50),
        pause_us_p99: percentile(&pauses, 99),
        pause_us_max: percentile(&pauses, 100),
        bytes_full: percentile(&values(&checkpoints, |of| float(of.full_bytes)), 50),
        bytes_written: percentile(&values(&checkpoints, |of| float(of.written_bytes)), 50),
    })
}

fn values(of: &[CompletedCheckpoint], value: impl Fn(&CompletedCheckpoint) -> f64) -> Vec<f64> {
    of.iter().map(value).collect()
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn float(number: u64) -> f64 {
    number as f64
}

/// A folder on the disk of the build, not on one in memory.
fn scratch() -> Result<std::path::PathBuf> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    std::fs::create_dir_all(&folder).map_err(io)?;
    Ok(folder)
}

fn io(error: std::io::Error) -> strandline::Error {
    strandline::Error::new(strandline::ErrorKind::Invalid, "the benchmark's folder").because(error)
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn print(flags: &Flags, figures: &Figures) {
    if !flags.json {
        println!(
            "{} keys, parallelism {}: {:.2} M records/s, {} checkpoints, p50 {:.0} ms, max {:.0} ms",
            figures.keys,
            figures.parallelism,
            figures.records_per_s / 1e6,
            figures.checkpoints,
            figures.checkpoint_ms_p50,
            figures.checkpoint_ms_max
        );
    }
    println!("{}", serde_json::to_string(figures).unwrap_or_default());
}

#[expect(clippy::print_stderr, reason = "a benchmark says why it can't run")]
fn complain(text: &str) {
    eprintln!("{text}");
}
