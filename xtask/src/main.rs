//! The house's own commands: `cargo xtask test`, `tidy`, `vectors`, `bench`, `services`, `ci`.
//!
//! ```text
//!  arguments ──► Command (pure) ──► test  ──► steps: cargo, tidy ──► summary (pure)
//!                                   tidy  ──► tree (I/O) ──► rules (pure) ──► problems
//!                                   vectors ► an example of strandline-snapshot ──► docs/vectors
//!                                   bench ──► strandline-benches ──► page (pure) ──► docs/benchmarks.md
//!                                   services ──► servers in target/services, for tests
//! ```
//!
//! It ends with 0 if all is well, 1 if something isn't, and 2 if the arguments can't be understood.
//! Nothing here is part of the library; it names no crate of it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "commands talk to people")]

mod bench;
mod command;
mod python;
mod services;
mod steps;
mod test;
mod tidy;
mod vectors;
mod workspace;

use std::error::Error;
use std::process::ExitCode;

use command::Command;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Command::parse(&arguments) {
        Ok(command) => exit_code(run(command)),
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::from(2)
        }
    }
}

/// Whether all is well; an error says what kept the command from finding out.
fn run(command: Command) -> Result<bool, Box<dyn Error>> {
    match command {
        Command::Help(text) => {
            println!("{text}");
            Ok(true)
        }
        Command::Test { services } => test::run(services),
        Command::Tidy => tidy::run(),
        Command::Vectors { check: true } => vectors::check(),
        Command::Vectors { check: false } => vectors::write(),
        Command::Services(action) => services::run(action),
        Command::BenchList => {
            println!("{}", bench::list());
            Ok(true)
        }
        Command::BenchAll => bench::all(),
        Command::Bench { name, arguments } => bench::one(name, &arguments),
    }
}

fn exit_code(outcome: Result<bool, Box<dyn Error>>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
