//! For programs that are one job: flags, signals, exit codes, and a line that says how it goes.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | finished, now or by an earlier run |
//! | 1 | failed; the job goes on from its newest checkpoint when it is started again |
//! | 2 | a bad argument, or something in the way: nothing was started or changed |
//! | 130, 143 | suspended by SIGINT or SIGTERM: a last checkpoint was taken if it could be within the grace time, and nothing was deleted |
//!
//! A second signal ends the process without waiting for the last checkpoint.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use strandline_barrier::Alignment;
use strandline_snapshot::{Compression, JobId};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;

use crate::units::{bytes, count, millis, parse_duration};
use crate::{
    Environment, Error, ErrorKind, JobConfig, JobHandle, JobOutcome, JobProgress, JobResult,
    LocalCacheConfig, Result, Resumed,
};

// No doc comment: a program would show it in place of its own line of help.
#[derive(Args, Clone, Debug)]
#[expect(missing_docs, reason = "see above; the fields are the documentation")]
pub struct JobArgs {
    /// File to read, or folder: all files in it but hidden ones, without its folders
    #[arg(long, value_name = "PATH")]
    input: Option<PathBuf>,
    /// Folder for the results, in files named part-*
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Where checkpoints are kept: a folder, file:///..., s3://... and others where they are built in, or one job's folder
    #[arg(long, value_name = "URI")]
    checkpoints: Option<String>,
    /// The job's id, 32 hex digits [default: made from its name]
    #[arg(long, value_name = "ID")]
    job_id: Option<JobId>,
    /// Time between checkpoints: 500ms, 10s, 5min, or a number of milliseconds
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Subtasks of each operator
    #[arg(long, value_name = "N", default_value_t = 2)]
    parallelism: u32,
    /// Records to read a second, the whole job together [default: no limit]
    #[arg(long, value_name = "RECORDS_PER_SECOND")]
    rate: Option<u64>,
    /// What a checkpoint guarantees
    #[arg(long, value_enum, default_value_t = Mode::ExactlyOnce)]
    mode: Mode,
    /// Completed checkpoints to keep
    #[arg(long, value_name = "N", default_value_t = 3)]
    num_retained: usize,
    /// How long a last checkpoint may take when the job is asked to stop
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    grace: Duration,
    /// Start from nothing although there are checkpoints
    #[arg(long)]
    fresh: bool,
    /// Start from this savepoint; once it has been taken up, go on from the newest checkpoint
    #[arg(long, value_name = "URI", conflicts_with = "fresh")]
    savepoint: Option<String>,
    /// Take the job over from a process that may still be alive: that one ends by itself
    #[arg(long)]
    take_over: bool,
    /// How long the last owner must give no sign of life where storage has no locks
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    lease: Duration,
    /// How checkpoints are compressed
    #[arg(long, value_enum, default_value_t = Packing::Zstd)]
    compression: Packing,
    /// Folder to keep what is read of remote checkpoints in
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// The most that is kept there, MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    cache_mib: u32,
    /// With a start from nothing: remove the committed files that are in the output folder
    #[arg(long)]
    overwrite: bool,
    /// When going back to an older checkpoint: remove the files that were committed after it
    #[arg(long)]
    withdraw_later: bool,
}

/// What a checkpoint guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// After a crash every record counts once
    ExactlyOnce,
    /// After a crash records may count more than once; no input is ever held back
    AtLeastOnce,
}

/// How checkpoints are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Packing {
    /// Not at all
    None,
    /// LZ4: fast to read
    Lz4,
    /// Zstandard, level 1
    Zstd,
}

/// A job's flags with its own defaults filled in.
#[derive(Clone, Debug)]
pub struct Job {
    /// What to read.
    pub input: PathBuf,
    /// Where results go.
    pub output: PathBuf,
    /// Whether committed results may be removed at a start from nothing.
    pub overwrite: bool,
    /// Whether results may be removed that were committed after the checkpoint gone back to.
    pub withdraw_later: bool,
    name: String,
    checkpoints: String,
    grace: Duration,
    config: JobConfig,
}

