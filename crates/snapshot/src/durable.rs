//! Local files that are there after a power cut: the few operations, each synced.
//!
//! A file is durable when it and the directory entry that names it have been synced; a new
//! directory's own entry counts too.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::files::{FileKind, Files, StdFiles};

/// Syncs a directory, so that the names in it are durable.
///
/// # Errors
/// It can't be opened or synced.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    StdFiles.sync_dir(dir)
}

/// Makes a directory and all that lead to it, durably. One that is there is fine: its own name is
/// synced all the same, since whoever made it may have been killed before that.
///
/// # Errors
/// One of them can't be made, or is a file.
pub fn create_dirs(dir: &Path) -> io::Result<()> {
    Folders::new(Arc::new(StdFiles), dir.to_owned()).ensure(dir)
}

/// Gives a staged file its name, unless the name is taken: never replaces. `Ok(true)`: published
/// now. `Ok(false)`: it had been published before, and the staged file is gone. A crash between
/// the two halves of a publication is made good.
///
/// # Errors
/// Another file has the name; neither file is there; the file system fails.
pub fn publish_new(staged: &Path, name: &Path) -> io::Result<bool> {
    let linked = match fs::hard_link(staged, name) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NotFound && name.exists() => return Ok(false),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && same_file(staged, name)? => true,
        Err(error) => return Err(error),
    };
    sync_dir(&parent_of(name))?;
    remove(staged)?;
    Ok(linked)
}

/// Removes a file, durably. One that isn't there is fine.
///
/// # Errors
/// It can't be removed.
pub fn remove(file: &Path) -> io::Result<()> {
    gone_is_fine(StdFiles.remove_file(file))?;
    // Even if it wasn't there: whoever removed it may have failed before the sync, and what follows
    // may rely on its being gone for good.
    gone_is_fine(StdFiles.sync_dir(&parent_of(file)))
}

pub(crate) fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// The directories of a root: made when needed, and what is known of their being durable.
///
/// That a directory is there doesn't say that its name is durable: whoever made it may not have come
/// to the sync, or may be just before it on another thread. So each one is trusted only after this
/// value has synced the one above it, once. Making, removing and looking up exclude each other;
/// syncs of names don't.
///
/// And what a directory shows is not always what a power cut leaves: where a sync has failed, the
/// change before it is seen and may be lost. So such directories are remembered, and synced before
/// anything else is built on what they show.
#[derive(Debug)]
pub(crate) struct Folders {
    files: Arc<dyn Files>,
    root: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Directories whose own names have been synced, up to the root.
    durable: BTreeSet<PathBuf>,
    /// Directories whose last sync has failed.
    doubtful: BTreeSet<PathBuf>,
}

impl Folders {
    pub(crate) fn new(files: Arc<dyn Files>, root: PathBuf) -> Self {
        Self { files, root, known: Mutex::default() }
    }

    /// Makes a directory and all that lead to it, durably.
    pub(crate) fn ensure(&self, dir: &Path) -> io::Result<()> {
        self.settle(&mut self.known.lock().durable, dir)
    }

    /// Takes no directory for granted any more: somebody has removed one.
    pub(crate) fn forget(&self) {
        self.known.lock().durable.clear();
    }

    /// Makes the names in a directory durable.
    pub(crate) fn sync(&self, dir: &Path) -> io::Result<()> {
        let synced = self.files.sync_dir(dir);
        if synced.as_ref().is_err_and(|error| error.kind() != ErrorKind::NotFound) {
            self.known.lock().doubtful.insert(dir.to_owned());
        }
        synced
    }

    /// Makes durable what could not be made so before.
    pub(crate) fn settle_doubts(&self) -> io::Result<()> {
        let mut known = self.known.lock();
        while let Some(dir) = known.doubtful.first().cloned() {
            // One that has gone has no names to be lost; that it has gone is for the one above.
            gone_is_fine(self.files.sync_dir(&dir))?;
            known.doubtful.remove(&dir);
        }
        Ok(())
    }

