//! A folder of what has been read from far away: chunks, filters and indexes under their hashes.
//!
//! A piece's name is the hash of what it holds, so it can be of any store and any job, is checked
//! like bytes from anywhere else, and is never out of date. What is cut short, damaged or removed
//! by others is read from its store again. Nothing is synced: the folder may be lost.
//!
//! ```text
//! <folder>/<2 hex digits>/<62 hex digits>    one piece in its stored form
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::hash::Hash;
use crate::{Error, ErrorKind, Result};

/// Pieces in the making have this at the end of their names.
const UNFINISHED: &str = ".part";

/// Pieces of checkpoints in a local folder, up to a size: for
/// [`Snapshot::with_local_cache`](crate::Snapshot::with_local_cache). Several processes may use one
/// folder; each keeps to the size by itself.
#[derive(Debug)]
pub struct LocalCache {
    folder: PathBuf,
    limit_bytes: u64,
    /// Part of the names of files in the making.
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: BTreeMap<Hash, Slot>,
    /// In the order in which the clock's hand will come by.
    clock: VecDeque<Hash>,
    bytes: u64,
}

#[derive(Debug)]
struct Slot {
    bytes: u64,
    /// Since the hand came by last: then it is spared once.
    used: bool,
}

impl LocalCache {
    /// Takes a folder, made if need be, with what is in it already. At most `limit_bytes` are kept;
    /// what has not been used for longest goes first.
    ///
    /// # Errors
    /// `Io`: the folder can't be made or read.
    pub fn open(folder: impl Into<PathBuf>, limit_bytes: u64) -> Result<Self> {
        let folder = folder.into();
        let state = fs::create_dir_all(&folder).and_then(|()| State::read(&folder));
        let state = state.map_err(|error| {
            let text = format!("the local cache {} can't be used", folder.display());
            Error::new(ErrorKind::Io, text).because(error)
        })?;
        let cache = Self { folder, limit_bytes, next: AtomicU64::new(0), state: Mutex::new(state) };
        cache.shrink();
        Ok(cache)
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Whether a piece is there, as far as is known without a look at its file.
    pub(crate) fn has(&self, hash: &Hash) -> bool {
        self.state.lock().pieces.contains_key(hash)
    }

    /// A piece as it was put. The caller verifies it, and [`drops`](Self::forget) what doesn't fit.
    pub(crate) fn get(&self, hash: &Hash) -> Option<Vec<u8>> {
        let bytes = self.touch(hash)?;
        let mut piece = Vec::new();
        // Somebody may have put a longer file in its place.
        let read =
            File::open(self.file(hash)).and_then(|file| file.take(bytes).read_to_end(&mut piece));
        if read.is_err() {
            self.forget(hash);
            return None;
        }
        Some(piece)
    }

    /// Notes that a piece is used, and says its size.
    fn touch(&self, hash: &Hash) -> Option<u64> {
        let mut state = self.state.lock();
        let slot = state.pieces.get_mut(hash)?;
        slot.used = true;
        Some(slot.bytes)
    }

    /// Keeps a piece that has been verified. A folder that takes no more, or can't be written to, is
    /// no error: the piece is read from its store the next time.
    pub(crate) fn put(&self, hash: &Hash, stored: &[u8]) {
        let bytes = stored.len() as u64;
        if bytes > self.limit_bytes || self.has(hash) || self.write(hash, stored).is_err() {
            return;
        }
        self.state.lock().add(*hash, bytes);
        self.shrink();
    }

    /// Drops a piece.
    pub(crate) fn forget(&self, hash: &Hash) {
        self.state.lock().drop_piece(hash);
        // One that is gone already is as good.
        fs::remove_file(self.file(hash)).ok();
    }

    fn write(&self, hash: &Hash, stored: &[u8]) -> io::Result<()> {
        let file = self.file(hash);
        // Relaxed: all that counts is that no number comes twice.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.folder.join(format!("{}-{number}{UNFINISHED}", std::process::id()));
        let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
        let written = folder.and_then(|()| fs::write(&unfinished, stored));
        let named = written.and_then(|()| fs::rename(&unfinished, &file));
        if named.is_err() {
            fs::remove_file(&unfinished).ok();
        }
        named
    }

    fn shrink(&self) {
        let dropped = self.state.lock().shrink_to(self.limit_bytes);
        for hash in dropped {
            fs::remove_file(self.file(&hash)).ok();
        }
    }

    fn file(&self, hash: &Hash) -> PathBuf {
        let name = hash.to_string();
        let (first, rest) = name.split_at_checked(2).unwrap_or_default();
        self.folder.join(first).join(rest)
    }
}

impl State {
    /// What is in a folder: pieces are kept, and what was in the making when a process ended goes.
    fn read(folder: &Path) -> io::Result<Self> {
        let mut state = Self::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            if name.ends_with(UNFINISHED) {
                fs::remove_file(entry.path()).ok();
            } else if name.len() == 2 && entry.file_type()?.is_dir() {
                state.read_part(name, &entry.path())?;
            }
        }
        Ok(state)
    }

