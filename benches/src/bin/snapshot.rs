//! The snapshot store: a table of random values, written in full, written again, changed and
//! written as changes, opened and read; beside what the machine can do: BLAKE3, memcpy and write of
//! as many bytes in the same run.
//!
//! One JSON object a line. The folder is removed at the end. Rates are in MiB (2²⁰ bytes) a second of
//! keys and values.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use serde::Serialize;
use strandline::snapshot::{
    Claim, Compression, Contents, Error, ErrorKind, JobId, LocalStore, MemoryStore, Owner, Result,
    Snapshot, Store, Written,
};
use strandline_benches::{Stopwatch, below, cpu_seconds, mixed, percentile};

const KEY_BYTES: usize = 16;
const SECTION: &str = "table";
const MIB: f64 = 1_048_576.0;

#[derive(Parser)]
struct Flags {
    /// Entries
    #[arg(long, default_value_t = 10_000_000)]
    entries: usize,
    /// Random bytes of each value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// How chunks are compressed
    #[arg(long, value_enum, default_value_t = Packing::None)]
    compression: Packing,
    /// Percentages of entries that change
    #[arg(long, value_delimiter = ',', default_values_t = [0.1, 1.0, 10.0, 100.0])]
    changed: Vec<f64>,
    /// Checkpoints of 1 % changes in a row, with merges; 0 for none
    #[arg(long, default_value_t = 200)]
    checkpoints: usize,
    /// Folder to work in [default: target/tmp]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Work in memory: no figure of storage means anything then
    #[arg(long)]
    memory: bool,
    /// Accepted for likeness with other benchmarks: the output is JSON in any case
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Packing {
    None,
    Lz4,
    Zstd,
}

/// One line of output; what a case doesn't measure is left out.
#[derive(Default, Serialize)]
struct Figures {
    case: String,
    entries: usize,
    value_bytes: usize,
    compression: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_changed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_written: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects_written: Option<usize>,
    /// Bytes written for each byte changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    amplification: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amplification_p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amplification_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs_at_a_key_max: Option<usize>,
    /// Bytes of the job's folder for each byte of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_mib_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    synced_mib_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blake3_mib_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memcpy_mib_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_write_mib_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_synced_mib_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_mib_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_first_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_s: Option<f64>,
}

/// The table, in the order of its keys.
struct Table {
    value_bytes: usize,
    hashes: Vec<u64>,
    values: Vec<u8>,
    changed: Vec<bool>,
    /// Grows with each change.
    round: u64,
}

#[derive(Clone, Copy)]
enum Pattern {
    Uniform,
    /// One range of keys.
    Clustered,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<()> {
    let parent = flags.folder.clone().unwrap_or_else(|| PathBuf::from("target/tmp"));
    std::fs::create_dir_all(&parent).map_err(io)?;
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(parent).map_err(io)?;
    let mut table = Table::new(flags.entries, flags.value_bytes);
    let rates = rates(&table, folder.path())?;
    let mut bench = Bench::new(flags, folder.path().join("checkpoints"), rates)?;
    bench.full(&table)?;
    bench.again(&table)?;
    bench.read(&table)?;
    for percent in &flags.changed {
        bench.changes(&mut table, *percent, Pattern::Uniform)?;
        bench.changes(&mut table, *percent, Pattern::Clustered)?;
    }
    if flags.checkpoints > 0 {
        bench.in_a_row(&mut table, flags.checkpoints)?;
    }
    Ok(())
}

impl Table {
    fn new(entries: usize, value_bytes: usize) -> Self {
        let mut hashes: Vec<u64> = (0..entries as u64).map(mixed).collect();
        hashes.sort_unstable();
        let mut values = vec![0; entries * value_bytes];
        fill(&mut values, 0);
        Self { value_bytes, hashes, values, changed: vec![true; entries], round: 0 }
    }

    fn bytes(&self) -> u64 {
        (self.hashes.len() * KEY_BYTES + self.values.len()) as u64
    }

