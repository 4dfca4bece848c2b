//! Steps that run one after another, and what became of them.

use std::error::Error;
use std::fmt::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::workspace::cargo;

/// What became of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    /// Something is wrong with the tree.
    Failed,
    /// A tool is missing, and why that is no failure.
    Skipped(String),
    /// It would have said nothing, because of an earlier failure.
    NotRun(String),
}

/// A step that is over.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) name: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) time: Duration,
}

/// Runs a step between two lines that name it and tell its time.
#[expect(clippy::disallowed_methods, reason = "people want to know what a step takes")]
pub(crate) fn step(
    name: &'static str,
    work: impl FnOnce() -> Result<Outcome, Box<dyn Error>>,
) -> Report {
    println!("\n==> {name}");
    let start = Instant::now();
    let outcome = work().unwrap_or_else(|error| {
        eprintln!("{name}: {error}");
        Outcome::Failed
    });
    let report = Report { name, outcome, time: start.elapsed() };
    println!("<== {}", line(&report));
    report
}

/// Runs cargo; its exit code decides.
pub(crate) fn run_cargo(
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<Outcome, Box<dyn Error>> {
    println!("cargo {}", arguments.join(" "));
    let status = cargo().args(arguments).envs(environment.iter().copied()).status()?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
}

/// Runs a cargo command that is a component of its own, if the toolchain has it.
pub(crate) fn run_component(
    component: &str,
    arguments: &[&str],
) -> Result<Outcome, Box<dyn Error>> {
    let subcommand = arguments.first().copied().unwrap_or_default();
    if has_subcommand(subcommand) {
        return run_cargo(arguments, &[]);
    }
    Ok(Outcome::Skipped(format!(
        "this toolchain has no {component}; `rustup component add {component}` adds it"
    )))
}

fn has_subcommand(name: &str) -> bool {
    let mut command = cargo();
    command.args([name, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A line for each step and one for all of them; whether nothing failed.
pub(crate) fn summary(reports: &[Report]) -> (String, bool) {
    let mut text = String::new();
    for report in reports {
        writeln!(text, "{}", line(report)).expect("writing to a string succeeds");
    }
    let failed: Vec<&str> =
        reports.iter().filter(|report| failed(report)).map(|r| r.name).collect();
    let skipped = reports.iter().any(|report| matches!(report.outcome, Outcome::Skipped(_)));
    let total: Duration = reports.iter().map(|report| report.time).sum();
    let verdict = match (failed.is_empty(), skipped) {
        (true, false) => "everything is well".to_owned(),
        (true, true) => "what was checked is well, but STEPS WERE SKIPPED".to_owned(),
        (false, _) => format!("FAILED: {}", failed.join(", ")),
    };
    write!(text, "{verdict} ({})", seconds(total)).expect("writing to a string succeeds");
    (text, failed.is_empty())
}

fn failed(report: &Report) -> bool {
    matches!(report.outcome, Outcome::Failed | Outcome::NotRun(_))
}

fn line(report: &Report) -> String {
    let name = report.name;
    match &report.outcome {
        Outcome::Passed => format!("ok       {name} ({})", seconds(report.time)),
        Outcome::Failed => format!("FAILED   {name} ({})", seconds(report.time)),
        Outcome::Skipped(why) => format!("SKIPPED: {name}: {why}"),
        Outcome::NotRun(why) => format!("NOT RUN  {name}: {why}"),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(outcomes: &[(&'static str, Outcome)], expected: &str, well: bool) {
        let reports: Vec<Report> = outcomes
            .iter()
            .map(|(name, outcome)| Report {
                name,
                outcome: outcome.clone(),
                time: Duration::from_millis(1_500),
            })
            .collect();
        assert_eq!(summary(&reports), (expected.to_owned(), well));
    }

    #[test]
    fn all_passed() {
        check(
            &[("format", Outcome::Passed), ("tests", Outcome::Passed)],
            "ok       format (1.5 s)\nok       tests (1.5 s)\neverything is well (3.0 s)",
            true,
        );
    }

    #[test]
    fn a_skipped_step_is_loud_and_no_failure() {
        check(
            &[("lints", Outcome::Skipped("no clippy".to_owned()))],
            "SKIPPED: lints: no clippy\n\
             what was checked is well, but STEPS WERE SKIPPED (1.5 s)",
            true,
        );
    }

    #[test]
    fn failures_are_named_in_the_last_line() {
        check(
            &[("build", Outcome::Failed), ("tests", Outcome::NotRun("no build".to_owned()))],
            "FAILED   build (1.5 s)\nNOT RUN  tests: no build\nFAILED: build, tests (3.0 s)",
            false,
        );
    }

    #[test]
    fn an_error_is_a_failure() {
        let report = step("odd", || Err("no disk".into()));
        assert_eq!(report.outcome, Outcome::Failed);
    }
}
