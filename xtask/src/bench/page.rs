//! `docs/benchmarks.md`, as text.

use super::machine::Machine;
use super::peers::{Peer, Reached};
use super::{Benchmark, Figures, Percentiles, Row};

/// A benchmark and what its rows have given.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) bench: &'static Benchmark,
    pub(super) rows: Vec<(&'static Row, Figures)>,
}

const DASH: &str = "–";

/// The whole page.
pub(super) fn page(machine: &Machine, sections: &[String]) -> String {
    let mut parts = vec![introduction(machine)];
    parts.extend(sections.iter().cloned());
    parts.join("\n")
}

/// With three digits that count: `1.53 M`.
pub(super) fn millions(number: f64) -> String {
    format!("{} M", three_digits(number / 1e6))
}

fn introduction(machine: &Machine) -> String {
    let Machine { cpu, cores, memory, kernel, file_system, compiler, commit, date } = machine;
    format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench all`, which runs every row once. \
         One run on a machine that others may share is worth its ratios, not its last digit.\n\n\
         | | |\n|---|---|\n\
         | CPU | {cpu} |\n| cores | {cores} |\n| memory | {memory} |\n| kernel | {kernel} |\n\
         | file system | {file_system} |\n| compiler | {compiler} |\n| commit | {commit} |\n\
         | date | {date} |\n"
    )
}

/// A benchmark of jobs.
pub(super) fn section(section: &Section) -> String {
    let Section { bench, rows } = section;
    let mut text = heading(bench);
    text += &own_table(rows);
    text += &format!("\nEach row is one command:\n\n{}\n", commands(bench));
    if !bench.peers.is_empty() {
        text += &beside_others(bench, rows);
    }
    text
}

pub(super) fn heading(bench: &Benchmark) -> String {
    format!("## {}\n\n{}.\n\n", bench.name, capital(bench.about))
}

fn own_table(rows: &[(&Row, Figures)]) -> String {
    let header = [
        "",
        "records/s",
        "checkpoints",
        "checkpoint p50 / p99 / max, ms",
        "pause of a task p50 / p99 / max, µs",
        "full, MiB",
        "written, MiB",
    ];
    let lines = rows.iter().map(|(row, figures)| {
        vec![
            row.label.to_owned(),
            millions(figures.records_per_s),
            figures.checkpoints.to_string(),
            percentiles(&figures.checkpoint_ms),
            percentiles(&figures.pause_us),
            mebibytes(figures.bytes_full),
            mebibytes(figures.bytes_written),
        ]
    });
    table(&header, lines)
}

pub(super) fn commands(bench: &Benchmark) -> String {
    let command = |row: &Row| format!("cargo xtask bench {} {}\n", bench.name, row.arguments);
    let commands: String = bench.rows.iter().map(command).collect();
    format!("```sh\n{commands}```\n")
}

/// Peers' figures, and the ratios to them, whoever is faster.
fn beside_others(bench: &Benchmark, rows: &[(&Row, Figures)]) -> String {
    let labels = rows.iter().map(|(row, _)| row.label);
    let mut header = vec![""];
    header.extend(labels);
    let own = std::iter::once(own_line(rows));
    let reached = table(&header, own.chain(bench.peers.iter().map(peer_line)));
    let ratios = table(&header, bench.peers.iter().map(|peer| ratio_line(peer, rows)));
    let conditions: String =
        bench.peers.iter().map(|peer| format!("- {}: {}.\n", peer.name, peer.conditions)).collect();
    format!(
        "### Beside others\n\n\
         The others' figures are constants, measured on another machine of this size \
         (2 virtual cores, 24 GiB; another CPU, so compare with care), with parallelism 2. \
         Records/s; in brackets the duration of a checkpoint, p50 / max, ms.\n\n\
         {reached}\n{conditions}\n\
         Strandline's records/s divided by theirs; below 1 they are faster:\n\n{ratios}"
    )
}

fn own_line(rows: &[(&Row, Figures)]) -> Vec<String> {
    let cell = |(_, figures): &(&Row, Figures)| {
        let Percentiles { p50, max, .. } = &figures.checkpoint_ms;
        let rate = millions(figures.records_per_s);
        format!("{rate} ({} / {})", three_digits(*p50), three_digits(*max))
    };
    std::iter::once("**Strandline**".to_owned()).chain(rows.iter().map(cell)).collect()
}

fn peer_line(peer: &Peer) -> Vec<String> {
    let cells =
        peer.results.iter().map(|reached| reached.as_ref().map_or_else(|| DASH.to_owned(), cell));
    std::iter::once(peer.name.to_owned()).chain(cells).collect()
}

fn cell(reached: &Reached) -> String {
    let (worst, best) = reached.records_per_s;
    let rate = range(millions(worst), millions(best));
    if reached.checkpoint_ms_p50.is_empty() {
        return rate;
    }
    format!("{rate} ({} / {})", reached.checkpoint_ms_p50, reached.checkpoint_ms_max)
}

fn ratio_line(peer: &Peer, rows: &[(&Row, Figures)]) -> Vec<String> {
    let cells = peer.results.iter().zip(rows).map(|(reached, (_, figures))| {
        reached
            .as_ref()
            .map_or_else(|| DASH.to_owned(), |reached| ratio(figures.records_per_s, reached))
    });
    std::iter::once(peer.name.to_owned()).chain(cells).collect()
}

fn ratio(own: f64, reached: &Reached) -> String {
    let (worst, best) = reached.records_per_s;
    range(format!("{:.2}", own / best), format!("{:.2}", own / worst))
}

fn range(low: String, high: String) -> String {
    if low == high { low } else { format!("{low}–{high}") }
}

pub(super) fn table(header: &[&str], lines: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", header.join(" | "), "---|".repeat(header.len()));
    for line in lines {
        text += &format!("| {} |\n", line.join(" | "));
    }
    text
}

fn percentiles(of: &Percentiles) -> String {
    [of.p50, of.p99, of.max].map(three_digits).join(" / ")
}

fn mebibytes(bytes: f64) -> String {
    three_digits(bytes / 1_048_576.0)
}

fn three_digits(number: f64) -> String {
    match number {
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{BENCHMARKS, Output};
    use super::*;

    fn machine() -> Machine {
        Machine {
            cpu: "A CPU".to_owned(),
            cores: "2".to_owned(),
            memory: "24.0 GiB".to_owned(),
            kernel: "Linux 6".to_owned(),
            file_system: "ext4".to_owned(),
            compiler: "rustc 1.89.0".to_owned(),
            commit: "abc".to_owned(),
            date: "2026-01-31".to_owned(),
        }
    }

    fn figures(records_per_s: f64) -> Figures {
        Figures {
            records_per_s,
            checkpoints: 20,
            checkpoint_ms: Percentiles { p50: 40.5, p99: 90.0, max: 97.0 },
            pause_us: Percentiles { p50: 3.0, p99: 5.0, max: 8.0 },
            bytes_full: 1_048_576.0,
            bytes_written: 524_288.0,
        }
    }

    fn whole_page(records_per_s: f64) -> String {
        let section = |bench: &'static Benchmark| {
            let rows = bench.rows.iter().map(|row| (row, figures(records_per_s))).collect();
            section(&Section { bench, rows })
        };
        let jobs = BENCHMARKS.iter().filter(|bench| bench.output == Output::Job);
        page(&machine(), &jobs.map(section).collect::<Vec<_>>())
    }

    #[track_caller]
    fn check_line(text: &str, expected: &str) {
        assert!(text.lines().any(|line| line == expected), "no line {expected:?} in\n{text}");
    }

    #[test]
    fn the_page_names_machine_commands_and_figures() {
        let text = whole_page(9.0e6);
        check_line(&text, "| commit | abc |");
        check_line(
            &text,
            "cargo xtask bench keyed-count \
             --keys 1000000 --seconds 20 --interval 1s --parallelism 2 --json",
        );
        check_line(
            &text,
            "| 10⁶ keys | 9.00 M | 20 | 40.5 / 90.0 / 97.0 | 3.00 / 5.00 / 8.00 | 1.00 | 0.50 |",
        );
        let own = "9.00 M (40.5 / 97.0)";
        check_line(&text, &format!("| **Strandline** | {own} | {own} | {own} |"));
        check_line(
            &text,
            "| Flink 2.3, heap | 4.50 M (42 / 97) | 1.90 M–2.00 M (365–379 / 686–817) \
             | 0.96 M (2,989 / 3,996) |",
        );
    }

    #[test]
    fn wins_and_losses_are_shown_alike() {
        let text = whole_page(9.0e6);
        check_line(&text, "| Flink 2.3, heap | 2.00 | 4.50–4.74 | 9.38 |");
        check_line(&text, "| Timely 0.32 | 0.07 | 0.36–0.40 | – |");
        check_line(&text, "| renoir 0.6 | 0.35 | 0.83 | 1.38 |");
    }

    #[test]
    fn each_peer_has_a_cell_for_each_row() {
        for bench in BENCHMARKS.iter().filter(|bench| bench.output == Output::Job) {
            assert!(bench.peers.iter().all(|peer| peer.results.len() == bench.rows.len()));
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(millions(124.0e6), "124 M");
        assert_eq!(millions(0.07e6), "0.07 M");
        assert_eq!(three_digits(12.345), "12.3");
        assert_eq!(three_digits(99.96), "100");
        assert_eq!(capital("über"), "Über");
    }
}
