//! The `strandline` command: looks at checkpoints, verifies, compares, exports and collects them,
//! also beside a running job.
//!
//! ```text
//!  URI ──► place ──► reading (pinned) ──► list show verify diff du      ──► table, JSON
//!                          │
//!                          ├──► savepoint create ──► a folder
//!                          └──► export ──► archive (tar) ──► import ──► a folder
//! ```
//!
//! A URI is the root of a checkpoint storage, the folder of one job in it, or a savepoint's folder.
//!
//! Exit codes: 0 all is well; 1 something is damaged, can't be read or written, or was subsumed
//! while it was being read; 2 the arguments are wrong, or what was asked for is refused; 130
//! interrupted.
//!
//! Costs: `list` reads manifests, `show` and `du` indexes too; all else reads and hashes all bytes
//! of the checkpoint, with one chunk for each run that speaks at the place at hand in memory.
//!
//! MSRV: 1.89.

mod archive;
mod diff;
mod du;
mod export;
mod failure;
mod gc;
mod host;
mod import;
mod interrupt;
mod list;
mod place;
mod progress;
mod reading;
mod report;
mod savepoint;
mod show;
mod table;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Look at the checkpoints of streaming jobs; verify, compare, export and collect them.
#[derive(Parser)]
#[command(name = "strandline", version, about, after_help = EXIT_CODES)]
struct Flags {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 all is well; 1 something is damaged, failed or was \
                          subsumed while it was read; 2 bad arguments, or refused; 130 \
                          interrupted";

#[derive(Subcommand)]
enum Command {
    /// Look at checkpoints and savepoints, export and collect them
    #[command(subcommand)]
    Checkpoints(Checkpoints),
    /// Make savepoints
    #[command(subcommand)]
    Savepoint(Savepoint),
}

#[derive(Subcommand)]
enum Checkpoints {
    /// One line for each completed checkpoint
    List(Target),
    /// All there is to know about one checkpoint, the newest unless told otherwise
    Show(ShowTarget),
    /// Reads and hashes again everything that the checkpoints name; exit code 1 if anything is
    /// damaged or missing
    Verify(Target),
    /// What has been added, removed and changed from one checkpoint to another
    Diff(DiffTarget),
    /// What each checkpoint costs: bytes of its own, and bytes shared with others
    Du(Target),
    /// Writes one checkpoint, as a savepoint, to a tar file
    Export(ExportTarget),
    /// Makes a savepoint's folder of such a file
    Import(ImportTarget),
    /// Deletes what nothing names, where no job runs that would do it
    Gc(GcTarget),
}

#[derive(Subcommand)]
enum Savepoint {
    /// Writes a completed checkpoint out once more: a folder that stands by itself, and is yours
    Create(SavepointTarget),
}

/// What to look at.
#[derive(clap::Args)]
struct Target {
    /// Root of the checkpoints, one job's folder under it, or a savepoint's folder
    uri: String,
    /// The checkpoint with this number
    #[arg(long, value_name = "N")]
    checkpoint: Option<u64>,
    /// For programs: one JSON document, or with --entries one JSON object a line
    #[arg(long)]
    json: bool,
}

impl Target {
    fn wants(&self, checkpoint: u64) -> bool {
        self.checkpoint.is_none_or(|wanted| wanted == checkpoint)
    }
}

#[derive(clap::Args)]
struct ShowTarget {
    #[command(flatten)]
    target: Target,
    /// All entries, one a line: section, key and value, with tabs between; bytes in hex
    #[arg(long)]
    entries: bool,
    /// Entries of this section only
    #[arg(long, value_name = "NAME")]
    section: Option<String>,
}

#[derive(clap::Args)]
struct DiffTarget {
    /// A URI and two checkpoints of it, by number or by a URI of their own; or two URIs
    #[arg(value_name = "URI A B", num_args = 2..=3, required = true)]
    operands: Vec<String>,
    /// All entries that differ, one a line: how, section and key, with tabs between; keys in hex
    #[arg(long)]
    entries: bool,
    /// For programs: one JSON document, or with --entries one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ExportTarget {
    #[command(flatten)]
    target: Target,
    /// The file to make; one that is there is never replaced
    #[arg(long, value_name = "FILE.tar")]
    output: PathBuf,
}

#[derive(clap::Args)]
struct ImportTarget {
    /// What `export` has made
    #[arg(value_name = "FILE.tar")]
    file: PathBuf,
    /// Root under which the savepoint's folder is made
    #[arg(long = "target", value_name = "URI")]
    to: String,
    /// For programs: one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct GcTarget {
    /// Root of the checkpoints, or one job's folder under it
    uri: String,
    /// Only say what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// For programs: one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct SavepointTarget {
    #[command(flatten)]
    target: Target,
    /// Root under which the savepoint's folder is made [default: that of the checkpoint]
    #[arg(long = "target", value_name = "URI")]
    to: Option<String>,
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
    interrupt::watch();
    let ended = match &flags.command {
        Command::Checkpoints(command) => checkpoints(command),
        Command::Savepoint(Savepoint::Create(of)) => savepoint::create(of),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            table::say(&format!("error: {}", failure.text));
            ExitCode::from(failure.code)
        }
    }
}

fn checkpoints(command: &Checkpoints) -> failure::Result<u8> {
    match command {
        Checkpoints::List(target) => list::run(target),
        Checkpoints::Show(of) => show::run(of),
        Checkpoints::Verify(target) => verify::run(target),
        Checkpoints::Diff(of) => diff::run(of),
        Checkpoints::Du(target) => du::run(target),
        Checkpoints::Export(of) => export::run(of),
        Checkpoints::Import(of) => import::run(of),
        Checkpoints::Gc(of) => gc::run(of),
    }
}
