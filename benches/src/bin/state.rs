//! The state table: random updates one at a time and in batches, beside hashbrown alone in the same
//! run; freezing, with and without a reader of the view; memory; and how long it takes to go through
//! what has changed.
//!
//! Keys are there already when the clock runs, and are drawn uniformly, outside of the measured time.
//! Each side hashes within it: ours by the stable hash that routes records, hashbrown by its own
//! default. Rounds take turns, and the median counts. Each case has a process of its own, so that the
//! memory it takes is its own. One JSON object a line; rates in million updates a second.

use std::hash::Hash;
use std::ops::ControlFlow;
use std::process::{Command, ExitCode};
use std::sync::mpsc;

use clap::{Parser, ValueEnum};
use serde::Serialize;
use strandline::state::{Error, KeyHash, Shared, Table, View, hash_key};
use strandline_benches::{Stopwatch, below, mixed, percentile, sleep};

const BATCH: usize = 1024;
const ROUNDS: usize = 5;

#[derive(Parser)]
struct Flags {
    /// Numbers of keys
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000, 10_000_000])]
    keys: Vec<u64>,
    /// Updates of a round; at least as many as make it last
    #[arg(long, default_value_t = 4_000_000)]
    updates: u64,
    /// What is kept under what
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::U64, Kind::Bytes100, Kind::String])]
    cases: Vec<Kind>,
    /// Accepted for likeness with other benchmarks: the output is JSON in any case
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// u64 → u64
    U64,
    /// u64 → 100 bytes
    Bytes100,
    /// Text of 20 bytes → u64
    String,
}

#[derive(Serialize)]
struct Figures {
    case: &'static str,
    keys: u64,
    batch_m_per_s: f64,
    single_m_per_s: f64,
    hashbrown_m_per_s: f64,
    with_freeze_m_per_s: f64,
    /// Median of freezes after which everything is shared.
    freeze_us: f64,
    bytes_per_entry: f64,
    hashbrown_bytes_per_entry: f64,
    /// To go through the changes, of which one key in a hundred has one.
    changes_ms: f64,
}

/// What is kept under what.
trait Case {
    const NAME: &'static str;
    type Key: Serialize + Hash + Eq + Clone + Send + Sync + 'static;
    type Value: Clone + Send + Sync + 'static;

    fn key(number: u64) -> Self::Key;
    fn value() -> Self::Value;
    fn update(value: &mut Self::Value);
}

struct Numbers;

impl Case for Numbers {
    const NAME: &'static str = "u64";
    type Key = u64;
    type Value = u64;

    fn key(number: u64) -> u64 {
        mixed(number)
    }

    fn value() -> u64 {
        0
    }

    fn update(value: &mut u64) {
        *value += 1;
    }
}

struct Bytes;

impl Case for Bytes {
    const NAME: &'static str = "bytes100";
    type Key = u64;
    type Value = [u8; 100];

    fn key(number: u64) -> u64 {
        mixed(number)
    }

    fn value() -> [u8; 100] {
        [0; 100]
    }

    fn update(value: &mut [u8; 100]) {
        value.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    }
}

struct Strings;

impl Case for Strings {
    const NAME: &'static str = "string";
    type Key = Shared<String>;
    type Value = u64;

    fn key(number: u64) -> Shared<String> {
        Shared::new(format!("key-{:016x}", mixed(number)))
    }

    fn value() -> u64 {
        0
    }

