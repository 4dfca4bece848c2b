//! The bytes of a whole object as memory.
//!
//! # Why this is unsafe, and why it is here all the same
//!
//! A mapped file is a window on the file, not a copy. Two things can go wrong, and neither can be
//! seen from here:
//! - somebody cuts the file short: touching a page past its new end raises `SIGBUS`, which ends the
//!   process, with no error and no destructor;
//! - somebody writes into it: bytes change under a `&[u8]`, which the language forbids, and bytes
//!   that have been hashed are not what is read later.
//!
//! The objects of a store are written once, under a temporary name, and never changed; what is
//! deleted is unlinked, and an unlinked file stays whole for whoever has it mapped. So both take
//! somebody who doesn't belong to the job, with leave to write into its folder. A map is therefore
//! for files that this process owns: those of the job whose lock it holds. Everybody else, and
//! everybody who doesn't know, uses [`Store::read`](crate::Store::read), which gives a named error.
//! The length is compared with the file's before it is mapped, so a file that had been cut short
//! before is found in the ordinary way. The decision record `0006-mapped-files` has what else was
//! thought of.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};

/// The bytes of an object, where they are. Clones share them; the last one gives them back.
#[derive(Clone)]
pub struct Mapped {
    bytes: Bytes,
}

#[derive(Clone)]
enum Bytes {
    File(Arc<Mmap>),
    Memory(Arc<[u8]>),
}

impl Mapped {
    /// Maps the first `bytes` bytes of a file, to read. The file has at least as many.
    #[expect(unsafe_code, reason = "a map of a file; the page of the module argues for it")]
    pub(crate) fn of_file(file: &File, bytes: u64) -> io::Result<Self> {
        let bytes =
            usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut options = MmapOptions::new();
        options.len(bytes);
        // SAFETY: nobody who keeps to the contract of a store changes or cuts an object's file once
        // it has its name; what happens if somebody else does is argued on the page of the module.
        let map = unsafe { options.map(file) }?;
        Ok(Self { bytes: Bytes::File(Arc::new(map)) })
    }
}

impl From<Arc<[u8]>> for Mapped {
    /// Bytes that are in memory anyway.
    fn from(bytes: Arc<[u8]>) -> Self {
        Self { bytes: Bytes::Memory(bytes) }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::File(map) => map,
            Bytes::Memory(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("bytes", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, LocalStore, MemoryStore, Store};

    fn check(store: &dyn Store) {
        store.create("a/object", b"0123456789").expect("it can be made");
        let map = store.map("a/object").expect("it can be mapped").expect("the store has maps");
        assert_eq!(map[..], *b"0123456789");
        let other = map.clone();
        drop(map);
        // What is deleted stays whole for those who have it.
        store.delete("a/object").expect("it can be deleted");
        assert_eq!(other[..], *b"0123456789");
        let error = store.map("a/object").expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let error = store.map("../object").expect_err("a bad path");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }

    #[test]
    fn of_memory() {
        check(&MemoryStore::default());
    }

    #[test]
    fn of_a_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        check(&LocalStore::new(folder.path()));
    }

    #[test]
    fn nothing_is_not_mapped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = LocalStore::new(folder.path());
        store.create("empty", b"").expect("it can be made");
        assert!(store.map("empty").expect("it is there").is_none());
        std::fs::create_dir(folder.path().join("folder")).expect("a folder can be made");
        let error = store.map("folder").expect_err("it is no file");
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    }

    #[test]
    fn goes_from_thread_to_thread() {
        fn check<T: Send + Sync + 'static>(_: &T) {}
        check(&Mapped::from(Arc::from([1, 2, 3])));
    }
}
