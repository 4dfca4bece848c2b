//! Local files that are there after a power cut: the few operations, each synced.
//!
//! A file is durable when it and the directory entry that names it have been synced; a new
//! directory's own entry counts too.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Syncs a directory, so that the names in it are durable.
///
/// # Errors
/// It can't be opened or synced.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes a directory and all that lead to it, durably. One that is there is fine.
///
/// # Errors
/// One of them can't be made, or is a file.
pub fn create_dirs(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = parent_of(dir);
    if parent != dir {
        create_dirs(&parent)?;
    }
    match fs::create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists || !dir.is_dir() => Err(error),
        Ok(()) | Err(_) => sync_dir(&parent),
    }
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
    match fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_dir(&parent_of(file)),
    }
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
