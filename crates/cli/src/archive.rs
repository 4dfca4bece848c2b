//! A savepoint's folder in a tar file, as a store: written front to back, read in any order.
//!
//! ```text
//! header  savepoint-…/state.pack  zeros to 512 │ header  savepoint-…/_metadata  zeros │ 1,024 zeros
//! ```
//!
//! The length of an object is known when it ends; so its header is written last. What is read is
//! trusted no further than needed: plain files of one savepoint's folder and that folder itself,
//! within the file's length; anything else is refused. What the objects hold is hashed by who reads them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strandline::snapshot::{Error, ErrorKind, Object, Result, Store, Upload};
use tar::{EntryType, Header};

const BLOCK_BYTES: u64 = 512;

/// Two blocks of zeros end an archive.
const END: [u8; 1024] = [0; 1024];

/// No archive of a savepoint has more objects.
const MAX_OBJECTS: usize = 10_000;

/// Names longer than a tar header's field are not read.
const MAX_NAME_BYTES: usize = 255;

/// A tar file with the objects of one savepoint. Clones are the same file.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    file: File,
    objects: BTreeMap<String, Extent>,
    /// Where the next header comes.
    end: u64,
    /// An object is being written.
    busy: bool,
}

/// Where an object's bytes are.
#[derive(Clone, Copy, Debug)]
struct Extent {
    offset: u64,
    bytes: u64,
}

impl Archive {
    /// A new file.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        Ok(Self::new(path, State { file, objects: BTreeMap::new(), end: 0, busy: false }))
    }

    /// Reads what is in a file: headers and nothing else.
    ///
    /// # Errors
    /// `Invalid` if it is no archive of one savepoint, with what is wrong; `Io`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| {
            let text = format!("{} can't be read", path.display());
            Error::new(ErrorKind::Io, text).because(error)
        };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let objects = objects(path, &file, length)?;
        Ok(Self::new(path, State { file, objects, end: length, busy: true }))
    }

    fn new(path: &Path, state: State) -> Self {
        Self { path: path.to_owned(), state: Arc::new(Mutex::new(state)) }
    }

    /// Ends the file, and makes its bytes durable.
    pub(crate) fn close(&self) -> io::Result<()> {
        let mut state = self.lock();
        let end = state.end;
        state.write_at(end, &END)?;
        // What an object that was given up has left behind.
        state.file.set_len(end + END.len() as u64)?;
        state.file.sync_all()
    }

    /// The savepoint's folder.
    pub(crate) fn folder(&self) -> Option<String> {
        let state = self.lock();
        let (folder, _) = state.objects.keys().next()?.split_once('/')?;
        Some(folder.to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::new(ErrorKind::Io, format!("{}: i/o failed", self.path.display())).because(error)
    }

    fn extent(&self, path: &str) -> Result<Extent> {
        let found = self.lock().objects.get(path).copied();
        found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{} is missing", self.describe(path)))
        })
    }
}

impl State {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.write_all(bytes)
    }

    fn read_at(&mut self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// What an archive holds, if it holds a savepoint and nothing else.
fn objects(path: &Path, file: &File, length: u64) -> Result<BTreeMap<String, Extent>> {
    let wrong = |what: String| {
        let text = format!(
            "{} is no export of a savepoint: {what}; make one with `strandline checkpoints export`",
            path.display()
        );
        Error::new(ErrorKind::Invalid, text)
    };
    let unread = |error: io::Error| wrong(error.to_string());
    let mut archive = tar::Archive::new(file);
    let mut objects = BTreeMap::new();
    // Raw: extended headers are entries of their own, and refused, before anybody believes a length
    // that they tell.
    for entry in archive.entries_with_seek().map_err(unread)?.raw(true) {
        let entry = entry.map_err(unread)?;
        let offset = entry.raw_file_position();
        let bytes = entry.header().entry_size().map_err(unread)?;
        let end = offset.checked_add(bytes).filter(|end| *end <= length);
        if end.is_none() || objects.len() >= MAX_OBJECTS {
            return Err(wrong(
                "an entry is longer than the file, or there are too many".to_owned(),
            ));
        }
        let name = entry.path_bytes().into_owned();
        if let Some(name) = object_name(&name, entry.header().entry_type()).map_err(wrong)? {
            let taken = objects.insert(name, Extent { offset, bytes });
            if taken.is_some() {
                return Err(wrong("a name is there twice".to_owned()));
            }
        }
    }
    let folders = objects.keys().filter_map(|name: &String| name.split_once('/'));
    let folders: Vec<&str> = folders.map(|(folder, _)| folder).collect();
    match folders.first() {
        Some(first) if folders.iter().all(|folder| folder == first) => Ok(objects),
        Some(_) => Err(wrong("it has several folders".to_owned())),
        None => Err(wrong("it is empty".to_owned())),
    }
}

/// The name of an object of a savepoint; `None` for its folder. Refuses all else.
fn object_name(name: &[u8], kind: EntryType) -> std::result::Result<Option<String>, String> {
    let shown = String::from_utf8_lossy(name.get(..MAX_NAME_BYTES).unwrap_or(name));
    let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= MAX_NAME_BYTES);
    let refused = || format!("{shown:?} is not a plain file `savepoint-…/_metadata` or `….pack`");
    let name = name.ok_or_else(refused)?;
    let is_savepoint = |folder: &str| folder.starts_with("savepoint-") && is_plain(folder);
    if kind == EntryType::Directory {
        let folder = name.trim_end_matches('/');
        return if is_savepoint(folder) { Ok(None) } else { Err(refused()) };
    }
    let (folder, file) = name.split_once('/').ok_or_else(refused)?;
    let fits = is_plain(file) && (file == "_metadata" || file.ends_with(".pack"));
    if kind == EntryType::Regular && is_savepoint(folder) && fits {
        return Ok(Some(name.to_owned()));
    }
    Err(refused())
}

