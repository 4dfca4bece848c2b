//! Prints the entries of a checkpoint or a savepoint: section, key and value, one entry per line,
//! key and value in hex.
//!
//! ```text
//! cargo run --example reference_reader -- <root>/<job id>/chk-7
//! ```
//!
//! This is `docs/format.md` as a program. It is written to be read: it uses nothing of the library,
//! holds a whole section in memory, and takes no care to be fast. It believes no byte that it hasn't
//! hashed, and no length before the bytes are there.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What a manifest says, as far as entries are concerned. Fields that are not here are skipped.
#[derive(Deserialize)]
struct Manifest<'a> {
    #[serde(borrow)]
    sections: Vec<Section<'a>>,
}

#[derive(Deserialize)]
struct Section<'a> {
    name: &'a str,
    /// The oldest first.
    #[serde(borrow)]
    runs: Vec<Run<'a>>,
}

#[derive(Deserialize)]
struct Run<'a> {
    /// It speaks for keys from the first on, before the second.
    #[serde(borrow)]
    ranges: Vec<(&'a [u8], Option<&'a [u8]>)>,
    pack: &'a str,
    index_offset: u64,
    index_bytes: u32,
    index_hash: &'a [u8],
}

/// What a run says of a key; `None` is a tombstone.
type Value = Option<Vec<u8>>;
type Entries = BTreeMap<Vec<u8>, Value>;

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).ok_or("name the folder of a checkpoint")?;
    let folder = std::path::absolute(PathBuf::from(folder))?;
    let framed = std::fs::read(folder.join("_metadata"))?;
    let manifest: Manifest<'_> = rmp_serde::from_slice(payload(&framed, b"SLMF")?)?;
    let packs = pack_folder(&folder);
    for section in &manifest.sections {
        let mut entries = Entries::new();
        for run in &section.runs {
            let held = read_run(&packs, run)?;
            // What a newer run says of a key takes the place of what an older one said.
            entries.extend(held.into_iter().filter(|(key, _)| speaks_for(run, key)));
        }
        print(section.name, &entries)?;
    }
    Ok(())
}

/// What a framed record holds between its header and its hash.
fn payload<'a>(framed: &'a [u8], magic: &[u8]) -> Result<&'a [u8]> {
    let end = framed.len().checked_sub(32).ok_or("the record is too short")?;
    let (body, hash) = framed.split_at(end);
    let mut body_bytes = Bytes(body);
    check(body_bytes.take(4)? == magic, "the record does not begin with its magic")?;
    let version = body_bytes.little(2)?;
    check(version == 1, &format!("the record needs version {version}, this reads 1"))?;
    check(blake3::hash(body).as_bytes() == hash, "the record does not fit its hash")?;
    check(body_bytes.little(2)? == 0, "the record's reserved bytes are not 0")?;
    let size = body_bytes.little(8)?;
    check(size == body_bytes.0.len() as u64, "the record has another length")?;
    Ok(body_bytes.0)
}

/// A checkpoint's packs are its job's; those of a savepoint lie beside its manifest.
fn pack_folder(folder: &Path) -> PathBuf {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let job = folder.parent().unwrap_or(folder);
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let is_job = name(job).is_some_and(|name| name.len() == 32 && name.bytes().all(is_hex));
    let number = name(folder).and_then(|name| name.strip_prefix("chk-")?.parse::<u64>().ok());
    if is_job && number.is_some() { job.join("shared") } else { folder.to_owned() }
}

fn speaks_for(run: &Run<'_>, key: &[u8]) -> bool {
    run.ranges.iter().any(|(first, after)| *first <= key && after.is_none_or(|after| key < after))
}

/// All entries that a run holds, those outside of its ranges too.
fn read_run(packs: &Path, run: &Run<'_>) -> Result<Entries> {
    let index = read_pack(packs, run.pack, run.index_offset, run.index_bytes.into())?;
    check(blake3::hash(&index).as_bytes() == run.index_hash, "an index does not fit its hash")?;
    let mut index = Bytes(&index);
    let version = index.little(1)?;
    check(version == 1, &format!("an index needs version {version}, this reads 1"))?;
    let mut names = Vec::new();
    for _ in 0..index.varint()? {
        names.push(std::str::from_utf8(index.prefixed()?)?);
    }
    let mut entries = Entries::new();
    for _ in 0..index.varint()? {
        let number = usize::try_from(index.varint()?)?;
        let pack = names.get(number).ok_or("a pack is not in the list")?;
        let (offset, stored_bytes) = (index.little(8)?, index.little(4)?);
        let (plain_bytes, count) = (index.little(4)?, index.little(4)?);
        let _tombstones = index.little(4)?;
        let (hash, first_key) = (index.take(32)?, index.prefixed()?);
        let stored = read_pack(packs, pack, offset, stored_bytes)?;
        let plain = decompress(&stored, usize::try_from(plain_bytes)?)?;
        check(blake3::hash(&plain).as_bytes() == hash, "a chunk does not fit its hash")?;
        let chunk = read_chunk(&plain)?;
        let first = chunk.first().ok_or("a chunk has no entries")?;
        check(first.0 == first_key && chunk.len() as u64 == count, "a chunk is not as listed")?;
        let last = entries.last_key_value().map(|(key, _)| key);
        check(last.is_none_or(|last| *last < first.0), "chunks do not ascend")?;
        entries.extend(chunk);
    }
    // What is left is the place of a filter, for who looks for single keys.
    Ok(entries)
}