    fn update(value: &mut u64) {
        *value += 1;
    }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let measured = match (&flags.cases[..], &flags.keys[..]) {
        ([kind], [keys]) => measure_kind(&flags, *kind, *keys).map_err(|error| error.to_string()),
        _ => measure_apart(&flags),
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Starts itself for each case.
fn measure_apart(flags: &Flags) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    for kind in &flags.cases {
        for keys in &flags.keys {
            let kind = kind.to_possible_value().map_or_else(String::new, |of| of.get_name().into());
            let (keys, updates) = (keys.to_string(), flags.updates.to_string());
            let arguments = ["--cases", &kind, "--keys", &keys, "--updates", &updates, "--json"];
            let status = Command::new(&program).args(arguments).status();
            let status = status.map_err(|error| error.to_string())?;
            if !status.success() {
                return Err(format!("{kind} with {keys} keys ended with {status}"));
            }
        }
    }
    Ok(())
}

fn measure_kind(flags: &Flags, kind: Kind, keys: u64) -> Result<(), Error> {
    match kind {
        Kind::U64 => measure::<Numbers>(flags, keys),
        Kind::Bytes100 => measure::<Bytes>(flags, keys),
        Kind::String => measure::<Strings>(flags, keys),
    }
}

fn measure<C: Case>(flags: &Flags, keys: u64) -> Result<(), Error> {
    let before = resident_bytes();
    let mut table = Table::new();
    for number in 0..keys {
        let key = C::key(number);
        table.insert(hash_of(&key)?, key, C::value());
    }
    let ours = resident_bytes().saturating_sub(before);
    let before = resident_bytes();
    let mut map = hashbrown::HashMap::new();
    for number in 0..keys {
        map.insert(C::key(number), C::value());
    }
    let theirs = resident_bytes().saturating_sub(before);

    let mut draw = Draw::<C> { keys, drawn: 0, batch: Vec::new(), hashes: Vec::new() };
    let (mut batch, mut single, mut hashbrown) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        batch.push(
            draw.round(flags.updates, |keys, hashes| in_batches::<C>(&mut table, keys, hashes))?,
        );
        single.push(draw.round(flags.updates, |keys, _| one_by_one::<C>(&mut table, keys))?);
        hashbrown.push(draw.round(flags.updates, |keys, _| of_hashbrown::<C>(&mut map, keys))?);
    }
    drop(map);
    let with_freeze = with_freezes(&mut table, &mut draw)?;
    let freeze_us = freeze_us(&mut table, &mut draw)?;
    let changes_ms = changes_ms(&mut table, &mut draw)?;
    print(&Figures {
        case: C::NAME,
        keys,
        batch_m_per_s: percentile(&batch, 50),
        single_m_per_s: percentile(&single, 50),
        hashbrown_m_per_s: percentile(&hashbrown, 50),
        with_freeze_m_per_s: with_freeze,
        freeze_us,
        bytes_per_entry: to_f64(ours) / to_f64(keys),
        hashbrown_bytes_per_entry: to_f64(theirs) / to_f64(keys),
        changes_ms,
    });
    Ok(())
}

/// Draws keys, a batch at a time.
struct Draw<C: Case> {
    keys: u64,
    drawn: u64,
    batch: Vec<C::Key>,
    hashes: Vec<KeyHash>,
}

impl<C: Case> Draw<C> {
    fn next(&mut self) {
        self.batch.clear();
        for _ in 0..BATCH {
            self.drawn += 1;
            self.batch.push(C::key(below(mixed(!self.drawn), self.keys)));
        }
    }

    /// Million updates a second, of so many.
    fn round(
        &mut self,
        updates: u64,
        mut update: impl FnMut(&[C::Key], &mut Vec<KeyHash>) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let (mut seconds, mut done) = (0.0, 0);
        while done < updates {
            self.next();
            let watch = Stopwatch::start();
            update(&self.batch, &mut self.hashes)?;
            seconds += watch.seconds();
            done += BATCH as u64;
        }
        Ok(to_f64(done) / seconds / 1e6)
    }
}

fn hash_of<K: Serialize>(key: &K) -> Result<KeyHash, Error> {
    hash_key(key, &mut Vec::new())
}

fn in_batches<C: Case>(
    table: &mut Table<C::Key, C::Value>,
    keys: &[C::Key],
    hashes: &mut Vec<KeyHash>,
) -> Result<(), Error> {
    hashes.clear();
    let mut scratch = Vec::new();
    for key in keys {
        hashes.push(hash_key(key, &mut scratch)?);
    }
    table.update_batch(hashes, keys, |_| C::value(), |_, value| C::update(value));
    Ok(())
}