    /// Gives so many entries a new value; the bytes of their keys and values.
    fn change(&mut self, percent: f64, pattern: Pattern) -> u64 {
        self.round += 1;
        let count = self.hashes.len();
        let bound = to_u64(percent / 100.0 * to_f64(u64::MAX));
        let first = below(mixed(self.round), count as u64);
        let width = to_u64(percent / 100.0 * to_f64(count as u64));
        let (mut changed, salt) = (0, self.round << 32);
        for (index, flag) in self.changed.iter_mut().enumerate() {
            let index = index as u64;
            *flag = match pattern {
                _ if percent >= 100.0 => true,
                Pattern::Uniform => mixed(index ^ salt) < bound,
                Pattern::Clustered => (index + count as u64 - first) % (count as u64) < width,
            };
            changed += u64::from(*flag);
        }
        let values = self.values.chunks_exact_mut(self.value_bytes.max(1));
        for (index, (value, _)) in values.zip(&self.changed).enumerate().filter(|(_, of)| *of.1) {
            fill(value, mixed(index as u64 ^ salt));
        }
        changed * (KEY_BYTES + self.value_bytes) as u64
    }

    fn push(&self, written: &mut strandline::snapshot::RunWriter<'_>, all: bool) -> Result<()> {
        for (index, hash) in self.hashes.iter().enumerate() {
            if !all && !self.changed.get(index).copied().unwrap_or(false) {
                continue;
            }
            let key = encode_key(*hash, index as u64);
            let start = index * self.value_bytes;
            let value = self.values.get(start..start + self.value_bytes).unwrap_or_default();
            written.push(&key, value)?;
        }
        Ok(())
    }
}

/// Random bytes.
fn fill(bytes: &mut [u8], seed: u64) {
    for (index, word) in bytes.chunks_mut(8).enumerate() {
        let random = mixed(seed.wrapping_add(index as u64)).to_le_bytes();
        word.iter_mut().zip(random).for_each(|(to, from)| *to = from);
    }
}

/// What the machine can do with as many bytes.
struct Rates {
    blake3: f64,
    memcpy: f64,
    write: f64,
    synced: f64,
}

fn rates(table: &Table, folder: &Path) -> Result<Rates> {
    let bytes = &table.values;
    let mib = to_f64(bytes.len() as u64) / MIB;
    let watch = Stopwatch::start();
    let hash = std::hint::black_box(blake3::hash(bytes));
    let blake3 = mib / watch.seconds();
    let mut copy = vec![hash.as_bytes()[0]; bytes.len()];
    let watch = Stopwatch::start();
    copy.copy_from_slice(bytes);
    std::hint::black_box(&copy);
    let memcpy = mib / watch.seconds();
    let path = folder.join("plain");
    let mut file = File::create(&path).map_err(io)?;
    let watch = Stopwatch::start();
    bytes.chunks(1 << 20).try_for_each(|piece| file.write_all(piece)).map_err(io)?;
    let write = mib / watch.seconds();
    file.sync_all().map_err(io)?;
    let synced = mib / watch.seconds();
    std::fs::remove_file(path).map_err(io)?;
    Ok(Rates { blake3, memcpy, write, synced })
}

struct Bench<'a> {
    flags: &'a Flags,
    rates: Rates,
    store: Arc<dyn Store>,
    folder: PathBuf,
    owner: Owner,
    number: u64,
}

/// One checkpoint as it was written.
struct Made {
    bytes_written: u64,
    manifest_bytes: u64,
    objects: usize,
    /// Until all bytes were handed to the system, and until the manifest was durable.
    handed_s: f64,
    wall_s: f64,
    cpu_s: f64,
}

impl<'a> Bench<'a> {
    fn new(flags: &'a Flags, folder: PathBuf, rates: Rates) -> Result<Self> {
        let store: Arc<dyn Store> = if flags.memory {
            Arc::new(MemoryStore::default())
        } else {
            Arc::new(LocalStore::new(&folder))
        };
        let compression = match flags.compression {
            Packing::None => Compression::None,
            Packing::Lz4 => Compression::Lz4,
            Packing::Zstd => Compression::Zstd,
        };
        let claim = Claim { compression, ..Claim::new("bench") };
        let owner = Owner::claim(Arc::clone(&store), claim)?;
        let number = owner.first_checkpoint();
        Ok(Self { flags, rates, store, folder, owner, number })
    }

