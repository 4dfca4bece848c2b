//! A simulated disk. Every change is pending until the right sync; a write is short, or interrupted
//! first, whenever that is allowed; and one sync may fail, or the disk may be full.
//!
//! A failed sync of a file is modelled as kernels do it: the pages are marked clean, so that a later
//! sync succeeds and says nothing about them. After a failed sync of a directory its names stay
//! pending: file systems don't forget their journal without stopping altogether.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use strandline_snapshot::store::conformance;
use strandline_snapshot::store::files::{FileKind, Files, NewFile, OpenFile, Stat};
use strandline_snapshot::{LocalStore, Lock};

use crate::image::{Change, Image, Inode, Moment, TOP};

/// No write takes more.
const WRITE_BYTES: usize = 3000;

/// An operation that changes something, or makes it durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) what: What,
    pub(crate) path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Create,
    Write,
    SyncFile,
    Link,
    Remove,
    CreateDir,
    RemoveDir,
    SyncDir,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Never,
    /// The n-th sync from now fails, of a file or a directory.
    Sync(usize),
    /// From the n-th operation on that needs space there is none, but for so many bytes.
    Full {
        after: usize,
        bytes: usize,
    },
    /// Syncs of these say that all is well, and do nothing.
    Lying(What),
}

/// A disk. Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    now: Moment,
    next: Inode,
    /// The state before each operation so far, where that is recorded.
    moments: Option<Vec<Moment>>,
    ops: Vec<Op>,
    fault: Fault,
    interrupted: bool,
    locked: BTreeSet<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            now: Moment::default(),
            next: TOP + 1,
            moments: None,
            ops: Vec::new(),
            fault: Fault::Never,
            interrupted: false,
            locked: BTreeSet::new(),
        }
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("ops", &self.ops_count()).finish_non_exhaustive()
    }
}

impl SimDisk {
    /// A disk that holds this, all of it durable.
    pub(crate) fn of_image(image: &Image) -> Self {
        let (live, durable) = (image.clone(), image.clone());
        Self::of_moment(Moment { live, durable, ..Moment::default() })
    }

    /// A disk in this state, after the process that had brought it there has died.
    pub(crate) fn of_moment(now: Moment) -> Self {
        let inodes = |image: &Image| {
            image.files.keys().chain(image.dirs.keys()).copied().max().unwrap_or(TOP)
        };
        let next = inodes(&now.live).max(inodes(&now.durable)) + 1;
        Self { state: Arc::new(Mutex::new(State { now, next, ..State::default() })) }
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.state.lock().fault = fault;
    }

    /// What has not gone wrong yet, or does so all the time.
    pub(crate) fn fault(&self) -> Fault {
        self.state.lock().fault
    }

    pub(crate) fn ops_count(&self) -> usize {
        self.state.lock().ops.len()
    }

    pub(crate) fn ops(&self) -> Vec<Op> {
        self.state.lock().ops.clone()
    }

    /// Records the state before each operation from now on. Before, there must have been none.
    pub(crate) fn record(&self) {
        let mut state = self.state.lock();
        assert!(state.ops.is_empty(), "moments are counted like operations");
        state.moments = Some(Vec::new());
    }

    /// The state before each operation, if that was recorded, and the one now.
    pub(crate) fn moments(&self) -> Vec<Moment> {
        let state = self.state.lock();
        state.moments.iter().flatten().chain([&state.now]).cloned().collect()
    }

    /// All paths that can be seen.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.state.lock().now.live.visible().into_keys().collect()
    }
}

impl State {
    /// Notes an operation before it is done, and lets it fail if it is its turn.
    fn begin(&mut self, what: What, path: &Path) -> io::Result<()> {
        if let Some(moments) = &mut self.moments {
            moments.push(self.now.clone());
        }
        self.ops.push(Op { what, path: path.display().to_string() });
        let sync = matches!(what, What::SyncFile | What::SyncDir);
        let grows = matches!(what, What::Create | What::Link | What::CreateDir | What::Write);
        match &mut self.fault {
            Fault::Sync(0) if sync => {
                self.fault = Fault::Never;
                Err(io::Error::other("input/output error"))
            }
            Fault::Sync(left) if sync => {
                *left -= 1;
                Ok(())
            }
            Fault::Full { after: 0, bytes } if grows && (what != What::Write || *bytes == 0) => {
                Err(ErrorKind::StorageFull.into())
            }
            Fault::Full { after, .. } if grows && *after > 0 => {
                *after -= 1;
                Ok(())
            }
            Fault::Never | Fault::Sync(_) | Fault::Full { .. } | Fault::Lying(_) => Ok(()),
        }
    }

    /// Makes a change; a write that goes on where the last one ended becomes one with it.
    fn change(&mut self, change: Change) {
        self.now.live.apply(&change);
        if let Change::Bytes { file, offset, bytes } = &change
            && let Some(Change::Bytes { file: of, offset: from, bytes: before }) =
                self.now.pending.last_mut()
            && file == of
            && *from + before.len() == *offset
        {
            before.extend_from_slice(bytes);
            return;
        }
        self.now.pending.push(change);
    }

    /// A pending change becomes durable if it is chosen.
    fn settle(&mut self, chosen: impl Fn(&Change) -> bool) {
        let pending = std::mem::take(&mut self.now.pending);
        let (done, pending): (Vec<Change>, Vec<Change>) = pending.into_iter().partition(chosen);
        done.iter().for_each(|change| self.now.durable.apply(change));
        self.now.pending = pending;
    }

    fn names(&self, dir: Inode) -> io::Result<&BTreeMap<String, Inode>> {
        self.now.live.dirs.get(&dir).ok_or_else(|| ErrorKind::NotADirectory.into())
    }

