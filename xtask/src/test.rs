//! `cargo xtask test`: everything that the Rust toolchain alone can check.
//!
//! Cheap steps come first. Clippy and the documentation share the checked dependencies, the steps
//! behind them the built ones, so each is compiled twice and not more.

use std::error::Error;

use crate::steps::{Outcome, Report, run_cargo, run_component, step, summary};
use crate::{python, tidy, vectors};

/// Whether every step passed, or was skipped for want of its tool.
pub(crate) fn run(services: bool) -> Result<bool, Box<dyn Error>> {
    let mut reports = vec![
        step("format", || run_component("rustfmt", &["fmt", "--all", "--check"])),
        step("tidy", tidy_step),
        step("lints", || {
            run_component("clippy", &["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"])
        }),
        step("documentation", || {
            run_cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-Dwarnings")])
        }),
    ];
    reports.push(step("vectors", vectors::step));
    reports.extend(build_and_test());
    if services {
        reports.push(step("services", services_step));
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

fn services_step() -> Result<Outcome, Box<dyn Error>> {
    println!("no test needs a server yet: nothing to start");
    Ok(Outcome::Passed)
}