impl JobArgs {
    /// Fills in the defaults of one job: its sample, and `<scratch>/<name>/{output,checkpoints}`.
    #[must_use]
    pub fn job(&self, name: &str, sample: &Path, scratch: &Path) -> Job {
        let folder = scratch.join(name);
        let mut config = JobConfig {
            id: self.job_id,
            parallelism: self.parallelism,
            retained_count: self.num_retained,
            rate: self.rate,
            fresh: self.fresh,
            savepoint: self.savepoint.clone(),
            take_over: self.take_over,
            lease: self.lease,
            compression: match self.compression {
                Packing::None => Compression::None,
                Packing::Lz4 => Compression::Lz4,
                Packing::Zstd => Compression::Zstd,
            },
            local_cache: self.cache.clone().map(|folder| LocalCacheConfig {
                folder,
                limit_bytes: u64::from(self.cache_mib) << 20,
            }),
            ..JobConfig::default()
        };
        config.checkpoints.interval = Some(self.interval);
        config.checkpoints.alignment = match self.mode {
            Mode::ExactlyOnce => Alignment::Aligned,
            Mode::AtLeastOnce => Alignment::AtLeastOnce,
        };
        let checkpoints = folder.join("checkpoints").display().to_string();
        Job {
            input: self.input.clone().unwrap_or_else(|| sample.to_owned()),
            output: self.output.clone().unwrap_or_else(|| folder.join("output")),
            overwrite: self.overwrite,
            withdraw_later: self.withdraw_later,
            name: name.to_owned(),
            checkpoints: self.checkpoints.clone().unwrap_or(checkpoints),
            grace: self.grace,
            config,
        }
    }
}

/// Parses the program's flags; a bad one ends the process with one line and exit code 2.
#[must_use]
pub fn parse<P: Parser>() -> P {
    P::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() {
            let text = error.render().to_string();
            let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            say(&format!("{} (try --help)", lines.collect::<Vec<_>>().join(" ")));
            std::process::exit(2)
        }
        error.exit()
    })
}

impl Job {
    /// Runs the job that `describe` builds, to its end or until a signal comes.
    pub fn run(&self, describe: impl FnOnce(&mut Environment) -> Result<()>) -> ExitCode {
        let bar = progress_bar();
        log_to(&bar);
        // Signals first: one that comes while the job starts suspends it like any other.
        let ended = Signals::register().and_then(|signals| {
            let handle = self.start(describe)?;
            self.watch(handle, &signals, &bar)
        });
        bar.finish_and_clear();
        match ended {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                say(&format!("error: {}", error.full()));
                let nothing_done = matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Refused);
                ExitCode::from(if nothing_done { 2 } else { 1 })
            }
        }
    }

    fn start(&self, describe: impl FnOnce(&mut Environment) -> Result<()>) -> Result<JobHandle> {
        let mut env = Environment::with_config(self.config.clone());
        env.checkpoint_storage(&self.checkpoints);
        describe(&mut env)?;
        env.start(&self.name)
    }

    fn watch(&self, handle: JobHandle, signals: &Signals, bar: &ProgressBar) -> Result<u8> {
        if self.checkpoints.starts_with("memory:") {
            tracing::warn!("checkpoints in memory are gone when this process is");
        }
        if !handle.was_finished() {
            let resumed = handle.resumed().map_or_else(|| "starts fresh".to_owned(), resumed_line);
            tracing::info!("job `{}` ({}) {resumed}", self.name, handle.id());
        }
        let mut asked = None;
        let mut reporter = Reporter::new(bar);
        while !handle.wait_for(Duration::from_millis(100)) {
            reporter.report(&handle.progress());
            let Some(signal) = signals.take() else { continue };
            if asked.replace(signal).is_none() {
                tracing::info!("{}: takes a last checkpoint and stops", signal.name());
                handle.suspend(self.grace);
                continue;
            }
            tracing::warn!("{} again: stops without a last checkpoint", signal.name());
            handle.cancel();
            // Whatever still hangs is left to the end of the process.
            if !handle.wait_for(IMPATIENCE) {
                return Ok(suspended(asked));
            }
        }
        let result = handle.wait()?;
        Ok(self.verdict(&result, asked))
    }

    fn verdict(&self, result: &JobResult, asked: Option<Signal>) -> u8 {
        let output = self.output.display();
        let again = "to run it again from the start: --fresh --overwrite";
        let (text, code) = match result.outcome {
            JobOutcome::Finished { checkpoint } => {
                (format!("finished with checkpoint {checkpoint}; output in {output}"), 0)
            }
            JobOutcome::AlreadyFinished { checkpoint } => {
                let text = format!(
                    "this job has already finished (checkpoint {checkpoint}); output in {output}; {again}"
                );
                (text, 0)
            }
            JobOutcome::Suspended { checkpoint: Some(id) } => (
                format!("suspended with checkpoint {id}: start it again to go on"),
                suspended(asked),
            ),
            JobOutcome::Suspended { checkpoint: None } => {
                let text = "stopped without a last checkpoint: it goes on from the one before";
                (text.to_owned(), suspended(asked))
            }
            JobOutcome::Cancelled => {
                ("stopped at once; checkpoints are kept".to_owned(), suspended(asked))
            }
        };
        if !matches!(result.outcome, JobOutcome::AlreadyFinished { .. }) {
            tracing::info!(
                "{} records read, {} late, {} skipped, {} checkpoints, {:.1} s",
                count(result.records_read),
                count(result.late),
                count(result.skipped),
                result.checkpoints.len(),
                result.runtime.as_secs_f64()
            );
        }
        tracing::info!("{text}");
        code
    }
}

