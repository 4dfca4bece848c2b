//! What the arguments ask for.

use crate::bench;
use crate::services::Action;

/// One thing to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    /// Print a text and be done.
    Help(&'static str),
    Test {
        services: bool,
    },
    Tidy,
    Vectors {
        /// Compare instead of writing.
        check: bool,
    },
    Services(Action),
    BenchList,
    BenchAll,
    Bench {
        name: &'static str,
        /// Passed on to the benchmark as they are.
        arguments: Vec<String>,
    },
}

const HELP: &str = "\
cargo xtask COMMAND

  test [--services]     format, lints, documentation, tidy, and all tests
  tidy                  layers, module docs, crate pages, leftovers
  vectors [--check]     write docs/vectors/snapshot.json, or compare it
  bench                 list the benchmarks
  bench NAME [ARGS …]   run one; ARGS are its own, try --help
  bench all             run each with its default figures and write docs/benchmarks.md
  services up|down|status   the servers that some tests need, on this machine
  ci                    what a build machine runs: test --services

`cargo xtask COMMAND --help` says more. Exit codes: 0 all is well, 1 something isn't, 2 bad arguments.";

const TEST: &str = "\
cargo xtask test [--services]

Everything that can be checked with the Rust toolchain alone, one step after another, each with its
time: cargo fmt, tidy, clippy, the documentation, the vectors, the tests with their doctests. A step whose tool
the toolchain lacks is skipped, loudly. A failing step doesn't keep the others from running.

  --services   also what needs servers (installs and starts them, tests, and stops them) and
               the Python reader, which needs Python and some wheels;
               a server that can't be had is a failure, and the tests that need it do nothing";

const SERVICES: &str = "\
cargo xtask services up       install and start what doesn't run yet, print the tests' variables
cargo xtask services down     stop all of them
cargo xtask services status   say which of them run

SeaweedFS (S3), Azurite (Azure) and a small HDFS, on 127.0.0.1. Needed: python3 with pip, node with
npm, a JDK of version 17 or newer, mvn. Everything is in target/services; `. target/services/env`
sets the variables. Data do not outlive `up`.";

const TIDY: &str = "\
cargo xtask tidy

Reads the source tree and prints one line for each problem, `path:line: what`:
- a crate that names one it must not know, or that has no place among the layers;
- a source file without a module doc, or longer than 700 lines; unfinished work; lints switched off
  without a reason; words that mean nothing outside the place where they were written;
- a library crate without a property test, a page with a program that runs, or a stated MSRV;
- a file that the documentation names and that isn't there.";

const VECTORS: &str = "\
cargo xtask vectors [--check]

Lets the library make the test vectors of the snapshot format, and writes docs/vectors/snapshot.json.

  --check   write nothing; say whether the file is what the library makes now";

const BENCH: &str = "\
cargo xtask bench                    list the benchmarks
cargo xtask bench NAME [ARGS …]      run one, optimised; ARGS are its own, try --help or --json
cargo xtask bench all                run each with its default figures and write docs/benchmarks.md";

