//! `cargo xtask test`: everything that the Rust toolchain alone can check, and with
//! `--services` what needs servers.
//!
//! Cheap steps come first. Clippy and the documentation share the checked dependencies, the steps
//! behind them the built ones, so each is compiled twice and not more.

use std::error::Error;

use crate::services;
use crate::steps::{Outcome, Report, run_cargo, run_component, step, summary};
use crate::{python, tidy, vectors};

const LINTS: [&str; 6] =
    ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-Dwarnings"];

/// Whether every step passed, or was skipped for want of its tool.
pub(crate) fn run(services: bool) -> Result<bool, Box<dyn Error>> {
    let mut reports = vec![
        step("format", || run_component("rustfmt", &["fmt", "--all", "--check"])),
        step("tidy", tidy_step),
        step("lints", || run_component("clippy", &LINTS)),
        step("documentation", || {
            let arguments = ["doc", "--workspace", "--all-features", "--no-deps"];
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
        run_cargo(&["test", "--workspace", "--no-fail-fast"], &[])
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
    let stores =
        "test -p strandline-store-object --all-features --test services --test lost_replies";
    let stores: Vec<&str> = stores.split(' ').collect();
    let jobs = ["test", "-p", "strandline-tests", "--test", "remote"];
    let stores = run_cargo(&stores, &variables)?;
    let jobs = run_cargo(&jobs, &variables)?;
    Ok(if stores == Outcome::Passed { jobs } else { stores })
}