/// Bytes of a pack.
fn read_pack(packs: &Path, name: &str, offset: u64, size: u64) -> Result<Vec<u8>> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let is_name = name.bytes().all(plain) && !name.starts_with('.') && name.ends_with(".pack");
    check(is_name, &format!("this is no name of a pack: {name:?}"))?;
    let mut file = File::open(packs.join(name)).map_err(|error| format!("{name}: {error}"))?;
    let mut header = [0; 6];
    file.read_exact(&mut header)?;
    check(header == *b"SLPK\x01\x00", &format!("{name} is no pack of version 1"))?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    check(bytes.len() as u64 == size, &format!("{name} ends before it should"))?;
    Ok(bytes)
}

/// The plain bytes of a chunk as stored.
fn decompress(stored: &[u8], plain_bytes: usize) -> Result<Vec<u8>> {
    let (kind, bytes) = stored.split_first().ok_or("a chunk is empty")?;
    let mut plain = Vec::new();
    match kind {
        0 => plain.extend_from_slice(bytes),
        1 => {
            // No byte of LZ4 stands for more than 255.
            check(plain_bytes / 255 <= bytes.len(), "a chunk can't be as large as listed")?;
            plain = lz4_flex::block::decompress(bytes, plain_bytes)?;
        }
        2 => {
            let frame = zstd::stream::read::Decoder::with_buffer(bytes)?.single_frame();
            frame.take(plain_bytes as u64 + 1).read_to_end(&mut plain)?;
        }
        _ => return Err(format!("compression {kind} is not known").into()),
    }
    check(plain.len() == plain_bytes, "a chunk has another length than listed")?;
    Ok(plain)
}

/// The entries of a chunk's plain bytes.
fn read_chunk(plain: &[u8]) -> Result<Vec<(Vec<u8>, Value)>> {
    let (offsets, count) =
        plain.split_at_checked(plain.len().saturating_sub(4)).unwrap_or_default();
    let restarts = usize::try_from(Bytes(count).little(4)?)?;
    let end = restarts.checked_mul(4).and_then(|size| offsets.len().checked_sub(size));
    let (entries_bytes, offsets) = offsets.split_at(end.ok_or("a chunk has too many restarts")?);
    let (mut bytes, mut offsets) = (Bytes(entries_bytes), Bytes(offsets));
    let mut entries: Vec<(Vec<u8>, Value)> = Vec::new();
    while !bytes.0.is_empty() {
        let offset = (entries_bytes.len() - bytes.0.len()) as u64;
        let shared = usize::try_from(bytes.varint()?)?;
        let rest = bytes.prefixed()?;
        if entries.len().is_multiple_of(16) {
            check(shared == 0 && offsets.little(4)? == offset, "a restart is out of place")?;
        }
        let before = entries.last().map_or(&[][..], |(key, _)| key.as_slice());
        let key = [before.get(..shared).ok_or("a key shares too much")?, rest].concat();
        check(entries.is_empty() || *before < *key, "keys do not ascend")?;
        let value = match bytes.varint()? {
            0 => None,
            size => Some(bytes.take(size - 1)?.to_vec()),
        };
        entries.push((key, value));
    }
    check(offsets.0.is_empty(), "a restart is out of place")?;
    Ok(entries)
}

/// What has not been read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, size: u64) -> Result<&'a [u8]> {
        let parts = usize::try_from(size).ok().and_then(|size| self.0.split_at_checked(size));
        let (taken, rest) = parts.ok_or("it ends before it should")?;
        self.0 = rest;
        Ok(taken)
    }

    /// A little-endian number of 1 to 8 bytes.
    fn little(&mut self, size: u64) -> Result<u64> {
        let bytes = self.take(size)?;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// LEB128: seven bits in each byte, the low ones first; the top bit says that more follow.
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.little(1)?;
            check(shift < 63 || byte <= 1, "a number has more than 64 bits")?;
            value |= (byte & 0x7F) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }

    /// Bytes behind their length.
    fn prefixed(&mut self) -> Result<&'a [u8]> {
        let size = self.varint()?;
        self.take(size)
    }
}

fn check(holds: bool, otherwise: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

fn print(section: &str, entries: &Entries) -> io::Result<()> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (key, value) in entries {
        // A tombstone in the newest run that speaks for the key: the key has no value.
        if let Some(value) = value {
            writeln!(out, "{section}\t{}\t{}", hex(key), hex(value))?;
        }
    }
    out.flush()
}