    /// Everything, on top of the base if there is one; what there was before is deleted.
    fn checkpoint(&mut self, table: &Table, contents: Contents, merges: bool) -> Result<Made> {
        let (watch, cpu) = (Stopwatch::start(), cpu_seconds());
        let checkpoint = self.owner.begin(self.number, self.owner.newest())?;
        let merged = if merges { checkpoint.merge()? } else { Written::default() };
        let mut pack = checkpoint.writer("bench")?;
        let mut run = pack.section(SECTION, contents, Vec::new())?;
        table.push(&mut run, contents == Contents::All)?;
        run.finish()?;
        let handed_s = watch.seconds();
        let written = vec![merged, pack.finish()?];
        let packs = written.iter().filter(|of| of.written_bytes > 0).count();
        let published = self.owner.publish(self.number, written, Vec::new(), 0)?;
        let (wall_s, cpu_s) = (watch.seconds(), cpu_seconds() - cpu);
        self.owner.retain(1, 0)?;
        self.number += 1;
        Ok(Made {
            bytes_written: published.written_bytes,
            manifest_bytes: published.manifest_bytes,
            objects: packs + 1,
            handed_s,
            wall_s,
            cpu_s,
        })
    }

    fn figures(&self, case: &str) -> Figures {
        Figures {
            case: case.to_owned(),
            entries: self.flags.entries,
            value_bytes: self.flags.value_bytes,
            compression: match self.flags.compression {
                Packing::None => "none",
                Packing::Lz4 => "lz4",
                Packing::Zstd => "zstd",
            },
            blake3_mib_s: Some(self.rates.blake3),
            memcpy_mib_s: Some(self.rates.memcpy),
            file_write_mib_s: Some(self.rates.write),
            file_synced_mib_s: Some(self.rates.synced),
            ..Figures::default()
        }
    }

    fn of(&self, case: &str, percent: f64, bytes: u64, total: u64, made: &Made) -> Figures {
        let mib = to_f64(total) / MIB;
        Figures {
            changed_percent: Some(percent),
            bytes_changed: Some(bytes),
            bytes_written: Some(made.bytes_written),
            manifest_bytes: Some(made.manifest_bytes),
            objects_written: Some(made.objects),
            amplification: (bytes > 0).then(|| to_f64(made.bytes_written) / to_f64(bytes)),
            write_mib_s: Some(mib / made.handed_s),
            synced_mib_s: Some(mib / made.wall_s),
            wall_s: Some(made.wall_s),
            cpu_s: Some(made.cpu_s),
            ..self.figures(case)
        }
    }

    fn full(&mut self, table: &Table) -> Result<()> {
        let made = self.checkpoint(table, Contents::All, false)?;
        print(&self.of("full", 100.0, table.bytes(), table.bytes(), &made))
    }

    /// Everything once more, nothing of it changed.
    fn again(&mut self, table: &Table) -> Result<()> {
        let made = self.checkpoint(table, Contents::All, false)?;
        print(&self.of("full, unchanged", 0.0, 0, table.bytes(), &made))
    }

    fn read(&self, table: &Table) -> Result<()> {
        let job = JobId::for_name("bench");
        let number = self.number - 1;
        let mut first = Vec::new();
        for probe in 0..9 {
            let index = below(mixed(probe), table.hashes.len() as u64);
            let watch = Stopwatch::start();
            let snapshot = Snapshot::open(&self.store, job, number)?;
            let value = snapshot.get(SECTION, &key(table, index))?;
            first.push(watch.seconds() * 1e3);
            if value.is_none() {
                return Err(Error::new(ErrorKind::Damaged, "a key of the table is not there"));
            }
        }
        let visited = read_all(&Snapshot::open(&self.store, job, number)?, table)?;
        print(&Figures {
            read_mib_s: Some(to_f64(table.bytes()) / MIB / visited),
            open_first_ms: Some(percentile(&first, 50)),
            wall_s: Some(visited),
            ..self.figures("read")
        })?;
        let visited = read_all(&Snapshot::open(&self.store, job, number)?.mapped(), table)?;
        print(&Figures {
            read_mib_s: Some(to_f64(table.bytes()) / MIB / visited),
            wall_s: Some(visited),
            ..self.figures("read, mapped")
        })
    }

    /// One checkpoint of changes, on a base without others; and what a reader then pays.
    fn changes(&mut self, table: &mut Table, percent: f64, pattern: Pattern) -> Result<()> {
        let bytes = table.change(percent, pattern);
        let made = self.checkpoint(table, Contents::Changed, false)?;
        let case = match pattern {
            Pattern::Uniform => "changes, uniform",
            Pattern::Clustered => "changes, clustered",
        };
        print(&self.of(case, percent, bytes, bytes, &made))?;
        // The next case begins with a base again.
        self.checkpoint(table, Contents::All, false).map(drop)
    }

