//! The `strandline` command: looks at checkpoints and verifies them, also beside a running job.
//!
//! Exit codes: 0 fine, 1 something is damaged or can't be read, 2 bad arguments.

mod checkpoints;
mod report;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Look at the checkpoints of streaming jobs, and verify them.
#[derive(Parser)]
#[command(name = "strandline", version, about)]
struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Checkpoints and savepoints
    #[command(subcommand)]
    Checkpoints(Checkpoints),
}

#[derive(Subcommand)]
enum Checkpoints {
    /// One line for each completed checkpoint
    List(Target),
    /// All there is to know about one checkpoint, the newest unless told otherwise
    Show(Target),
    /// Reads and hashes again everything that the checkpoints name; exit code 1 if anything is
    /// damaged or missing
    Verify(Target),
}

/// What to look at.
#[derive(clap::Args)]
struct Target {
    /// Root of the checkpoints, or one job's folder under it
    uri: String,
    /// Only the checkpoint with this number
    #[arg(long, value_name = "N")]
    checkpoint: Option<u64>,
    /// For programs: one JSON document
    #[arg(long)]
    json: bool,
}

/// A bad argument gets one line; help and version get what they are.
fn refuse(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit()
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let line: Vec<&str> = lines.collect();
    table::say(&format!("{} (try --help)", line.join(" ")));
    std::process::exit(2)
}

fn main() -> ExitCode {
    #[cfg(feature = "object-stores")]
    strandline::store_object::register();
    let flags = Flags::try_parse().unwrap_or_else(|error| refuse(&error));
    let Command::Checkpoints(command) = flags.command;
    let ended = match &command {
        Checkpoints::List(target) => checkpoints::list(target),
        Checkpoints::Show(target) => checkpoints::show(target),
        Checkpoints::Verify(target) => checkpoints::verify(target),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            table::say(&format!("error: {}", failure.text));
            ExitCode::from(failure.code)
        }
    }
}
