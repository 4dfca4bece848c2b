//! `cargo xtask test`: what the Rust toolchain alone can check within minutes, and with
//! `--services` cloud storage and what else needs servers.
//!
//! Cheap steps come first. Clippy and the documentation share the checked dependencies, the steps
//! behind them the built ones, so each is compiled twice and not more.

use std::error::Error;

use crate::services;
use crate::steps::{Outcome, Report, run_cargo, run_component, step, summary};
use crate::{python, tidy, vectors};

/// Packages and features of a check that takes a plain toolchain. Cloud storage and HDFS bring a
/// hundred crates and a large C library, so they are built and tested where there are servers.
const PLAIN: [&str; 3] = ["--workspace", "--exclude", "strandline-store-object"];

/// The same of a check of everything.
const ALL: [&str; 2] = ["--workspace", "--all-features"];

/// Whether every step passed, or was skipped for want of its tool.
pub(crate) fn run(services: bool) -> Result<bool, Box<dyn Error>> {
    let what: &[&str] = if services { &ALL } else { &PLAIN };
    let mut reports = vec![
        step("format", || run_component("rustfmt", &["fmt", "--all", "--check"])),
        step("tidy", tidy_step),
        step("lints", || {
            let arguments = [&["clippy"], what, &["--all-targets", "--", "-Dwarnings"]].concat();
            run_component("clippy", &arguments)
        }),
        step("documentation", || {
            let arguments = [&["doc"], what, &["--no-deps"]].concat();
            run_cargo(&arguments, &[("RUSTDOCFLAGS", "-Dwarnings")])
        }),
    ];
    reports.push(step("vectors", vectors::step));
    reports.extend(build_and_test());
    if services {
        reports.extend(test_on_services());
        reports.push(step("python", python::test));
    }
    let (text, well) = summary(&reports);
    println!("\n{text}");
    Ok(well)
}

fn tidy_step() -> Result<Outcome, Box<dyn Error>> {
    Ok(if tidy::run()? { Outcome::Passed } else { Outcome::Failed })
}

/// The process tests start the examples, so these are built before.
fn build_and_test() -> [Report; 2] {
    let examples =
        step("examples", || run_cargo(&["build", "--examples", "-p", "strandline"], &[]));
    let built = examples.outcome == Outcome::Passed;
    let tests = step("tests", || {
        if !built {
            return Ok(Outcome::NotRun("the examples don't build".to_owned()));
        }
        run_cargo(&[&["test"], &PLAIN[..], &["--no-fail-fast"]].concat(), &[])
    });
    [examples, tests]
}

/// The servers are stopped whatever has happened before.
fn test_on_services() -> [Report; 3] {
    let up = step("services up", services::up);
    let tests = step("tests on services", services_tests);
    let down = step("services down", services::down);
    [up, tests, down]
}

/// Tests of what could not be started do nothing; the step before has failed then.
fn services_tests() -> Result<Outcome, Box<dyn Error>> {
    let variables = services::variables();
    let stores = ["test", "-p", "strandline-store-object", "--all-features", "--no-fail-fast"];
    let jobs = ["test", "-p", "strandline-tests", "--test", "remote"];
    let stores = run_cargo(&stores, &variables)?;
    let jobs = run_cargo(&jobs, &variables)?;
    Ok(if stores == Outcome::Passed { jobs } else { stores })
}
