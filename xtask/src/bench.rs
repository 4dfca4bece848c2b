//! `cargo xtask bench`: runs the benchmarks, and writes the page that shows them.

mod cases;
mod machine;
mod page;
mod peers;

use std::error::Error;
use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::workspace::{cargo, root};
use machine::Machine;
use page::Section;
use peers::Peer;

/// A program of the package `strandline-benches`.
#[derive(Debug)]
pub(crate) struct Benchmark {
    pub(crate) name: &'static str,
    /// One line.
    about: &'static str,
    output: Output,
    rows: &'static [Row],
    peers: &'static [Peer],
}

/// What a benchmark prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// One object with a job's figures in the last line.
    Job,
    /// One object a line, for each case.
    Cases,
}

/// One run of a benchmark with its default figures.
#[derive(Debug)]
struct Row {
    label: &'static str,
    /// Separated by blanks.
    arguments: &'static str,
}

/// What one run has measured, as it says in the last line of its output.
#[derive(Clone, Debug, PartialEq)]
struct Figures {
    records_per_s: f64,
    checkpoints: u64,
    checkpoint_ms: Percentiles,
    pause_us: Percentiles,
    bytes_full: f64,
    bytes_written: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Percentiles {
    p50: f64,
    p99: f64,
    max: f64,
}

const BENCHMARKS: &[Benchmark] = &[KEYED_COUNT, STATE, SNAPSHOT];

const KEYED_COUNT: Benchmark = Benchmark {
    name: "keyed-count",
    about: "uniform u64 keys → partition by key → count per key → discard; checkpoints to a synced folder",
    output: Output::Job,
    rows: &[
        Row {
            label: "10⁴ keys",
            arguments: "--keys 10000 --seconds 20 --interval 1s --parallelism 2 --json",
        },
        Row {
            label: "10⁶ keys",
            arguments: "--keys 1000000 --seconds 20 --interval 1s --parallelism 2 --json",
        },
        Row {
            label: "10⁷ keys",
            arguments: "--keys 10000000 --seconds 20 --interval 1s --parallelism 2 --json",
        },
    ],
    peers: peers::KEYED_COUNT,
};

const STATE: Benchmark = Benchmark {
    name: "state",
    about: "random updates of keys that are there in the state table, beside hashbrown alone one at a time in the same run; freezes, changes, memory",
    output: Output::Cases,
    rows: &[
        Row { label: "u64 → u64", arguments: "--cases u64 --json" },
        Row {
            label: "10⁶ keys of other types",
            arguments: "--cases bytes100,string --keys 1000000 --json",
        },
    ],
    peers: &[],
};

const SNAPSHOT: Benchmark = Benchmark {
    name: "snapshot",
    about: "a table of random values in the snapshot store: in full, again, changed, opened, read; beside what the machine does with as many bytes",
    output: Output::Cases,
    rows: &[
        Row { label: "10⁷ × 100 B, not compressed", arguments: "--compression none --json" },
        Row {
            label: "10⁷ × 100 B, Zstandard",
            arguments: "--compression zstd --changed 1 --checkpoints 0 --json",
        },
        Row {
            label: "10⁵ × 100 B, not compressed",
            arguments: "--entries 100000 --changed 1 --checkpoints 200 --json",
        },
    ],
    peers: &[],
};

const PAGE: &str = "docs/benchmarks.md";

/// One line for each benchmark.
pub(crate) fn list() -> String {
    let line = |bench: &Benchmark| format!("{:<14} {}", bench.name, bench.about);
    let lines: Vec<String> = BENCHMARKS.iter().map(line).collect();
    format!("Benchmarks:\n\n{}", lines.join("\n"))
}

pub(crate) fn find(name: &str) -> Option<&'static Benchmark> {
    BENCHMARKS.iter().find(|bench| bench.name == name)
}

/// Runs one, with arguments of its own; whether it succeeded.
pub(crate) fn one(name: &str, arguments: &[String]) -> Result<bool, Box<dyn Error>> {
    let mut command = cargo();
    command.args(cargo_arguments(name)).args(arguments);
    Ok(command.status()?.success())
}

/// Runs all rows of all benchmarks, and writes the page if they have succeeded.
pub(crate) fn all() -> Result<bool, Box<dyn Error>> {
    let machine = Machine::read(PAGE);
    let sections = BENCHMARKS.iter().map(run_rows).collect::<Result<Vec<_>, _>>()?;
    write_page(&page::page(&machine, &sections))?;
    println!("written: {PAGE}");
    Ok(true)
}