    fn read_part(&mut self, first: &str, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let hash = name.to_str().and_then(|rest| Hash::parse(&format!("{first}{rest}")));
            // Others may have removed it meanwhile.
            let (Some(hash), Ok(of)) = (hash, entry.metadata()) else { continue };
            self.add(hash, of.len());
        }
        Ok(())
    }

    fn add(&mut self, hash: Hash, bytes: u64) {
        if self.pieces.insert(hash, Slot { bytes, used: false }).is_none() {
            self.bytes += bytes;
            self.clock.push_back(hash);
        }
    }

    /// Its place in the clock stays until the hand comes by.
    fn drop_piece(&mut self, hash: &Hash) {
        if let Some(slot) = self.pieces.remove(hash) {
            self.bytes -= slot.bytes;
        }
    }

    fn shrink_to(&mut self, limit_bytes: u64) -> Vec<Hash> {
        let mut dropped = Vec::new();
        while self.bytes > limit_bytes {
            let Some(hash) = self.clock.pop_front() else { break };
            let Some(slot) = self.pieces.get_mut(&hash) else { continue };
            if std::mem::take(&mut slot.used) {
                self.clock.push_back(hash);
            } else {
                self.drop_piece(&hash);
                dropped.push(hash);
            }
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(count: u8) -> Vec<(Hash, Vec<u8>)> {
        (0..count).map(|n| vec![n; 10]).map(|bytes| (Hash::of(&bytes), bytes)).collect()
    }

    fn cache(folder: &Path, limit_bytes: u64) -> LocalCache {
        LocalCache::open(folder, limit_bytes).unwrap()
    }

    #[test]
    fn pieces_outlive_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let pieces = pieces(3);
        for (hash, bytes) in &pieces {
            cache(folder.path(), 100).put(hash, bytes);
        }
        fs::write(folder.path().join("1-2.part"), "x").unwrap();
        let cache = cache(folder.path(), 100);
        assert_eq!(cache.bytes(), 30);
        assert!(!folder.path().join("1-2.part").exists());
        for (hash, bytes) in &pieces {
            assert_eq!(cache.get(hash).as_ref(), Some(bytes));
        }
    }

    #[test]
    fn what_is_used_stays_longer_and_the_limit_holds() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), 30);
        let pieces = pieces(4);
        for (hash, bytes) in pieces.iter().take(3) {
            cache.put(hash, bytes);
        }
        assert!(cache.get(&pieces[0].0).is_some());
        cache.put(&pieces[3].0, &pieces[3].1);
        let there: Vec<bool> = pieces.iter().map(|(hash, _)| cache.get(hash).is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
        assert_eq!(cache.bytes(), 30);
        cache.put(&Hash::of(&[9; 31]), &[9; 31]);
        assert_eq!(cache.bytes(), 30);
    }

    #[test]
    fn what_somebody_else_has_removed_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), 100);
        let [(hash, bytes)] = pieces(1).try_into().unwrap();
        cache.put(&hash, &bytes);
        fs::remove_file(cache.file(&hash)).unwrap();
        assert_eq!((cache.get(&hash), cache.bytes()), (None, 0));
        cache.put(&hash, &bytes);
        assert_eq!(cache.get(&hash), Some(bytes));
    }

    #[test]
    fn a_folder_that_is_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = LocalCache::open(file.path(), 1).unwrap_err();
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    }
}
