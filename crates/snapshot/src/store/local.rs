//! A store in a local folder.
//!
//! An object is written under a temporary name in its own folder, synced, linked to its name (a
//! hard link never replaces), and the folder is synced. So a name always stands for whole bytes, and
//! a file whose write or sync has failed never gets one.
//!
//! ```text
//! create .tmp-…   write   sync file   link .tmp-… → name   sync folder   unlink .tmp-…
//!                                                           └ durable
//! ```
//!
//! What a process sees is not always what a power cut leaves: one that was killed may have linked
//! or unlinked a name and not come to the sync. So an owner, when it begins, sweeps: it removes
//! temporary names and syncs every folder of its job, before it looks at what is there and builds
//! on it.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind as Io};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::durable::{Folders, gone_is_fine, parent_of};
use crate::store::files::{FileKind, Files, NewFile, OpenFile, Stat, StdFiles};
use crate::store::{Lock, Mapped, Object, Store, Upload, check_path, check_prefix};
use crate::{Error, ErrorKind, Result};

/// Names of files that have no object's name yet begin with this.
const TEMPORARY: &str = ".tmp-";

/// Objects as files under a folder, which is made when the first object is.
#[derive(Clone, Debug)]
pub struct LocalStore {
    root: PathBuf,
    files: Arc<dyn Files>,
    folders: Arc<Folders>,
}

impl LocalStore {
    /// The store in this folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::with_files(root, Arc::new(StdFiles))
    }

    /// The store in this folder of another file system than the real one.
    pub fn with_files(root: impl Into<PathBuf>, files: Arc<dyn Files>) -> Self {
        let root = root.into();
        let folders = Arc::new(Folders::new(Arc::clone(&files), root.clone()));
        Self { root, files, folders }
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
        let temporary = parent_of(&name).join(temporary_name());
        let file = self
            .in_folder_of(&name, || self.files.create_new(&temporary))
            .map_err(|error| self.error(path, "written", error))?;
        let store = self.clone();
        let path = path.to_owned();
        Ok(LocalUpload { store, path, name, temporary, file, bytes: 0, failed: false })
    }

    /// Does something in the folder of a file, which is made first. Once more if somebody's delete
    /// has just taken the folder away with its last file.
    fn in_folder_of<T>(&self, name: &Path, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let folder = parent_of(name);
        let ensured = || self.folders.ensure(&folder).and_then(|()| act());
        ensured().or_else(|error| {
            if error.kind() != Io::NotFound {
                return Err(error);
            }
            self.folders.forget();
            ensured()
        })
    }

    /// Opens a file, and says its size.
    fn open(&self, path: &str) -> Result<(Box<dyn OpenFile>, u64)> {
        let name = self.file(path)?;
        let file = self.files.open(&name).map_err(|error| self.error(path, "opened", error))?;
        let stat = file.stat().map_err(|error| self.error(path, "read", error))?;
        if stat.kind != FileKind::File {
            return Err(Error::damaged(&self.describe(path), "it is no file"));
        }
        Ok((file, stat.bytes))
    }

    /// Calls `take` with each object below a folder.
    fn walk(&self, folder: &Path, path: &str, take: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        for (name, stat) in listed(&*self.files, folder)? {
            // A name that is no text is none of ours.
            let Some(name) = name.to_str() else { continue };
            let inner = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            if stat.kind == FileKind::Directory {
                self.walk(&folder.join(name), &inner, take)?;
            } else if !name.starts_with(TEMPORARY) {
                take(&inner, stat.bytes);
            }
        }
        Ok(())
    }

    /// Removes temporary names below a folder, and makes durable what is left.
    fn settle(&self, folder: &Path) -> io::Result<()> {
        for (name, stat) in listed(&*self.files, folder)? {
            let path = folder.join(&name);
            if stat.kind == FileKind::Directory {
                self.settle(&path)?;
            } else if is_temporary(&name) {
                gone_is_fine(self.files.remove_file(&path))?;
            }
        }
        gone_is_fine(self.files.sync_dir(folder))
    }
}