    /// Changes of 1 % again and again, with all merges and rewrites.
    fn in_a_row(&mut self, table: &mut Table, count: usize) -> Result<()> {
        let (mut ratios, mut runs, mut objects) = (Vec::new(), 0, 0);
        let (mut changed, mut written, mut manifest_bytes, mut space) = (0, 0, 0, 0.0_f64);
        let (watch, cpu) = (Stopwatch::start(), cpu_seconds());
        for _ in 0..count {
            let bytes = table.change(1.0, Pattern::Uniform);
            let made = self.checkpoint(table, Contents::Changed, true)?;
            ratios.push(to_f64(made.bytes_written) / to_f64(bytes));
            changed += bytes;
            written += made.bytes_written;
            manifest_bytes = manifest_bytes.max(made.manifest_bytes);
            objects = objects.max(made.objects);
            runs = runs.max(self.runs_at_a_key(table)?);
            space = space.max(to_f64(self.stored()?) / to_f64(table.bytes()));
        }
        let figures = Figures {
            changed_percent: Some(1.0),
            bytes_changed: Some(changed),
            bytes_written: Some(written),
            manifest_bytes: Some(manifest_bytes),
            objects_written: Some(objects),
            amplification: Some(to_f64(written) / to_f64(changed)),
            amplification_p99: Some(percentile(&ratios, 99)),
            amplification_max: Some(percentile(&ratios, 100)),
            runs_at_a_key_max: Some(runs),
            space: Some(space),
            wall_s: Some(watch.seconds()),
            cpu_s: Some(cpu_seconds() - cpu),
            ..self.figures(&format!("{count} checkpoints in a row"))
        };
        print(&figures)?;
        self.read(table)
    }

    /// The most runs that speak for one key, of a thousand keys.
    fn runs_at_a_key(&self, table: &Table) -> Result<usize> {
        let snapshot = Snapshot::open(&self.store, JobId::for_name("bench"), self.number - 1)?;
        let sections = &snapshot.manifest().sections;
        let runs: Vec<_> = sections.iter().flat_map(|section| &section.runs).collect();
        let count = table.hashes.len() as u64;
        let speak = |index| {
            let key = key(table, below(mixed(index), count));
            runs.iter().filter(|run| run.ranges.iter().any(|range| range.holds(&key))).count()
        };
        Ok((0..1000).map(speak).max().unwrap_or(0))
    }

    fn stored(&self) -> Result<u64> {
        let objects = self.store.list("")?;
        if objects.is_empty() {
            let text = format!("nothing is in {}", self.folder.display());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        Ok(objects.iter().map(|object| object.bytes).sum())
    }
}

/// Reads every entry; the seconds that it took.
fn read_all(snapshot: &Snapshot, table: &Table) -> Result<f64> {
    let (watch, mut entries) = (Stopwatch::start(), 0);
    snapshot.visit(SECTION, &mut |_, value| {
        entries += 1;
        std::hint::black_box(value);
        ControlFlow::Continue(())
    })?;
    let seconds = watch.seconds();
    if entries != table.hashes.len() {
        return Err(Error::new(ErrorKind::Damaged, "entries are missing"));
    }
    Ok(seconds)
}

fn key(table: &Table, index: u64) -> [u8; KEY_BYTES] {
    let at = usize::try_from(index).unwrap_or(usize::MAX);
    encode_key(table.hashes.get(at).copied().unwrap_or_default(), index)
}

#[expect(clippy::big_endian_bytes, reason = "keys sort by their hash")]
fn encode_key(hash: u64, index: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let (head, tail) = key.split_at_mut(8);
    head.copy_from_slice(&hash.to_be_bytes());
    tail.copy_from_slice(&index.to_le_bytes());
    key
}

#[expect(clippy::cast_precision_loss, reason = "figures")]
fn to_f64(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count")]
fn to_u64(value: f64) -> u64 {
    value as u64
}

fn io(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "the folder can't be worked in").because(error)
}

#[expect(clippy::print_stdout, reason = "a benchmark's figures")]
fn print(figures: &Figures) -> Result<()> {
    let line = serde_json::to_string(figures)
        .map_err(|error| Error::new(ErrorKind::Io, "figures can't be shown").because(error))?;
    println!("{line}");
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a benchmark's complaint")]
fn complain(text: &str) {
    eprintln!("snapshot: {text}");
}
