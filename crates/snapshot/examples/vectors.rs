//! Prints `docs/vectors/snapshot.json`: the pieces of the format at every boundary, and a small job as
//! a whole. `cargo xtask vectors` writes the file.
//!
//! Bytes are in hex; where they are one byte again and again, `[byte, times]`. Numbers that may need
//! 64 bits are texts. What is longer than 2,048 bytes has its BLAKE3 hash only.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use strandline_snapshot::pieces::{self, Entry};
use strandline_snapshot::{
    Claim, Compression, Contents, Hash, JobId, MemoryStore, Nonce, Owner, Pin, RunRef, Snapshot,
    Store,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let groups = [
        ("varints", varints()),
        ("mixes", mixes()),
        ("prints", prints()),
        ("cuts", cuts()),
        ("chunks", chunks()),
        ("stored chunks", stored_chunks()?),
        ("filters", filters()),
        ("runs", runs()?),
        ("objects", objects()?),
    ];
    let text = groups.iter().map(|(name, vectors)| {
        let lines: Vec<String> = vectors.iter().map(|vector| format!("    {vector}")).collect();
        format!("  {:?}: [\n{}\n  ]", name, lines.join(",\n"))
    });
    let text: Vec<String> = text.collect();
    writeln!(std::io::stdout(), "{{\n{}\n}}", text.join(",\n"))?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes it");
        hex
    })
}

fn bytes(bytes: &[u8]) -> Value {
    match bytes.first() {
        Some(first) if bytes.len() > 64 && bytes.iter().all(|byte| byte == first) => {
            json!([hex(&[*first]), bytes.len()])
        }
        _ => json!(hex(bytes)),
    }
}

fn varints() -> Vec<Value> {
    let edges = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, (1 << 32) - 1, 1 << 32];
    let edges = edges.into_iter().chain([1 << 63, u64::MAX]);
    edges.map(|n| json!({ "value": n.to_string(), "bytes": hex(&pieces::varint(n)) })).collect()
}

fn mixes() -> Vec<Value> {
    let numbers = [0, 1, 255, 1 << 32, 1 << 33, 1 << 63, u64::MAX - 1, u64::MAX];
    let mix = |n: u64| json!({ "of": n.to_string(), "is": pieces::mix(n).to_string() });
    numbers.into_iter().map(mix).collect()
}

/// Keys around whole words, with and without zeros at their ends.
fn sample_keys() -> Vec<Vec<u8>> {
    let counted = [0_u8, 1, 7, 8, 9, 15, 16, 17, 100].map(|len| (0..len).collect());
    let mut keys: Vec<Vec<u8>> = counted.into();
    keys.extend([vec![0], vec![0; 8], vec![0; 9], vec![255; 8], b"apple".to_vec()]);
    keys
}

fn prints() -> Vec<Value> {
    let print =
        |key: Vec<u8>| json!({ "key": hex(&key), "print": pieces::print(&key).to_string() });
    sample_keys().into_iter().map(print).collect()
}

/// The first keys, counting from 0, whose lots are so.
fn key_with(lot_fits: impl Fn(u64) -> bool) -> [u8; 8] {
    let mut keys = (0..u64::MAX).map(|n| (pieces::mix(n), n));
    let found = keys.find(|(lot, _)| lot_fits(*lot)).map_or(0, |(_, n)| n);
    key_of(found)
}

