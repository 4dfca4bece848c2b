//! A store in a local folder.
//!
//! An object is written under a temporary name in its own folder, synced, linked to its name (a
//! hard link never replaces), and the folder is synced. So a name always stands for whole bytes, and
//! a file whose sync has failed never gets one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind as Io, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::durable::{create_dirs, parent_of, publish_new, remove};
use crate::store::{Lock, Object, Store, Upload, check_path, check_prefix};
use crate::{Error, ErrorKind, Result};

/// Names of files that have no object's name yet begin with this.
const TEMPORARY: &str = ".tmp-";

/// Objects as files under a folder, which is made when the first object is.
#[derive(Clone, Debug)]
pub struct LocalStore {
    root: PathBuf,
}

impl LocalStore {
    /// The store in this folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn file(&self, path: &str) -> Result<PathBuf> {
        check_path(path)?;
        Ok(self.root.join(path))
    }

    fn error(&self, path: &str, doing: &str, error: io::Error) -> Error {
        let name = self.describe(path);
        if error.kind() == Io::NotFound {
            return Error::new(ErrorKind::NotFound, format!("{name} is missing"));
        }
        if error.kind() == Io::AlreadyExists {
            return Error::new(ErrorKind::AlreadyExists, format!("{name} exists already"));
        }
        Error::new(ErrorKind::Io, format!("{name} can't be {doing}")).because(error)
    }

    fn begin(&self, path: &str) -> Result<LocalUpload> {
        let name = self.file(path)?;
        let folder = parent_of(&name);
        let temporary = folder.join(temporary_name());
        let create = || {
            create_dirs(&folder)?;
            OpenOptions::new().write(true).create_new(true).open(&temporary)
        };
        // Once more if a delete has just taken the folder away with its last file.
        let again =
            |error: io::Error| if error.kind() == Io::NotFound { create() } else { Err(error) };
        let file = create().or_else(again).map_err(|error| self.error(path, "written", error))?;
        Ok(LocalUpload {
            store: self.clone(),
            path: path.to_owned(),
            name,
            temporary,
            file,
            bytes: 0,
        })
    }
}

/// Unique among all processes that are alive, and among all names of this one.
fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: all that counts is that no number comes twice.
    format!("{TEMPORARY}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Store for LocalStore {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let mut upload = self.begin(path)?;
        upload.write(bytes)?;
        upload.publish().map(drop)
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        Ok(Box::new(self.begin(path)?))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        let name = self.file(path)?;
        let mut file = File::open(&name).map_err(|error| self.error(path, "opened", error))?;
        let failed = |error| self.error(path, "read", error);
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Error::damaged(&self.describe(path), "it is no file"));
        }
        let wanted = offset.saturating_add(len as u64);
        if metadata.len() < wanted {
            let text = format!("it has {} bytes, and {wanted} were expected", metadata.len());
            return Err(Error::damaged(&self.describe(path), text));
        }
        let mut bytes = vec![0; len];
        let done = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut bytes));
        done.map_err(failed)?;
        Ok(bytes)
    }

    fn size(&self, path: &str) -> Result<u64> {
        let metadata =
            fs::metadata(self.file(path)?).map_err(|error| self.error(path, "read", error))?;
        if metadata.is_file() {
            return Ok(metadata.len());
        }
        Err(Error::damaged(&self.describe(path), "it is no file"))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        check_prefix(prefix)?;
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut found = Vec::new();
        let walked = walk(&self.root.join(folder), folder, &mut |path, bytes| {
            if path.starts_with(prefix) {
                found.push(Object { path: path.to_owned(), bytes });
            }
        });
        walked.map_err(|error| self.error(prefix, "listed", error))?;
        found.sort();
        Ok(found)
    }

    fn delete(&self, path: &str) -> Result<()> {
        let name = self.file(path)?;
        remove(&name).map_err(|error| self.error(path, "deleted", error))?;
        // The folder goes with its last file, but for the root; it is in use if it isn't empty.
        let folder = parent_of(&name);
        if folder != self.root && fs::remove_dir(&folder).is_ok() {
            let above = parent_of(&folder);
            crate::durable::sync_dir(&above).map_err(|error| self.error(path, "deleted", error))?;
        }
        Ok(())
    }

    fn location(&self) -> String {
        self.root.display().to_string()
    }

    fn describe(&self, path: &str) -> String {
        self.root.join(path).display().to_string()
    }

    fn local_root(&self) -> Option<PathBuf> {
        Some(self.root.clone())
    }

    fn lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        let name = self.file(path)?;
        let open = || {
            create_dirs(&parent_of(&name))?;
            OpenOptions::new().create(true).truncate(false).write(true).open(&name)
        };
        let file = open().map_err(|error| self.error(path, "opened", error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(Held { _file: file }))),
            Err(TryLockError::WouldBlock) => {
                Err(Error::new(ErrorKind::Held, format!("{} is held", self.describe(path))))
            }
            // A file system without locks: the fence alone must do.
            Err(TryLockError::Error(error)) if error.kind() == Io::Unsupported => Ok(None),
            Err(TryLockError::Error(error)) => Err(self.error(path, "locked", error)),
        }
    }

    fn sweep(&self, prefix: &str) -> Result<()> {
        check_prefix(prefix)?;
        let swept = sweep_temporary(&self.root.join(prefix));
        swept.map_err(|error| self.error(prefix, "swept", error))
    }
}

/// A locked file. The lock goes with the file's handle, however the process ends. The file itself
/// stays: unlinking a lock file would let two processes lock two files of one name.
#[derive(Debug)]
struct Held {
    _file: File,
}

impl Lock for Held {}

/// Calls `take` with each object below a folder.
fn walk(folder: &Path, path: &str, take: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == Io::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // A name that is no text is none of ours; a file that has just gone is not there.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let metadata = match fs::symlink_metadata(entry.path()) {
            Err(error) if error.kind() == Io::NotFound => continue,
            metadata => metadata?,
        };
        let inner = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        if metadata.is_dir() {
            walk(&entry.path(), &inner, take)?;
        } else if !name.starts_with(TEMPORARY) {
            take(&inner, metadata.len());
        }
    }
    Ok(())
}

fn sweep_temporary(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == Io::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let temporary =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TEMPORARY));
        if temporary {
            remove(&path)?;
        } else if path.is_dir() {
            sweep_temporary(&path)?;
        }
    }
    Ok(())
}

struct LocalUpload {
    store: LocalStore,
    path: String,
    name: PathBuf,
    temporary: PathBuf,
    file: File,
    bytes: u64,
}

impl LocalUpload {
    fn publish(self) -> Result<u64> {
        let failed = |error| self.store.error(&self.path, "written", error);
        self.file.sync_all().map_err(failed)?;
        let linked = publish_new(&self.temporary, &self.name).map_err(failed)?;
        if linked { Ok(self.bytes) } else { Err(failed(Io::AlreadyExists.into())) }
    }
}

impl Upload for LocalUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| self.store.error(&self.path, "written", error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.publish()
    }
}

impl Drop for LocalUpload {
    /// After a publication the temporary name is gone already; otherwise the next owner sweeps what
    /// can't be removed here.
    fn drop(&mut self) {
        drop(fs::remove_file(&self.temporary));
    }
}