impl Command {
    /// # Errors
    /// A text for the user, who has asked for something that doesn't exist.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match arguments.as_slice() {
            [] => Err(HELP.to_owned()),
            ["help" | "--help" | "-h"] => Ok(Self::Help(HELP)),
            ["test" | "ci", "--help" | "-h"] => Ok(Self::Help(TEST)),
            ["tidy", "--help" | "-h"] => Ok(Self::Help(TIDY)),
            ["vectors", "--help" | "-h"] => Ok(Self::Help(VECTORS)),
            ["services", "--help" | "-h"] => Ok(Self::Help(SERVICES)),
            ["services", "up"] => Ok(Self::Services(Action::Up)),
            ["services", "down"] => Ok(Self::Services(Action::Down)),
            ["services", "status"] => Ok(Self::Services(Action::Status)),
            ["services"] => Err(SERVICES.to_owned()),
            ["services", extra, ..] => Err(unexpected(extra, SERVICES)),
            ["bench", "--help" | "-h"] => Ok(Self::Help(BENCH)),
            ["test"] => Ok(Self::Test { services: false }),
            ["test", "--services"] | ["ci"] => Ok(Self::Test { services: true }),
            ["tidy"] => Ok(Self::Tidy),
            ["vectors"] => Ok(Self::Vectors { check: false }),
            ["vectors", "--check"] => Ok(Self::Vectors { check: true }),
            ["bench"] => Ok(Self::BenchList),
            ["bench", "all"] => Ok(Self::BenchAll),
            ["bench", "all", extra, ..] => Err(unexpected(extra, BENCH)),
            ["bench", name, rest @ ..] => benchmark(name, rest),
            ["test" | "ci", extra, ..] => Err(unexpected(extra, TEST)),
            ["tidy", extra, ..] => Err(unexpected(extra, TIDY)),
            ["vectors", extra, ..] => Err(unexpected(extra, VECTORS)),
            [unknown, ..] => Err(format!("no such command: {unknown}\n\n{HELP}")),
        }
    }
}

fn benchmark(name: &str, arguments: &[&str]) -> Result<Command, String> {
    let known = bench::find(name)
        .ok_or_else(|| format!("no such benchmark: {name}\n\n{}", bench::list()))?;
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    Ok(Command::Bench { name: known.name, arguments })
}

fn unexpected(argument: &str, usage: &str) -> String {
    format!("unexpected argument: {argument}\n\n{usage}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Command::parse(&arguments)
    }

    #[track_caller]
    fn check(line: &str, expected: Command) {
        assert_eq!(parse(line), Ok(expected));
    }

    #[track_caller]
    fn refused(line: &str, expected: &str) {
        let usage = parse(line).expect_err("the arguments are wrong");
        assert_eq!(usage.lines().next(), Some(expected));
    }

    #[test]
    fn commands() {
        check("test", Command::Test { services: false });
        check("test --services", Command::Test { services: true });
        check("ci", Command::Test { services: true });
        check("tidy", Command::Tidy);
        check("vectors", Command::Vectors { check: false });
        check("vectors --check", Command::Vectors { check: true });
        check("services up", Command::Services(Action::Up));
        check("services down", Command::Services(Action::Down));
        check("services status", Command::Services(Action::Status));
        check("bench", Command::BenchList);
        check("bench all", Command::BenchAll);
    }

    #[test]
    fn arguments_of_a_benchmark_are_its_own() {
        let arguments = vec!["--keys".to_owned(), "10".to_owned(), "--json".to_owned()];
        check(
            "bench keyed-count --keys 10 --json",
            Command::Bench { name: "keyed-count", arguments },
        );
        let arguments = vec!["--help".to_owned()];
        check("bench keyed-count --help", Command::Bench { name: "keyed-count", arguments });
    }

    #[test]
    fn help() {
        check("--help", Command::Help(HELP));
        check("help", Command::Help(HELP));
        check("test -h", Command::Help(TEST));
        check("tidy --help", Command::Help(TIDY));
        check("vectors --help", Command::Help(VECTORS));
        check("services --help", Command::Help(SERVICES));
        check("bench --help", Command::Help(BENCH));
    }

    #[test]
    fn refusals() {
        refused("", "cargo xtask COMMAND");
        refused("tset", "no such command: tset");
        refused("test --service", "unexpected argument: --service");
        refused("ci --services", "unexpected argument: --services");
        refused("tidy crates", "unexpected argument: crates");
        refused("vectors --chekc", "unexpected argument: --chekc");
        refused("services", SERVICES.lines().next().unwrap_or_default());
        refused("services start", "unexpected argument: start");
        refused("bench keyed", "no such benchmark: keyed");
        refused("bench all --json", "unexpected argument: --json");
    }
}