/// What is in a folder; nothing if there is none.
fn listed(files: &dyn Files, folder: &Path) -> io::Result<Vec<(OsString, Stat)>> {
    match files.read_dir(folder) {
        Err(error) if error.kind() == Io::NotFound => Ok(Vec::new()),
        entries => entries,
    }
}

fn is_temporary(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes())
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
        let (file, there) = self.open(path)?;
        let wanted = offset.saturating_add(len as u64);
        if there < wanted {
            let text = format!("it has {there} bytes, and {wanted} were expected");
            return Err(Error::damaged(&self.describe(path), text));
        }
        let bytes = file.read(offset, len).map_err(|error| self.error(path, "read", error))?;
        if bytes.len() < len {
            return Err(Error::damaged(&self.describe(path), "it was cut short while it was read"));
        }
        Ok(bytes)
    }

    fn map(&self, path: &str) -> Result<Option<Mapped>> {
        let (file, bytes) = self.open(path)?;
        if bytes == 0 {
            return Ok(None);
        }
        file.map(bytes).map_err(|error| self.error(path, "mapped", error))
    }

    fn size(&self, path: &str) -> Result<u64> {
        let stat = self.files.stat(&self.file(path)?);
        let stat = stat.map_err(|error| self.error(path, "read", error))?;
        if stat.kind == FileKind::File {
            return Ok(stat.bytes);
        }
        Err(Error::damaged(&self.describe(path), "it is no file"))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        check_prefix(prefix)?;
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut found = Vec::new();
        let walked = self.walk(&self.root.join(folder), folder, &mut |path, bytes| {
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
        let failed = |error| self.error(path, "deleted", error);
        self.folders.settle_doubts().map_err(failed)?;
        self.folders.remove(&name).map_err(failed)?;
        // The folder goes with its last file, but for the root; it is in use if it isn't empty.
        let folder = parent_of(&name);
        if folder == self.root {
            Ok(())
        } else {
            self.folders.remove_empty(&folder).map_err(failed)
        }
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
        match self.in_folder_of(&name, || self.files.try_lock(&name)) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == Io::WouldBlock => {
                Err(Error::new(ErrorKind::Held, format!("{} is held", self.describe(path))))
            }
            // A file system without locks: the fence alone must do.
            Err(error) if error.kind() == Io::Unsupported => Ok(None),
            Err(error) => Err(self.error(path, "locked", error)),
        }
    }

    /// Besides, makes every name that is there durable, and every name that is gone gone for good.
    fn sweep(&self, prefix: &str) -> Result<()> {
        check_prefix(prefix)?;
        let swept = self.settle(&self.root.join(prefix));
        swept.map_err(|error| self.error(prefix, "swept", error))
    }
}

struct LocalUpload {
    store: LocalStore,
    path: String,
    name: PathBuf,
    temporary: PathBuf,
    file: Box<dyn NewFile>,
    bytes: u64,
    /// A write has failed: what the file holds is not what was handed over.
    failed: bool,
}

impl LocalUpload {
    /// Consumes the upload, so that a sync that has failed is never tried again.
    fn publish(mut self) -> Result<u64> {
        let published = self.link();
        published.map_err(|error| self.store.error(&self.path, "written", error))
    }

    fn link(&mut self) -> io::Result<u64> {
        if self.failed {
            return Err(io::Error::other("an earlier write has failed"));
        }
        self.file.sync()?;
        self.store.folders.settle_doubts()?;
        self.store.files.hard_link(&self.temporary, &self.name)?;
        self.store.folders.sync(&parent_of(&self.name))?;
        Ok(self.bytes)
    }
}

impl Upload for LocalUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        // Goes on after a signal and after a short write.
        if let Err(error) = self.file.write_all(bytes) {
            self.failed = true;
            return Err(self.store.error(&self.path, "written", error));
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.publish()
    }
}

impl Drop for LocalUpload {
    /// The temporary name has served its time, whether there is another one now or not. The next
    /// owner sweeps what can't be removed here.
    fn drop(&mut self) {
        drop(self.store.files.remove_file(&self.temporary));
    }
}