fn suspended(asked: Option<Signal>) -> u8 {
    match asked {
        Some(Signal::Interrupt) => 130,
        Some(Signal::Terminate) | None => 143,
    }
}

/// Which checkpoint, how old, where in the input, and what is read again.
fn resumed_line(resumed: &Resumed) -> String {
    let open = resumed.splits.iter().filter(|split| !split.ended);
    let mut places: Vec<String> =
        open.map(|split| format!("{} at {}", split.split, split.position)).collect();
    if places.is_empty() {
        places.push("all input read".to_owned());
    }
    if places.len() > 3 {
        let more = places.len() - 3;
        places.truncate(3);
        places.push(format!("{more} more"));
    }
    let again = match resumed.read_again {
        Some(again) => format!("{} records are read again", count(again)),
        None => "how many records are read again is not known for this storage".to_owned(),
    };
    format!(
        "goes on from checkpoint {} ({:.1} s old) after {} records: {}; {again}",
        resumed.checkpoint,
        resumed.age.as_secs_f64(),
        count(resumed.records_read),
        places.join(", ")
    )
}

/// How long a job that was told to stop at once is waited for.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// The signals that suspend a job.
struct Signals {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
}

#[derive(Clone, Copy)]
enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }
}

impl Signals {
    fn register() -> Result<Self> {
        let signals = Self { interrupt: Arc::default(), terminate: Arc::default() };
        for (signal, flag) in [(SIGINT, &signals.interrupt), (SIGTERM, &signals.terminate)] {
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(|error| {
                Error::new(ErrorKind::Invalid, "signals can't be handled").because(error)
            })?;
        }
        Ok(signals)
    }

    /// A signal that has come since the last call. Relaxed: the flag carries nothing else.
    fn take(&self) -> Option<Signal> {
        let terminate = self.terminate.swap(false, Ordering::Relaxed);
        let interrupt = self.interrupt.swap(false, Ordering::Relaxed);
        // Two that came together are one.
        if terminate { Some(Signal::Terminate) } else { interrupt.then_some(Signal::Interrupt) }
    }
}

/// Shows how the job goes: a live line on a terminal, a log line now and then elsewhere.
struct Reporter<'a> {
    bar: &'a ProgressBar,
    ticks: u32,
    before: Option<(Duration, u64)>,
    per_s: f64,
}

/// Calls between two log lines where there is no terminal: about 5 s.
const TICKS_PER_LINE: u32 = 50;

/// Calls between two looks at the rate: about 1 s.
const TICKS_PER_RATE: u32 = 10;

impl<'a> Reporter<'a> {
    fn new(bar: &'a ProgressBar) -> Self {
        Self { bar, ticks: 0, before: None, per_s: 0.0 }
    }

    fn report(&mut self, progress: &JobProgress) {
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS_PER_RATE) {
            self.measure(progress);
        }
        let line = progress_line(progress, self.per_s);
        if self.bar.is_hidden() {
            if self.ticks.is_multiple_of(TICKS_PER_LINE) {
                tracing::info!("{line}");
            }
        } else {
            self.bar.set_message(line);
            self.bar.tick();
        }
    }

    fn measure(&mut self, progress: &JobProgress) {
        if let Some((at, records)) = self.before {
            let passed = progress.running.saturating_sub(at).as_secs_f64();
            let read = progress.records_read.saturating_sub(records);
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let per_s = read as f64 / passed.max(0.001);
            self.per_s = per_s;
        }
        self.before = Some((progress.running, progress.records_read));
    }
}

fn progress_line(progress: &JobProgress, per_s: f64) -> String {
    let last = match &progress.last_checkpoint {
        None => "no checkpoint yet".to_owned(),
        Some(last) => format!(
            "checkpoint {}: {}, {} ({} written)",
            last.id,
            millis(last.duration),
            bytes(last.full_bytes),
            bytes(last.written_bytes)
        ),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate for people, never negative"
    )]
    let per_s = per_s as u64;
    format!("{} records, {}/s, {last}", count(progress.records_read), count(per_s))
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}

/// Sends log lines to standard error, above the bar where there is one. A subscriber that the
/// program has set before stays.
fn log_to(bar: &ProgressBar) {
    let bar = bar.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || AboveBar(bar.clone()))
        .with_target(false)
        .without_time()
        .with_ansi(std::io::stderr().is_terminal())
        .finish();
    // What libraries have to say of their retries is not for people.
    let own = filter_fn(|metadata| metadata.target().starts_with("strandline"));
    drop(tracing::subscriber::set_global_default(subscriber.with(own)));
}

struct AboveBar(ProgressBar);

impl Write for AboveBar {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.suspend(|| std::io::stderr().write(text))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

#[expect(clippy::print_stderr, reason = "the last word of a program to its user")]
fn say(line: &str) {
    eprintln!("{line}");
}
