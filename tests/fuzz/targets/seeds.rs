//! Writes first inputs for every target, made of a real job's bytes, into `corpus/`.

use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};

use strandline_fuzz::index::Index;
use strandline_fuzz::world;
use strandline_snapshot::{Hash, pieces};

fn main() -> Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    records(&corpus.join("records"))?;
    run(&corpus.join("run"))?;
    scripts(&corpus.join("checkpoint"))
}

fn put(folder: &Path, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(folder)?;
    let name: PathBuf = folder.join(&Hash::of(bytes).to_string()[..16]);
    fs::write(name, bytes)
}

/// What is between a frame's header and its hash.
fn payload(bytes: &[u8]) -> &[u8] {
    &bytes[16..bytes.len() - 32]
}

fn records(folder: &Path) -> Result<()> {
    for (path, bytes) in world::objects() {
        let parts: Vec<&str> = path.split('/').collect();
        let number = |text: &str| text.bytes().last().map_or(0, |digit| digit - b'0');
        let head: Vec<u8> = match parts[1..] {
            ["fence", token] => vec![2, number(token)],
            ["accepted", token] => vec![5, number(token)],
            ["lease", name] => vec![8, number(&name[..20]), number(name)],
            ["pins", _] => vec![10],
            ["_job"] => vec![11],
            [folder, "_metadata"] => vec![12, number(folder)],
            _ => continue,
        };
        put(folder, &[&head, payload(bytes)].concat())?;
        // The same in the place of the next owner, and at the end of all numbers.
        if head.len() == 2 {
            put(folder, &[&[head[0], head[1] + 1], payload(bytes)].concat())?;
            put(folder, &[&[head[0], 200, 15], payload(bytes)].concat())?;
        }
        let raw = [head[0] | 128];
        put(folder, &[&raw, &head[1..], bytes].concat())?;
        if path.ends_with("_metadata") {
            put(folder, &[&[0], &bytes[..]].concat())?;
            put(folder, &[&[1], payload(bytes)].concat())?;
        }
    }
    Ok(())
}

fn run(folder: &Path) -> Result<()> {
    for (path, bytes) in world::objects() {
        let name = path.rsplit('/').next().unwrap_or_default();
        if path.ends_with(".pack") {
            pack(folder, name, bytes)?;
        }
    }
    let entries: Vec<u8> = (0..40).flat_map(|at| [at % 3, 2, at, 7, at, 3, 1, 2, 3]).collect();
    put(folder, &[&[1, 2, 1, 1], &entries[..]].concat())
}

/// Indexes are found as a reader would not: by trying every place.
fn pack(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    for at in 6..bytes.len() {
        let found = (at + 40..=bytes.len().min(at + 600))
            .find(|end| pieces::index_again(&bytes[at..*end]).is_some_and(|it| it.len() > 80));
        let Some(end) = found else { continue };
        put(folder, &[&[4], &bytes[at..end]].concat())?;
        let Some(index) = Index::decode(&bytes[at..end]) else { continue };
        for chunk in index.chunks.iter().filter(|of| of.stored_bytes < 6000) {
            if index.packs[chunk.pack as usize] != name.as_bytes() {
                continue;
            }
            let start = chunk.offset as usize;
            let stored = &bytes[start..start + chunk.stored_bytes as usize];
            let plain_bytes = chunk.plain_bytes as usize;
            let plain = pieces::plain_chunk(stored, plain_bytes, Hash(chunk.hash));
            let plain = plain.expect("it was written by a writer");
            put(folder, &[&[0, 1, b'a'], &plain[..]].concat())?;
            put(folder, &[&[3, 2, 6, 0, 10, 3], &plain[..]].concat())?;
            // A length of 8 bytes as it is, and an empty name.
            let length = chunk.plain_bytes.to_le_bytes();
            put(folder, &[&[2, 192], &length[..], &[0; 5], stored].concat())?;
        }
        if let Some(filter) = &index.filter {
            let start = filter.offset as usize;
            let filter = &bytes[start..start + filter.bytes as usize];
            put(folder, &[&[5, 1, b'a'], filter].concat())?;
        }
    }
    Ok(())
}

/// Lists of edits, without a plan.
fn scripts(folder: &Path) -> Result<()> {
    for seed in 0..200 {
        let words = (0..5).map(|word| pieces::mix(seed * 100 + word + 1));
        let script: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        put(folder, &script)?;
    }
    Ok(())
}