fn one_by_one<C: Case>(table: &mut Table<C::Key, C::Value>, keys: &[C::Key]) -> Result<(), Error> {
    let mut scratch = Vec::new();
    for key in keys {
        let hash = hash_key(key, &mut scratch)?;
        C::update(table.get_or_insert_with(hash, key, C::value));
    }
    Ok(())
}

fn of_hashbrown<C: Case>(
    map: &mut hashbrown::HashMap<C::Key, C::Value>,
    keys: &[C::Key],
) -> Result<(), Error> {
    for key in keys {
        match map.get_mut(key) {
            Some(value) => C::update(value),
            None => drop(map.insert(key.clone(), C::value())),
        }
    }
    Ok(())
}

/// Batches with a freeze each second of them; another thread goes through all entries of each view
/// and holds it for half a second at least.
fn with_freezes<C: Case>(
    table: &mut Table<C::Key, C::Value>,
    draw: &mut Draw<C>,
) -> Result<f64, Error> {
    const SECONDS: f64 = 4.0;
    let (sender, views) = mpsc::channel::<View<C::Key, C::Value>>();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || views.into_iter().try_for_each(|view| read(&view)));
        let (mut seconds, mut done, mut next) = (0.0, 0, 0.0);
        while seconds < SECONDS {
            draw.next();
            let watch = Stopwatch::start();
            if seconds >= next {
                next += 1.0;
                sender.send(table.freeze()).expect("the reader lives");
            }
            in_batches::<C>(table, &draw.batch, &mut draw.hashes)?;
            seconds += watch.seconds();
            done += BATCH as u64;
        }
        drop(sender);
        reader.join().expect("the reader has not panicked")?;
        Ok(to_f64(done) / seconds / 1e6)
    })
}

fn read<K, V>(view: &View<K, V>) -> Result<(), Error> {
    let watch = Stopwatch::start();
    let mut sum = 0_u64;
    view.visit(|hash, _, value| {
        std::hint::black_box(value);
        sum ^= hash.0;
        ControlFlow::Continue(())
    })?;
    std::hint::black_box(sum);
    let left = 0.5 - watch.seconds();
    if left > 0.0 {
        sleep(std::time::Duration::from_secs_f64(left));
    }
    Ok(())
}

fn freeze_us<C: Case>(
    table: &mut Table<C::Key, C::Value>,
    draw: &mut Draw<C>,
) -> Result<f64, Error> {
    let mut times = Vec::new();
    for _ in 0..21 {
        draw.next();
        in_batches::<C>(table, &draw.batch, &mut draw.hashes)?;
        let watch = Stopwatch::start();
        let view = table.freeze();
        times.push(watch.seconds() * 1e6);
        drop(view);
    }
    Ok(percentile(&times, 50))
}

fn changes_ms<C: Case>(
    table: &mut Table<C::Key, C::Value>,
    draw: &mut Draw<C>,
) -> Result<f64, Error> {
    let confirmed = table.freeze().epoch();
    table.confirm(confirmed);
    for _ in 0..(draw.keys / 100).div_ceil(BATCH as u64) {
        draw.next();
        in_batches::<C>(table, &draw.batch, &mut draw.hashes)?;
    }
    let view = table.freeze();
    let (watch, mut changes) = (Stopwatch::start(), 0_u64);
    view.visit_changes(|_, _, value| {
        changes += u64::from(value.is_some());
        ControlFlow::Continue(())
    })?;
    let millis = watch.seconds() * 1e3;
    assert!(changes > 0, "something has changed");
    Ok(millis)
}

/// Memory that the process has, as the system counts it; 0 where it does not tell.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

#[expect(clippy::cast_precision_loss, reason = "figures")]
fn to_f64(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::print_stdout, reason = "a benchmark's figures")]
fn print(figures: &Figures) {
    println!("{}", serde_json::to_string(figures).expect("figures are numbers and names"));
}

#[expect(clippy::print_stderr, reason = "a benchmark's complaint")]
fn complain(text: &str) {
    eprintln!("state: {text}");
}
