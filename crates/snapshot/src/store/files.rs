//! The file system as [`LocalStore`](crate::LocalStore) needs it: a seam where a simulated disk
//! can stand in for the real one.
//!
//! What is durable is said once, here. After a power cut
//! - a file has the bytes that were written before its last [`sync`](NewFile::sync) that succeeded;
//!   later ones may be there in part, in any order;
//! - a directory has the names that it had at the last [`sync_dir`](Files::sync_dir) of it; names
//!   made or removed since, of files and of directories, may be there or not, each on its own;
//! - nothing follows from one about the other: a name may stand for a file whose bytes are gone.
//!
//! After a failed sync of a file its bytes are not known to be anywhere, and a second sync that
//! succeeds says nothing about them: the kernel may have dropped them and marked them clean. Such a
//! file is thrown away.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use crate::store::{Lock, Mapped};

/// The operations on files and directories that a local store is made of. Paths are as the
/// operating system has them. Each operation is done or not done, but for a write, which may be
/// short.
pub trait Files: Send + Sync + fmt::Debug {
    /// Makes a new, empty file, to be appended to.
    ///
    /// # Errors
    /// `AlreadyExists`; `NotFound` without the directory.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;

    /// Opens a file to read.
    ///
    /// # Errors
    /// `NotFound`.
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>>;

    /// What a path stands for. Links are followed.
    ///
    /// # Errors
    /// `NotFound`.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// What is in a directory, in any order. Links are not followed, and what goes while it is being
    /// listed is left out.
    ///
    /// # Errors
    /// `NotFound`.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, Stat)>>;

    /// Gives a file one more name. Never replaces.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a name away from a file.
    ///
    /// # Errors
    /// `NotFound`.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory.
    ///
    /// # Errors
    /// `AlreadyExists`; `NotFound` without the one above.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory that is empty.
    ///
    /// # Errors
    /// It is not; `NotFound`.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The storage fails.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Locks a file, which is made if it isn't there, until the lock is dropped or the process is
    /// gone.
    ///
    /// # Errors
    /// `WouldBlock` if somebody has it; `Unsupported` where there are no locks.
    fn try_lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
}

/// A file in the making: what is written is appended.
pub trait NewFile: io::Write + Send {
    /// Makes its bytes durable. After an error the file is not to be used any more.
    ///
    /// # Errors
    /// The storage fails.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that is open to read.
pub trait OpenFile: Send {
    /// What it is.
    ///
    /// # Errors
    /// The storage fails.
    fn stat(&self) -> io::Result<Stat>;

    /// Reads bytes from an offset on; fewer only where the file ends.
    ///
    /// # Errors
    /// The storage fails.
    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>>;

    /// The first `bytes` bytes as memory, where that is possible.
    ///
    /// # Errors
    /// The system refuses.
    fn map(&self, bytes: u64) -> io::Result<Option<Mapped>> {
        let _ = bytes;
        Ok(None)
    }
}

/// What a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// File, directory, or something else.
    pub kind: FileKind,
    /// Size of a file.
    pub bytes: u64,
}

/// Kinds of what a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A file with bytes.
    File,
    /// A directory.
    Directory,
    /// A link that was not followed, a pipe, a device.
    Other,
}

impl From<Metadata> for Stat {
    fn from(metadata: Metadata) -> Self {
        let kind = match () {
            () if metadata.is_file() => FileKind::File,
            () if metadata.is_dir() => FileKind::Directory,
            () => FileKind::Other,
        };
        Self { kind, bytes: metadata.len() }
    }
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdFiles;

impl Files for StdFiles {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(File::open(path)?))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        fs::metadata(path).map(Stat::from)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, Stat)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            match fs::symlink_metadata(entry.path()) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                metadata => found.push((entry.file_name(), metadata?.into())),
            }
        }
        Ok(found)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn try_lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.try_lock()?;
        Ok(Box::new(Held { _file: file }))
    }
}

/// A locked file. The lock goes with the file's handle, however the process ends. The file itself
/// stays: unlinking a lock file would let two processes lock two files of one name.
#[derive(Debug)]
struct Held {
    _file: File,
}

impl Lock for Held {}

impl NewFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl OpenFile for File {
    fn stat(&self) -> io::Result<Stat> {
        self.metadata().map(Stat::from)
    }

    /// Goes on after a signal and after a short read. Memory isn't cleared before it is filled.
    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut file = self;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::with_capacity(len);
        file.take(len as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn map(&self, bytes: u64) -> io::Result<Option<Mapped>> {
        Mapped::of_file(self, bytes).map(Some)
    }
}