fn is_plain(part: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty() && !part.starts_with('.') && part.chars().all(fits)
}

impl Store for Archive {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let mut upload = self.put(path)?;
        upload.write(bytes)?;
        upload.finish().map(drop)
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        let mut state = self.lock();
        if state.objects.contains_key(path) {
            let text = format!("{} exists already", self.describe(path));
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        if state.busy {
            let text = format!("{} takes one object after the other", self.location());
            return Err(Error::new(ErrorKind::Io, text));
        }
        state.busy = true;
        let header = state.end;
        Ok(Box::new(Entry { archive: self.clone(), name: path.to_owned(), header, bytes: 0 }))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        let extent = self.extent(path)?;
        if offset.checked_add(len as u64).is_none_or(|end| end > extent.bytes) {
            let text = format!("{} is damaged: it is too short", self.describe(path));
            return Err(Error::new(ErrorKind::Damaged, text));
        }
        let read = self.lock().read_at(extent.offset + offset, len);
        read.map_err(|error| self.failed(error))
    }

    fn size(&self, path: &str) -> Result<u64> {
        self.extent(path).map(|extent| extent.bytes)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let state = self.lock();
        let found = state.objects.iter().filter(|(path, _)| path.starts_with(prefix));
        let object =
            |(path, extent): (&String, &Extent)| Object { path: path.clone(), bytes: extent.bytes };
        Ok(found.map(object).collect())
    }

    /// The bytes stay; the file is given up as a whole where an object is.
    fn delete(&self, path: &str) -> Result<()> {
        self.lock().objects.remove(path);
        Ok(())
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }
}

/// An object in the making.
struct Entry {
    archive: Archive,
    name: String,
    /// Where its header comes.
    header: u64,
    bytes: u64,
}

impl Entry {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let at = self.header + BLOCK_BYTES + self.bytes;
        self.archive.lock().write_at(at, bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn end(&self) -> io::Result<u64> {
        let mut header = Header::new_gnu();
        header.set_path(&self.name)?;
        header.set_size(self.bytes);
        header.set_mode(0o644);
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        let offset = self.header + BLOCK_BYTES;
        let end = (offset + self.bytes).next_multiple_of(BLOCK_BYTES);
        let mut state = self.archive.lock();
        // The bytes up to the next block are zeros.
        state.file.set_len(end)?;
        state.write_at(self.header, header.as_bytes())?;
        state.end = end;
        state.objects.insert(self.name.clone(), Extent { offset, bytes: self.bytes });
        Ok(self.bytes)
    }
}

impl Upload for Entry {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.append(bytes).map_err(|error| self.archive.failed(error))
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.end().map_err(|error| self.archive.failed(error))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.archive.lock().busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, kind: EntryType, fits: bool) {
        let named = object_name(name.as_bytes(), kind);
        assert_eq!(named.is_ok(), fits, "{name}: {named:?}");
    }

    #[test]
    fn only_plain_files_of_a_savepoint() {
        check("savepoint-ab-cd/_metadata", EntryType::Regular, true);
        check("savepoint-ab-cd/state.pack", EntryType::Regular, true);
        check("savepoint-ab-cd/", EntryType::Directory, true);
        for bad in [
            "/savepoint-ab/_metadata",
            "../savepoint-ab/_metadata",
            "savepoint-ab/../_metadata",
            "savepoint-../_metadata/x.pack",
            "savepoint-ab/x/state.pack",
            "savepoint-ab/.pack",
            "savepoint-ab/readme",
            "0123456789abcdef0123456789abcdef/_metadata",
            "_metadata",
            "",
        ] {
            check(bad, EntryType::Regular, false);
        }
        for kind in
            [EntryType::Symlink, EntryType::Link, EntryType::XHeader, EntryType::GNULongName]
        {
            check("savepoint-ab/_metadata", kind, false);
        }
        check(&format!("savepoint-{}/_metadata", "a".repeat(300)), EntryType::Regular, false);
        check("elsewhere/", EntryType::Directory, false);
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.tar");
        let archive = Archive::create(&path).expect("a new file");
        for (name, len) in [("savepoint-a/state.pack", 1000_usize), ("savepoint-a/_metadata", 512)]
        {
            archive.create(name, &vec![7; len]).expect("its place is free");
        }
        drop(archive.put("savepoint-a/x.pack").expect("nothing is being written"));
        archive.close().expect("the file can be written");
        let read = Archive::open(&path).expect("it is whole");
        assert_eq!(read.folder().as_deref(), Some("savepoint-a"));
        assert_eq!(read.list("").expect("a list").len(), 2);
        let bytes = read.read("savepoint-a/state.pack", 990, 10).expect("it has them");
        assert_eq!(bytes, [7; 10]);
        assert!(read.read("savepoint-a/state.pack", 990, 11).is_err());
        let names: Vec<_> = tar::Archive::new(File::open(&path).expect("it is there"))
            .entries()
            .expect("it is a tar")
            .map(|entry| entry.expect("a header").size())
            .collect();
        assert_eq!(names, [1000, 512]);
    }
}