    fn find(&self, path: &Path) -> io::Result<Inode> {
        let mut inode = TOP;
        for part in path.components() {
            let name = part.as_os_str().to_str().expect("paths are text here");
            if name != "/" {
                inode = *self.names(inode)?.get(name).ok_or(ErrorKind::NotFound)?;
            }
        }
        Ok(inode)
    }

    /// The directory of a path, and its name there.
    fn place(&self, path: &Path) -> io::Result<(Inode, String)> {
        let dir = self.find(path.parent().expect("it is below the top"))?;
        let name = path.file_name().and_then(|name| name.to_str()).expect("paths are text here");
        Ok((dir, name.to_owned()))
    }

    fn add(&mut self, path: &Path, inode: Inode) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        if self.names(dir)?.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.change(Change::Name { dir, name, inode: Some(inode) });
        Ok(())
    }

    fn take(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        self.change(Change::Name { dir, name, inode: None });
        Ok(())
    }

    fn new_inode(&mut self) -> Inode {
        self.next += 1;
        self.next - 1
    }

    fn stat(&self, inode: Inode) -> Stat {
        match self.now.live.files.get(&inode) {
            Some(bytes) => Stat { kind: FileKind::File, bytes: bytes.len() as u64 },
            None => Stat { kind: FileKind::Directory, bytes: 0 },
        }
    }
}

impl Files for SimDisk {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let mut state = self.state.lock();
        state.begin(What::Create, path)?;
        let inode = state.new_inode();
        state.add(path, inode)?;
        state.now.live.files.insert(inode, Vec::new());
        state.now.durable.files.insert(inode, Vec::new());
        Ok(Box::new(SimFile { disk: self.clone(), path: path.into(), inode }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        let inode = self.state.lock().find(path)?;
        Ok(Box::new(SimFile { disk: self.clone(), path: path.into(), inode }))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let state = self.state.lock();
        Ok(state.stat(state.find(path)?))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, Stat)>> {
        let state = self.state.lock();
        let names = state.names(state.find(path)?)?;
        Ok(names.iter().map(|(name, inode)| (name.into(), state.stat(*inode))).collect())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(What::Link, to)?;
        let inode = state.find(from)?;
        state.add(to, inode)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(What::Remove, path)?;
        state.find(path)?;
        state.take(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(What::CreateDir, path)?;
        let inode = state.new_inode();
        state.add(path, inode)?;
        state.now.live.dirs.insert(inode, BTreeMap::new());
        state.now.durable.dirs.insert(inode, BTreeMap::new());
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(What::RemoveDir, path)?;
        let dir = state.find(path)?;
        if !state.names(dir)?.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        state.take(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(What::SyncDir, path)?;
        let synced = state.find(path)?;
        if state.fault != Fault::Lying(What::SyncDir) {
            state.settle(|change| matches!(change, Change::Name { dir, .. } if *dir == synced));
        }
        Ok(())
    }

    fn try_lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut state = self.state.lock();
        let name = path.display().to_string();
        if state.locked.contains(&name) {
            return Err(ErrorKind::WouldBlock.into());
        }
        if state.find(path).is_err() {
            state.begin(What::Create, path)?;
            let inode = state.new_inode();
            state.add(path, inode)?;
            state.now.live.files.insert(inode, Vec::new());
            state.now.durable.files.insert(inode, Vec::new());
        }
        state.locked.insert(name.clone());
        Ok(Box::new(SimLock { disk: self.clone(), name }))
    }
}

struct SimFile {
    disk: SimDisk,
    path: Box<Path>,
    inode: Inode,
}

impl io::Write for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state.lock();
        state.interrupted = !state.interrupted;
        if state.interrupted {
            return Err(ErrorKind::Interrupted.into());
        }
        state.begin(What::Write, &self.path)?;
        let mut count = bytes.len().min(WRITE_BYTES);
        if let Fault::Full { after: 0, bytes: left } = &mut state.fault {
            count = count.min(*left);
            *left -= count;
        }
        let offset = state.now.live.files.get(&self.inode).map_or(0, Vec::len);
        let bytes = bytes.iter().take(count).copied().collect();
        state.change(Change::Bytes { file: self.inode, offset, bytes });
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for SimFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let of_this =
            |change: &Change| matches!(change, Change::Bytes { file, .. } if *file == self.inode);
        if let Err(error) = state.begin(What::SyncFile, &self.path) {
            let pending = std::mem::take(&mut state.now.pending);
            let (lost, pending): (Vec<Change>, Vec<Change>) =
                pending.into_iter().partition(of_this);
            state.now.pending = pending;
            state.now.lost.extend(lost);
            return Err(error);
        }
        if state.fault != Fault::Lying(What::SyncFile) {
            state.settle(of_this);
        }
        Ok(())
    }
}

impl OpenFile for SimFile {
    fn stat(&self) -> io::Result<Stat> {
        Ok(self.disk.state.lock().stat(self.inode))
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let state = self.disk.state.lock();
        let file = state.now.live.files.get(&self.inode).ok_or(ErrorKind::IsADirectory)?;
        let offset = usize::try_from(offset).expect("files are small here");
        Ok(file.iter().skip(offset).take(len).copied().collect())
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    name: String,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state.lock().locked.remove(&self.name);
    }
}

/// The disk is one, as far as a store can tell.
#[test]
fn a_store_on_it_keeps_its_contract() {
    let store = LocalStore::with_files("/root", Arc::new(SimDisk::default()));
    conformance::check(&store, "suite").expect("the store works");
}