#[expect(clippy::big_endian_bytes, reason = "keys sort as their bytes do")]
fn key_of(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn cuts() -> Vec<Value> {
    const SPAN: u64 = u64::MAX / 49_152;
    const ODDS: u64 = u64::MAX / 256;
    let ends_run = |lot: u64| pieces::mix(lot) < ODDS;
    let low = key_with(|lot| lot < 100 * SPAN && !ends_run(lot));
    let high = key_with(|lot| lot >= 100 * SPAN);
    let ending = key_with(|lot| lot < 100 * SPAN && ends_run(lot));
    let below = key_with(|lot| lot / SPAN == 4_000);
    let keys: [&[u8]; 6] = [&low, &high, &ending, &below, b"", b"ab"];
    let mut vectors = Vec::new();
    let mut add = |run: u64, chunk: usize, key: &[u8], entry: usize| {
        let cut = match pieces::cut(run, chunk, key, entry) {
            0 => "no",
            1 => "chunk",
            _ => "run",
        };
        vectors.push(
            json!({ "run": run, "chunk": chunk, "key": hex(key), "entry": entry, "cut": cut }),
        );
    };
    for key in keys {
        for chunk in [0, 16_383, 16_384, 16_385] {
            add(0, chunk, key, 100);
        }
        for before in [262_143, 262_144, 262_145] {
            add(0, before - 100, key, 100);
        }
        for entry in [4_000, 4_001, 49_151, 49_152, 49_153, 1 << 30] {
            add(0, 20_000, key, entry);
        }
        for run in [16_777_215, 16_777_216, 16_777_217, 67_108_863, 67_108_864, 67_108_865] {
            add(run - 20_000, 20_000, key, 100);
        }
    }
    vectors
}

fn put(key: &[u8], value: &[u8]) -> Entry {
    (key.to_vec(), Some(value.to_vec()))
}

/// So many entries with keys of five digits; every fifth is a tombstone.
fn counted(count: u32) -> Vec<Entry> {
    let value = |n: u32| (n % 5 != 4).then(|| vec![b'v'; n as usize % 7]);
    (0..count).map(|n| (format!("{n:05}").into_bytes(), value(n))).collect()
}

fn chunks() -> Vec<Value> {
    let mut cases = vec![
        ("a tombstone alone".to_owned(), vec![(b"key".to_vec(), None)]),
        ("the empty key".to_owned(), vec![put(b"", b"value"), put(b"\0", b"")]),
    ];
    for shared in [0, 1, 15, 16, 17, 127, 128] {
        let (mut a, mut b) = (vec![7; shared], vec![7; shared]);
        a.push(1);
        b.push(2);
        let longer = [&b[..], &[0; 3]].concat();
        let entries = vec![put(&a, b"a"), put(&b, b"b"), put(&longer, b"c")];
        cases.push((format!("keys that share {shared} bytes"), entries));
    }
    for len in [0, 1, 126, 127, 128, 16_381, 16_382, 16_383, 16_384] {
        cases.push((format!("a value of {len} bytes"), vec![put(b"key", &vec![b'x'; len])]));
    }
    for len in [127, 128, 16_383, 16_384] {
        cases.push((format!("a key of {len} bytes"), vec![put(&vec![b'k'; len], b"value")]));
    }
    for count in [1, 15, 16, 17, 31, 32, 33] {
        cases.push((format!("{count} entries"), counted(count)));
    }
    cases.iter().map(|(what, entries)| chunk(what, entries)).collect()
}

fn chunk(what: &str, entries: &[Entry]) -> Value {
    let plain = pieces::chunk(entries);
    let short = (plain.len() <= 2_048).then(|| hex(&plain));
    let listed =
        entries.iter().map(|(key, value)| json!([bytes(key), value.as_deref().map(bytes)]));
    let counted: usize = entries.iter().map(|(k, v)| pieces::entry_bytes(k, v.as_deref())).sum();
    json!({
        "what": what,
        "entries": listed.collect::<Vec<_>>(),
        "counted": counted,
        "plain": short,
        "plain_bytes": plain.len(),
        "name": Hash::of(&plain).to_string(),
    })
}

/// Compressors may give other bytes when they are improved, so these were made once.
fn stored_chunks() -> Result<Vec<Value>> {
    let plain = pieces::chunk(&[put(b"a", &[b'x'; 100]), put(b"b", &[b'x'; 100])]);
    let none = [&[0], &plain[..]].concat();
    let stored = [("none", none), ("LZ4", unhex(LZ4)?), ("Zstandard", unhex(ZSTD)?)];
    let vector = |(compression, stored): (&str, Vec<u8>)| {
        let name = Hash::of(&plain);
        let read = pieces::plain_chunk(&stored, plain.len(), name)?;
        Ok(json!({
            "compression": compression, "stored": hex(&stored), "plain": hex(&read),
            "name": name.to_string(),
        }))
    };
    stored.into_iter().map(vector).collect()
}

const LZ4: &str = "015f00016165780100503f0001626800537000000001000000";
const ZSTD: &str = "0228b52ffd20d8cd0000780001616578000162000000010000000200630de90029d002";

fn unhex(hex: &str) -> Result<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2).map(std::str::from_utf8);
    pairs.map(|pair| Ok(u8::from_str_radix(pair?, 16)?)).collect()
}

fn filters() -> Vec<Value> {
    let cases = [1, 51, 52, 102, 103]
        .map(|count| counted(count).into_iter().map(|(key, _)| key).collect::<Vec<_>>());
    let cases = cases.into_iter().chain([sample_keys().into_iter().take(9).collect()]);
    let filter = |keys: Vec<Vec<u8>>| {
        let filter = pieces::filter(keys.iter().map(Vec::as_slice));
        json!({ "keys": keys.iter().map(|key| hex(key)).collect::<Vec<_>>(), "bytes": hex(&filter) })
    };
    cases.map(filter).collect()
}

/// A job whose every byte is the same each time.
struct Job {
    store: Arc<dyn Store>,
    id: JobId,
    owner: Owner,
}

