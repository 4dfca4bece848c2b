//! A word count whose process dies at the commit point: just before or just after the n-th
//! manifest is published. For the tests; the real thing is the example `wordcount`.
//!
//! Arguments: input, output, checkpoints, `before` | `after` | `never`, n.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use strandline::connectors::file::{FileLines, FileSink, Line};
use strandline::snapshot::{self, Lock, Object, Store, Upload, open_store};
use strandline::{Environment, Result};

/// A store that kills its process with SIGKILL around one publication.
#[derive(Debug)]
struct Deadly {
    store: Arc<dyn Store>,
    before: Option<u64>,
    after: Option<u64>,
    published: AtomicU64,
}

impl Store for Deadly {
    fn create(&self, path: &str, bytes: &[u8]) -> snapshot::Result<()> {
        if !path.ends_with("/_metadata") {
            return self.store.create(path, bytes);
        }
        // Relaxed: one count, nothing else depends on it.
        let number = self.published.fetch_add(1, Ordering::Relaxed) + 1;
        if self.before == Some(number) {
            die();
        }
        let created = self.store.create(path, bytes);
        if self.after == Some(number) {
            die();
        }
        created
    }

    fn put(&self, path: &str) -> snapshot::Result<Box<dyn Upload>> {
        self.store.put(path)
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> snapshot::Result<Vec<u8>> {
        self.store.read(path, offset, len)
    }

    fn size(&self, path: &str) -> snapshot::Result<u64> {
        self.store.size(path)
    }

    fn list(&self, prefix: &str) -> snapshot::Result<Vec<Object>> {
        self.store.list(prefix)
    }

    fn delete(&self, path: &str) -> snapshot::Result<()> {
        self.store.delete(path)
    }

    fn location(&self) -> String {
        self.store.location()
    }

    fn describe(&self, path: &str) -> String {
        self.store.describe(path)
    }

    fn local_root(&self) -> Option<std::path::PathBuf> {
        self.store.local_root()
    }

    fn lock(&self, path: &str) -> snapshot::Result<Option<Box<dyn Lock>>> {
        self.store.lock(path)
    }
}

/// SIGKILL: no destructor, no buffer, no goodbye.
fn die() {
    drop(signal_hook::low_level::raise(signal_hook::consts::SIGKILL));
}

fn words(line: Line, out: &mut Vec<String>) {
    let runs = line.text.split(|c: char| !c.is_alphabetic() && c != '\'');
    let words = runs.filter(|run| run.contains(char::is_alphabetic));
    out.extend(words.map(str::to_lowercase));
}

fn run(arguments: &[String]) -> Result<()> {
    let [input, output, checkpoints, when, number] = arguments else {
        let text = "five arguments: input, output, checkpoints, before|after|never, n";
        return Err(strandline::Error::new(strandline::ErrorKind::Invalid, text));
    };
    let number = number.parse().ok();
    let store = open_store(checkpoints).map_err(|error| {
        strandline::Error::new(strandline::ErrorKind::Invalid, "checkpoints").because(error)
    })?;
    let deadly = Deadly {
        store,
        before: number.filter(|_| when == "before"),
        after: number.filter(|_| when == "after"),
        published: AtomicU64::new(0),
    };
    let mut env = Environment::new();
    env.set_parallelism(2);
    env.enable_checkpointing(Duration::from_millis(50));
    env.config().rate = Some(6_000);
    env.checkpoint_store(Arc::new(deadly));
    env.from_source(FileLines::new(Path::new(input))?)
        .uid("lines")
        .flat_map(words)
        .key_by(|word| word.clone())
        .map_with_state(|word, _, count: &mut u64| {
            *count += 1;
            format!("{word}\t{count}")
        })
        .uid("counts")
        .sink_to(FileSink::new(Path::new(output)))
        .uid("output");
    env.execute("wordcount-killed-at-commit").map(drop)
}

#[expect(clippy::print_stderr, reason = "a program says why it failed")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.full());
            ExitCode::FAILURE
        }
    }
}