    /// Removes a file, durably. One that isn't there is fine.
    pub(crate) fn remove(&self, file: &Path) -> io::Result<()> {
        gone_is_fine(self.files.remove_file(file))?;
        // Even if it wasn't there: see `remove`.
        gone_is_fine(self.sync(&parent_of(file)))
    }

    /// Removes a directory if it is empty, durably.
    pub(crate) fn remove_empty(&self, dir: &Path) -> io::Result<()> {
        if self.removes_empty(dir) { self.sync(&parent_of(dir)) } else { Ok(()) }
    }

    fn removes_empty(&self, dir: &Path) -> bool {
        let mut known = self.known.lock();
        let removed = self.files.remove_dir(dir).is_ok();
        if removed {
            known.durable.remove(dir);
        }
        removed
    }

    fn settle(&self, durable: &mut BTreeSet<PathBuf>, dir: &Path) -> io::Result<()> {
        if durable.contains(dir) {
            return Ok(());
        }
        let parent = parent_of(dir);
        let there = is_dir(&*self.files, dir);
        // Above the root only the lowest directory that is there can be in doubt: each was synced
        // before the next was made.
        let below_root = dir != self.root && dir.starts_with(&self.root);
        if parent != dir && (below_root || !there) {
            self.settle(durable, &parent)?;
        }
        if !there {
            self.make(dir)?;
        }
        match self.files.sync_dir(&parent) {
            Err(error) if there && cannot_sync(&error) => {}
            synced => synced?,
        }
        durable.insert(dir.to_owned());
        Ok(())
    }

    /// Makes a directory, unless somebody was faster.
    fn make(&self, dir: &Path) -> io::Result<()> {
        match self.files.create_dir(dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            Err(error) if !is_dir(&*self.files, dir) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn is_dir(files: &dyn Files, path: &Path) -> bool {
    files.stat(path).is_ok_and(|stat| stat.kind == FileKind::Directory)
}

/// Whether a directory is one that this process may not or can not sync. Whoever made what is in it
/// had other rights, and had to see to it.
fn cannot_sync(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
    )
}

/// The directory that a path is in; `.` for a bare name.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        None => path.to_owned(),
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
    }
}

fn same_file(a: &Path, b: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let (a, b) = (fs::symlink_metadata(a)?, fs::symlink_metadata(b)?);
        Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
    }
    #[cfg(not(unix))]
    {
        Ok(fs::canonicalize(a)? == fs::canonicalize(b)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[test]
    fn publishes_once_and_says_so() {
        let folder = folder();
        let (staged, name) = (folder.path().join("staged"), folder.path().join("name"));
        fs::write(&staged, "x").expect("a file can be written");
        assert!(publish_new(&staged, &name).expect("it publishes"));
        assert!(!publish_new(&staged, &name).expect("it had been published"));
        assert!(!staged.exists() && name.exists());
    }

    #[test]
    fn finishes_a_publication_that_was_cut_short() {
        let folder = folder();
        let (staged, name) = (folder.path().join("staged"), folder.path().join("name"));
        fs::write(&staged, "x").expect("a file can be written");
        fs::hard_link(&staged, &name).expect("a link can be made");
        publish_new(&staged, &name).expect("it finishes");
        assert!(!staged.exists() && name.exists());
    }

    #[test]
    fn never_replaces() {
        let folder = folder();
        let (staged, name) = (folder.path().join("staged"), folder.path().join("name"));
        fs::write(&staged, "new").expect("a file can be written");
        fs::write(&name, "old").expect("a file can be written");
        publish_new(&staged, &name).expect_err("the name is taken");
        assert_eq!(fs::read(&name).expect("it is there"), b"old");
        assert!(staged.exists());
    }

    #[test]
    fn makes_directories_where_there_are_none() {
        let folder = folder();
        let deep = folder.path().join("a/b/c");
        create_dirs(&deep).expect("they can be made");
        create_dirs(&deep).expect("they are there");
        assert!(deep.is_dir());
        fs::write(deep.join("file"), "x").expect("a file can be written");
        create_dirs(&deep.join("file/d")).expect_err("a file is in the way");
    }
}
