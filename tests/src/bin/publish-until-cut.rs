//! Publishes checkpoints of random entries until it is killed, and notes each in a file: what it
//! holds when it has been published, and before older ones are deleted the oldest that is kept.
//!
//! Arguments: root, notes, seed.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use strandline::snapshot::{
    Checkpoint, Claim, Contents, LocalStore, Owner, Result, Store, Written,
};

/// The newest checkpoints that stay.
const KEPT: u64 = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, notes, seed] = &arguments[..] else {
        return ExitCode::from(2);
    };
    let notes = File::options().append(true).create(true).open(Path::new(notes));
    let ended = match (notes, seed.parse()) {
        (Ok(notes), Ok(seed)) => run(root, notes, seed).err(),
        _ => return ExitCode::from(2),
    };
    // It ends by a signal, or it has failed.
    let text = ended.map_or(String::new(), |error| format!("{error}\n"));
    drop(io::stderr().write_all(text.as_bytes()));
    ExitCode::FAILURE
}

fn run(root: &str, mut notes: File, mut seed: u64) -> Result<(), Box<dyn std::error::Error>> {
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(root));
    let owner = Owner::claim(store, Claim::new("power-cut"))?;
    for number in owner.first_checkpoint().. {
        let checkpoint = owner.begin(number, owner.newest())?;
        let mut entries = 0;
        let mut sum = 0;
        let mut written = Vec::new();
        for label in ["a", "b"] {
            written.push(write(&checkpoint, label, &mut seed, &mut entries, &mut sum)?);
        }
        owner.publish(number, written, Vec::new(), number)?;
        notes.write_all(format!("published {number} {entries} {sum}\n").as_bytes())?;
        let oldest = (number + 1).saturating_sub(KEPT);
        notes.write_all(format!("deleting-below {oldest}\n").as_bytes())?;
        owner.retain(usize::try_from(KEPT)?, 0)?;
    }
    Ok(())
}

/// Up to some hundred entries of up to some hundred bytes.
fn write(
    checkpoint: &Checkpoint,
    label: &str,
    seed: &mut u64,
    entries: &mut u64,
    sum: &mut u64,
) -> Result<Written> {
    let mut pack = checkpoint.writer(label)?;
    let mut run = pack.section(label, Contents::All, Vec::new())?;
    for key in 0..next(seed) % 500 {
        let len = usize::try_from(next(seed) % 300).unwrap_or_default();
        let value: Vec<u8> =
            std::iter::repeat_with(|| next(seed).to_le_bytes()).flatten().take(len).collect();
        run.push(format!("{key:03}").as_bytes(), &value)?;
        *entries += 1;
        *sum = value.iter().fold(*sum, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
    }
    run.finish()?;
    pack.finish()
}

/// Random numbers (SplitMix64, Steele, Lea, Flood 2014).
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