impl Job {
    fn new() -> Result<Self> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let claim = Claim {
            holder: "vectors".to_owned(),
            host: "nowhere".to_owned(),
            nonce: Nonce([0xA5; 16]),
            now_ms: 1_700_000_000_000,
            compression: Compression::None,
            ..Claim::new("vectors")
        };
        let (id, owner) = (claim.job, Owner::claim(Arc::clone(&store), claim)?);
        Ok(Self { store, id, owner })
    }

    /// A checkpoint with one section; its manifest names these runs.
    fn checkpoint(
        &self,
        number: u64,
        contents: Contents,
        entries: &[Entry],
    ) -> Result<Vec<RunRef>> {
        let checkpoint = self.owner.begin(number, self.owner.newest())?;
        let mut pack = checkpoint.writer("only")?;
        let mut run = pack.section("table", contents, b"schema".to_vec())?;
        for (key, value) in entries {
            match value {
                Some(value) => run.push(key, value)?,
                None => run.delete(key)?,
            }
        }
        run.finish()?;
        let written = pack.finish()?;
        self.owner.publish(number, vec![written], b"metadata".to_vec(), 1_700_000_001_000)?;
        let snapshot = Snapshot::open(&self.store, self.id, number)?;
        let sections = &snapshot.manifest().sections;
        Ok(sections.iter().flat_map(|section| section.runs.clone()).collect())
    }

    fn whole(&self, path: &str) -> Result<Vec<u8>> {
        let size = usize::try_from(self.store.size(path)?)?;
        Ok(self.store.read(path, 0, size)?)
    }
}

/// So many entries whose keys are `mix(0)`, `mix(1)`, …, sorted; values are the key's last byte
/// again and again.
fn mixed_entries(count: u64, value_bytes: usize) -> Vec<Entry> {
    let mut keys: Vec<[u8; 8]> = (0..count).map(|n| key_of(pieces::mix(n))).collect();
    keys.sort_unstable();
    keys.iter().map(|key| put(key, &vec![key[7]; value_bytes])).collect()
}

/// Whole packs of one run, as a writer without compression makes them: where chunks are cut, and
/// filter and index behind them.
fn runs() -> Result<Vec<Value>> {
    let cases = [(1, 0), (500, 100), (20_000, 100), (300, 5_000), (40, 60_000)];
    cases.into_iter().map(|(count, value_bytes)| run(count, value_bytes)).collect()
}

fn run(count: u64, value_bytes: usize) -> Result<Value> {
    let job = Job::new()?;
    let runs = job.checkpoint(1, Contents::All, &mixed_entries(count, value_bytes))?;
    let [run] = &runs[..] else { return Err("one run was to be written".into()) };
    let pack = job.whole(&format!("{}/shared/{}", job.id, run.pack))?;
    let begin = usize::try_from(run.index_offset)?;
    let index = pack.get(begin..).unwrap_or_default();
    Ok(json!({
        "entries": count,
        "value_bytes": value_bytes,
        "pack": run.pack,
        "pack_bytes": pack.len(),
        "pack_hash": Hash::of(&pack).to_string(),
        "index_offset": run.index_offset,
        "index": hex(index),
        "plain_bytes": run.plain_bytes,
        "full_bytes": run.full_bytes,
    }))
}

/// All files of a small job with two checkpoints, and what each of them holds.
fn objects() -> Result<Vec<Value>> {
    let job = Job::new()?;
    let first = counted(40).into_iter().filter(|(_, value)| value.is_some());
    job.checkpoint(1, Contents::All, &first.collect::<Vec<_>>())?;
    let changes = [put(b"00003", b"changed"), (b"00007".to_vec(), None), put(b"a", b"new")];
    job.checkpoint(2, Contents::Changed, &changes)?;
    let _pin = Pin::open(&job.store, job.id, 2, "vectors", 1_700_000_600_000)?;
    let mut vectors = Vec::new();
    for object in job.store.list("")? {
        let bytes = job.whole(&object.path)?;
        // The names of pins are drawn by lot.
        let path = match object.path.split_once("/pins/") {
            Some((folder, _)) => format!("{folder}/pins/{}", "0".repeat(32)),
            None => object.path,
        };
        vectors.push(json!({ "path": path, "bytes": hex(&bytes) }));
    }
    for number in [1, 2] {
        vectors.push(held(&job, number)?);
    }
    Ok(vectors)
}

fn held(job: &Job, number: u64) -> Result<Value> {
    let snapshot = Snapshot::open(&job.store, job.id, number)?;
    let mut entries = Vec::new();
    snapshot.visit("table", &mut |key, value| {
        entries.push(json!([hex(key), hex(value)]));
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(json!({ "checkpoint": number, "section": "table", "entries": entries }))
}