fn run_rows(bench: &'static Benchmark) -> Result<String, Box<dyn Error>> {
    let mut outputs = Vec::new();
    for row in bench.rows {
        println!("{} {}", bench.name, row.arguments);
        let output = run_row(bench.name, row)
            .map_err(|error| format!("{} {}: {error}", bench.name, row.arguments))?;
        outputs.push((row, output));
    }
    match bench.output {
        Output::Job => {
            let figures = |(row, output): (&'static Row, String)| {
                Figures::parse(&output).map(|figures| (row, figures))
            };
            let rows = outputs.into_iter().map(figures).collect::<Result<Vec<_>, _>>()?;
            Ok(page::section(&Section { bench, rows }))
        }
        Output::Cases => cases::section(bench, &outputs),
    }
}

fn run_row(name: &str, row: &Row) -> Result<String, Box<dyn Error>> {
    let mut command = cargo();
    command.args(cargo_arguments(name)).args(row.arguments.split(' ')).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("ended with {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn cargo_arguments(name: &str) -> [&str; 8] {
    ["run", "--release", "--quiet", "--package", "strandline-benches", "--bin", name, "--"]
}

fn write_page(text: &str) -> std::io::Result<()> {
    fs::write(root().join(PAGE), text)
}

impl Figures {
    /// Reads the JSON object in the last line of a benchmark's output.
    ///
    /// # Errors
    /// There is none, or a figure is missing or not a number.
    fn parse(output: &str) -> Result<Self, Box<dyn Error>> {
        let line = output.trim_end().lines().last().ok_or("it has printed nothing")?;
        let object: Value = serde_json::from_str(line)
            .map_err(|error| format!("its last line is not JSON: {error}: {line}"))?;
        Ok(Self {
            records_per_s: number(&object, "records_per_s")?,
            checkpoints: object
                .get("checkpoints")
                .and_then(Value::as_u64)
                .ok_or("no checkpoints")?,
            checkpoint_ms: Percentiles::of(&object, "checkpoint_ms")?,
            pause_us: Percentiles::of(&object, "pause_us")?,
            bytes_full: number(&object, "bytes_full")?,
            bytes_written: number(&object, "bytes_written")?,
        })
    }
}

impl Percentiles {
    fn of(object: &Value, what: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            p50: number(object, &format!("{what}_p50"))?,
            p99: number(object, &format!("{what}_p99"))?,
            max: number(object, &format!("{what}_max"))?,
        })
    }
}

fn number(object: &Value, name: &str) -> Result<f64, Box<dyn Error>> {
    let number = object.get(name).and_then(Value::as_f64);
    Ok(number.ok_or_else(|| format!("its last line has no number named {name}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"case":"keyed-count","records_per_s":1.5e6,"checkpoints":20,
        "checkpoint_ms_p50":40.5,"checkpoint_ms_p99":90,"checkpoint_ms_max":97,
        "pause_us_p50":3,"pause_us_p99":5,"pause_us_max":8,
        "bytes_full":1048576.0,"bytes_written":1024.0}"#;

    fn line() -> String {
        LINE.replace('\n', "")
    }

    #[test]
    fn the_last_line_is_read() {
        let output = format!("something for people\n{}\n", line());
        let figures = Figures::parse(&output).expect("the line is whole");
        let expected = Figures {
            records_per_s: 1.5e6,
            checkpoints: 20,
            checkpoint_ms: Percentiles { p50: 40.5, p99: 90.0, max: 97.0 },
            pause_us: Percentiles { p50: 3.0, p99: 5.0, max: 8.0 },
            bytes_full: 1_048_576.0,
            bytes_written: 1024.0,
        };
        assert_eq!(figures, expected);
    }

    #[track_caller]
    fn check_refused(output: &str, expected: &str) {
        let error = Figures::parse(output).expect_err("the output is damaged").to_string();
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn other_output_is_an_error() {
        check_refused("", "it has printed nothing");
        check_refused("done", "its last line is not JSON: ");
        let renamed = line().replace("pause_us_p99", "pause_p99");
        check_refused(&renamed, "its last line has no number named pause_us_p99");
        check_refused(&line().replace("1.5e6", "null"), "its last line has no number named rec");
    }

    #[test]
    fn the_table_names_the_programs_that_exist() {
        let entries = fs::read_dir(root().join("benches/src/bin")).expect("the package is there");
        let file_name = |entry: std::io::Result<fs::DirEntry>| entry.map(|e| e.file_name());
        let mut files = entries.map(file_name).collect::<Result<Vec<_>, _>>().expect("readable");
        files.sort();
        let mut names: Vec<_> = BENCHMARKS.iter().map(|b| format!("{}.rs", b.name)).collect();
        names.sort();
        assert!(files.iter().eq(names.iter().map(String::as_str)), "{files:?} {names:?}");
    }

    #[test]
    fn each_is_listed_in_one_line() {
        let text = list();
        let listed: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(listed.len(), BENCHMARKS.len());
        assert!(listed.iter().zip(BENCHMARKS).all(|(line, b)| line.starts_with(b.name)), "{text}");
    }
}
