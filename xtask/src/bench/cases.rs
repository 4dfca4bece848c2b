//! Benchmarks that print one JSON object a line, for each case: a table for each run.

use std::error::Error;

use serde_json::Value;

use super::page::{commands, heading, table};
use super::{Benchmark, Row};

/// What is shown of a case, and how its field is called.
const COLUMNS: &[(&str, &str)] = &[
    ("keys", "keys"),
    ("batches, M/s", "batch_m_per_s"),
    ("one at a time, M/s", "single_m_per_s"),
    ("hashbrown, M/s", "hashbrown_m_per_s"),
    ("batches with a freeze each second, M/s", "with_freeze_m_per_s"),
    ("freeze, µs", "freeze_us"),
    ("bytes per entry", "bytes_per_entry"),
    ("hashbrown's", "hashbrown_bytes_per_entry"),
    ("1 % changes, ms", "changes_ms"),
    ("changed, %", "changed_percent"),
    ("written / changed", "amplification"),
    ("p99", "amplification_p99"),
    ("max", "amplification_max"),
    ("runs at a key", "runs_at_a_key_max"),
    ("stored / table", "space"),
    ("manifest, bytes", "manifest_bytes"),
    ("objects", "objects_written"),
    ("write, MiB/s", "write_mib_s"),
    ("with sync, MiB/s", "synced_mib_s"),
    ("read, MiB/s", "read_mib_s"),
    ("open and first value, ms", "open_first_ms"),
];

/// What the machine does with as many bytes in the same run.
const LIMITS: &[(&str, &str)] = &[
    ("BLAKE3", "blake3_mib_s"),
    ("memcpy", "memcpy_mib_s"),
    ("write of a file", "file_write_mib_s"),
    ("the same, synced", "file_synced_mib_s"),
];

/// A benchmark and what its rows have printed.
///
/// # Errors
/// A line is not JSON, or there is none.
pub(super) fn section(
    bench: &Benchmark,
    outputs: &[(&Row, String)],
) -> Result<String, Box<dyn Error>> {
    let mut text = heading(bench);
    for (row, output) in outputs {
        text += &run(row, output)?;
    }
    text += &format!("Each table is one command:\n\n{}", commands(bench));
    Ok(text)
}

fn run(row: &Row, output: &str) -> Result<String, Box<dyn Error>> {
    let cases: Vec<Value> = output.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let first = cases.first().ok_or("it has printed nothing")?;
    let limits = LIMITS.iter().filter(|(_, field)| first.get(*field).is_some());
    let limits = limits.map(|(label, field)| format!("{label} {}", cell(first, field)));
    let limits: Vec<String> = limits.collect();
    let limits = match &limits[..] {
        [] => String::new(),
        limits => format!("The machine in the same run, MiB/s: {}.\n\n", limits.join(", ")),
    };
    let columns: Vec<_> = COLUMNS
        .iter()
        .filter(|(_, field)| cases.iter().any(|case| case.get(*field).is_some()))
        .collect();
    let header: Vec<&str> =
        std::iter::once("").chain(columns.iter().map(|(label, _)| *label)).collect();
    let lines = cases.iter().map(|case| {
        let name = case.get("case").and_then(Value::as_str).unwrap_or_default().to_owned();
        std::iter::once(name).chain(columns.iter().map(|(_, field)| cell(case, field))).collect()
    });
    let table = table(&header, lines);
    Ok(format!("### {}\n\n{table}\n{limits}", row.label))
}

/// A number with three digits that count; nothing where there is none.
fn cell(case: &Value, field: &str) -> String {
    match case.get(field).and_then(Value::as_f64) {
        None => String::new(),
        Some(number) if number.fract() == 0.0 || number >= 100.0 => format!("{number:.0}"),
        Some(number) if number >= 10.0 => format!("{number:.1}"),
        Some(number) => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row = Row { label: "a row", arguments: "" };

    #[test]
    fn a_line_is_a_row_and_what_nobody_measures_has_no_column() {
        let output = concat!(
            r#"{"case":"full","write_mib_s":812.4,"blake3_mib_s":4000.2,"objects_written":2}"#,
            "\n",
            r#"{"case":"read","read_mib_s":45.26,"blake3_mib_s":4000.2}"#
        );
        let text = run(&ROW, output).expect("two cases");
        assert!(text.contains("|  | objects | write, MiB/s | read, MiB/s |\n"), "{text}");
        assert!(text.contains("| full | 2 | 812 |  |\n| read |  |  | 45.3 |\n"), "{text}");
        assert!(text.contains("BLAKE3 4000.\n"), "{text}");
    }

    #[test]
    fn other_output_is_an_error() {
        assert!(run(&ROW, "").is_err());
        assert!(run(&ROW, "done").is_err());
    }
}
