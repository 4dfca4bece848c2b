//! Departures from New York's airports, per origin and hour: departed, cancelled, sum and maximum
//! of the departure delay.
//!
//! `cargo run --release --example flights` reads a month of real flights. Kill it, start it again:
//! the result is the same.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use strandline::connectors::file::{FileLines, FileSink, Line};
use strandline::launch::{self, JobArgs};
use strandline::units::parse_duration;
use strandline::{Aggregate, OnBadRecord, Window};

/// Departures from New York's airports per origin and hour
#[derive(Parser)]
#[command(version, about)]
struct Flags {
    #[command(flatten)]
    job: JobArgs,
    /// How much later than the newest flight of its file a flight may be reported and still count
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    max_lateness: Duration,
    /// Folder for the lines that came later than that
    #[arg(long, value_name = "DIR")]
    late: Option<PathBuf>,
    /// What to do with a line that is no flight
    #[arg(long, value_enum, default_value_t = BadRecord::Fail)]
    on_bad_record: BadRecord,
}

#[derive(Clone, Copy, ValueEnum)]
enum BadRecord {
    Skip,
    Fail,
}

/// What is needed of a line, and the line.
#[derive(Clone, Serialize, Deserialize)]
struct Flight {
    scheduled_ms: i64,
    origin: String,
    /// Minutes; none if it was cancelled.
    delay_min: Option<i32>,
    line: String,
}

impl Flight {
    fn parse(line: Line) -> Result<Self, String> {
        let columns: Vec<&str> = line.text.split(',').collect();
        let [_, scheduled, origin, _, _, _, _, delay, _, _] = columns[..] else {
            return Err(format!("{}: {} columns, not 10", line.location(), columns.len()));
        };
        let wrong = |column: &str| format!("{}: bad {column}: {}", line.location(), line.text);
        if line.text.contains('\u{FFFD}') {
            return Err(format!("{}: not UTF-8", line.location()));
        }
        let time: jiff::Timestamp = scheduled.parse().map_err(|_| wrong("scheduled_at"))?;
        let delay_min = match delay {
            "" => None,
            minutes => Some(minutes.parse().map_err(|_| wrong("dep_delay_min"))?),
        };
        if origin.is_empty() {
            return Err(wrong("origin"));
        }
        let origin = origin.to_owned();
        Ok(Self { scheduled_ms: time.as_millisecond(), origin, delay_min, line: line.text })
    }
}

/// The departures of one origin in one hour.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Departures {
    departed: u64,
    cancelled: u64,
    delay_sum_min: i64,
    delay_max_min: Option<i32>,
}

#[derive(Clone)]
struct PerOriginAndHour;

impl Aggregate for PerOriginAndHour {
    type In = Flight;
    type Key = String;
    type Accumulator = Departures;
    type Out = Row;

    fn add(&self, flight: Flight, departures: &mut Departures) {
        match flight.delay_min {
            None => departures.cancelled += 1,
            Some(delay) => {
                departures.departed += 1;
                departures.delay_sum_min += i64::from(delay);
                departures.delay_max_min = departures.delay_max_min.max(Some(delay));
            }
        }
    }

    fn result(&self, origin: &String, hour: Window, departures: Departures) -> Row {
        Row { hour, origin: origin.clone(), departures }
    }
}

/// A line of the result.
struct Row {
    hour: Window,
    origin: String,
    departures: Departures,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Departures { departed, cancelled, delay_sum_min, delay_max_min } = &self.departures;
        let start = jiff::Timestamp::from_millisecond(self.hour.start_ms).unwrap_or_default();
        write!(f, "{start},{},{departed},{cancelled},{delay_sum_min},", self.origin)?;
        delay_max_min.map_or(Ok(()), |max| write!(f, "{max}"))
    }
}

/// The folder of the samples and of `target`.
fn workspace() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the example is two folders below its workspace")
}

fn main() -> ExitCode {
    #[cfg(feature = "object-stores")]
    strandline::store_object::register();
    let flags: Flags = launch::parse();
    let root = workspace();
    let sample = root.join("data/flights/flights-2013-01.csv");
    let job = flags.job.job("flights", &sample, &root.join("target"));
    let on_bad_record = match flags.on_bad_record {
        BadRecord::Skip => OnBadRecord::Skip,
        BadRecord::Fail => OnBadRecord::Fail,
    };
    job.run(|env| {
        let (hours, late) = env
            .from_source(FileLines::new(&job.input)?.skip_header(true).lossy(true))
            .uid("flights")
            .try_map(on_bad_record, Flight::parse)
            .event_time(|flight: &Flight| flight.scheduled_ms, flags.max_lateness)
            .uid("event-time")
            .key_by(|flight| flight.value.origin.clone())
            .window(Duration::from_secs(3600))
            .aggregate(PerOriginAndHour);
        hours
            .uid("hourly")
            .sink_to(
                FileSink::new(&job.output)
                    .overwrite(job.overwrite)
                    .withdraw_later(job.withdraw_later),
            )
            .uid("output");
        if let Some(folder) = &flags.late {
            let lines = late.map(|flight| flight.line);
            lines
                .sink_to(
                    FileSink::new(folder)
                        .overwrite(job.overwrite)
                        .withdraw_later(job.withdraw_later),
                )
                .uid("late");
        }
        Ok(())
    })
}
