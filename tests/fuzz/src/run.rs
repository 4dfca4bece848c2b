//! The pieces of a run: chunk, stored chunk, index, filter.

use strandline_snapshot::pieces::{self, Entry};
use strandline_snapshot::{Compression, Hash};

use crate::input::Input;

/// Chunks as stored are asked for no more plain bytes than this.
const MOST_PLAIN_BYTES: u64 = 1 << 32;

/// One of the pieces, by the first byte.
pub fn try_input(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() % 6 {
        0 => chunk(&mut input),
        1 => entries(&mut input),
        2 => stored_chunk(&mut input),
        3 => damaged_chunk(&mut input),
        4 => index(input.rest()),
        _ => filter(&mut input),
    }
}

/// Any bytes as a chunk. What can be read can be written and read again, and is the same.
fn chunk(input: &mut Input<'_>) {
    let key = input.prefixed();
    let Ok((entries, _)) = pieces::read_chunk(input.rest(), key) else { return };
    assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys ascend");
    check_chunk(&entries, key);
}

/// Entries of any shape.
fn entries(input: &mut Input<'_>) {
    let key = input.prefixed();
    let mut entries: Vec<Entry> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while !input.is_empty() && entries.len() < 2000 {
        last.truncate(usize::from(input.byte()));
        last.extend_from_slice(input.prefixed());
        let tombstone = input.byte() % 4 == 0;
        let value = (!tombstone).then(|| input.prefixed().to_vec());
        if entries.last().is_none_or(|(before, _)| *before < last) {
            entries.push((last.clone(), value));
        }
    }
    if !entries.is_empty() {
        check_chunk(&entries, key);
    }
}

/// A chunk of these entries has them, and is searched as a list is.
fn check_chunk(entries: &[Entry], key: &[u8]) {
    let chunk = pieces::chunk(entries);
    let (read, found) = pieces::read_chunk(&chunk, key).expect("it was written here");
    assert_eq!(read, entries);
    assert_eq!(found.as_ref(), entries.iter().find(|(at, _)| &at[..] >= key));
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let stored = pieces::store_chunk(compression, &chunk).expect("it can be stored");
        let plain = pieces::plain_chunk(&stored, chunk.len(), Hash::of(&chunk));
        assert_eq!(plain.as_deref(), Ok(&chunk[..]));
    }
}

/// Any bytes as a stored chunk, of any length.
fn stored_chunk(input: &mut Input<'_>) {
    let plain_bytes = input.number() % MOST_PLAIN_BYTES;
    let plain_bytes = usize::try_from(plain_bytes).unwrap_or(usize::MAX);
    let name = Hash::of(input.prefixed());
    if let Ok(plain) = pieces::plain_chunk(input.rest(), plain_bytes, name) {
        assert_eq!((plain.len(), Hash::of(&plain)), (plain_bytes, name));
    }
}

/// A stored chunk with its right name and length, changed in one place.
fn damaged_chunk(input: &mut Input<'_>) {
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    let compression = compressions[input.below(3)];
    let script = input.prefixed();
    let mut script = Input::new(script);
    let plain = input.rest().repeat(1 + usize::from(script.byte() % 8));
    let mut stored = pieces::store_chunk(compression, &plain).expect("it can be stored");
    script.edit(&mut stored);
    if let Ok(read) = pieces::plain_chunk(&stored, plain.len(), Hash::of(&plain)) {
        assert_eq!(read, plain);
    }
}

/// What is written of an index is read and written as it is.
fn index(bytes: &[u8]) {
    if let Some(again) = pieces::index_again(bytes) {
        assert!(again.len() <= bytes.len(), "numbers are written as short as they can be");
        assert_eq!(pieces::index_again(&again), Some(again));
    }
}

/// Any bytes as a filter; and one of some keys lets all of them pass.
fn filter(input: &mut Input<'_>) {
    let key = input.prefixed();
    let bytes = input.rest();
    if pieces::filter_passes(bytes, key).is_none() {
        let keys: Vec<&[u8]> = bytes.chunks(1 + key.len() % 20).collect();
        let filter = pieces::filter(keys.iter().copied());
        assert!(keys.iter().all(|key| pieces::filter_passes(&filter, key) == Some(true)));
    }
}
