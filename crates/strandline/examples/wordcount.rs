//! Counts words: one line `word<TAB>count` for each word read, the count being that word's running
//! total. So a text of n words gives exactly n lines, and any loss or repetition can be seen.
//!
//! `cargo run --release --example wordcount` reads fourteen licences. Kill it, start it again: no
//! count is missing and none comes twice.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use strandline::connectors::file::{FileLines, FileSink, Line};
use strandline::launch::{self, JobArgs};

/// Counts words: one line `word<TAB>count` for each word read
#[derive(Parser)]
#[command(version, about)]
struct Flags {
    #[command(flatten)]
    job: JobArgs,
}

/// The words of a line: longest runs of letters and apostrophes with at least one letter in them,
/// in lower case.
fn words(line: Line, out: &mut Vec<String>) {
    let runs = line.text.split(|c: char| !c.is_alphabetic() && c != '\'');
    let words = runs.filter(|run| run.contains(char::is_alphabetic));
    out.extend(words.map(str::to_lowercase));
}

fn main() -> ExitCode {
    #[cfg(feature = "object-stores")]
    strandline::store_object::register();
    let flags: Flags = launch::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let root = root.expect("the example is two folders below its workspace");
    let job = flags.job.job("wordcount", &root.join("data/licences"), &root.join("target"));
    job.run(|env| {
        env.from_source(FileLines::new(&job.input)?)
            .uid("lines")
            .flat_map(words)
            .key_by(|word| word.clone())
            .map_with_state(|word, _, count: &mut u64| {
                *count += 1;
                format!("{word}\t{count}")
            })
            .uid("counts")
            .sink_to(
                FileSink::new(&job.output)
                    .overwrite(job.overwrite)
                    .withdraw_later(job.withdraw_later),
            )
            .uid("output");
        Ok(())
    })
}
