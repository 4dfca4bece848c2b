//! `strandline checkpoints import`: a savepoint's folder from a tar file.
//!
//! The folder has a new name, so nothing that is there is touched. Packs are copied first, in pieces
//! of 1 MiB; then all of them are read back from where they are now and hashed; then the manifest is
//! put there. So an import that was broken off is no savepoint. Memory: the manifest, which has at
//! most 256 MiB, the indexes, and one chunk for each run.

use std::sync::Arc;

use strandline::snapshot::{
    Error, ErrorKind, Object, Report, Saved, Snapshot, Store, Upload, savepoint_name,
};

use crate::ImportTarget;
use crate::archive::Archive;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::progress::Progress;
use crate::reading::Reading;
use crate::report::Made;
use crate::savepoint::{self, root};

/// The name of a savepoint's manifest in its folder.
const MANIFEST: &str = "_metadata";

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

pub(crate) fn run(of: &ImportTarget) -> Result<u8> {
    let target = root(&of.to)?;
    let archive = Archive::open(&of.file).map_err(|error| Failure::of_store(&error))?;
    let source = Source::new(archive)?;
    let folder = savepoint_name(source.reading.snapshot.manifest().job_id);
    let copied = source.copy(&target, &folder);
    if copied.is_err() {
        // Nobody can name them; the failure that counts is the first one.
        for pack in &source.packs {
            drop(target.delete(&format!("{folder}/{pack}")));
        }
    }
    let made = Made::new(&source.reading, target.describe(&folder), &copied?);
    savepoint::print(&made, of.json);
    Ok(0)
}

/// A savepoint in an archive.
struct Source {
    store: Arc<dyn Store>,
    folder: String,
    reading: Reading,
    packs: Vec<String>,
}

impl Source {
    fn new(archive: Archive) -> Result<Self> {
        let folder = archive.folder().unwrap_or_default();
        let store: Arc<dyn Store> = Arc::new(archive);
        let unreadable = |error| Failure::of_store(&error);
        let snapshot = Snapshot::open_savepoint(&store, &folder).map_err(unreadable)?;
        let named = snapshot.pack_names().map_err(unreadable)?;
        let objects = store.list(&format!("{folder}/")).map_err(unreadable)?;
        let names = objects.iter().filter_map(|object| object.path.rsplit_once('/'));
        let packs: Vec<String> =
            names.map(|(_, name)| name.to_owned()).filter(|name| name != MANIFEST).collect();
        if let Some(extra) = packs.iter().find(|pack| !named.contains(pack.as_str())) {
            let text = format!(
                "{}/{folder}/{extra} belongs to no savepoint: it is not named in its manifest",
                store.location()
            );
            return Err(Failure::refused(text));
        }
        let name = store.location();
        Ok(Self { store, folder, reading: Reading::of_file(snapshot, name), packs })
    }

    fn copy(&self, target: &Arc<dyn Store>, folder: &str) -> Result<Saved> {
        let failed = |error: Error| Failure::of_store(&error);
        let mut written_bytes = 0;
        for pack in &self.packs {
            written_bytes += self.copy_pack(target, folder, pack).map_err(failed)?;
            interrupt::check()?;
        }
        let path = format!("{}/{MANIFEST}", self.folder);
        let size = self.store.size(&path).map_err(failed)?;
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let manifest = self.store.read(&path, 0, len).map_err(failed)?;
        let path = format!("{folder}/{MANIFEST}");
        let unfinished = Unfinished { packs: Arc::clone(target), path: path.clone(), manifest };
        let unfinished = Arc::new(unfinished);
        let store: Arc<dyn Store> = Arc::clone(&unfinished) as Arc<dyn Store>;
        self.verify(&store, folder)?;
        target.create(&path, &unfinished.manifest).map_err(failed)?;
        let runs = self.reading.snapshot.manifest().sections.iter().flat_map(|of| &of.runs);
        let entries = runs.map(|run| run.entry_count).sum();
        written_bytes += size;
        Ok(Saved { folder: folder.to_owned(), entries, written_bytes })
    }

    fn copy_pack(&self, target: &Arc<dyn Store>, folder: &str, pack: &str) -> Result<u64, Error> {
        let from = format!("{}/{pack}", self.folder);
        let size = self.store.size(&from)?;
        let progress = Progress::new("importing", size);
        let mut upload = target.put(&format!("{folder}/{pack}"))?;
        let mut offset = 0;
        while offset < size && interrupt::go_on().is_continue() {
            let piece = PIECE_BYTES.min(size - offset);
            let len = usize::try_from(piece).unwrap_or(usize::MAX);
            upload.write(&self.store.read(&from, offset, len)?)?;
            progress.add(piece);
            offset += piece;
        }
        upload.finish()
    }

    fn verify(&self, store: &Arc<dyn Store>, folder: &str) -> Result<()> {
        let progress = Progress::new("verifying", self.reading.plain_bytes());
        let opened = Snapshot::open_savepoint(store, folder);
        let report = opened.and_then(|snapshot| {
            snapshot.verify(&mut |bytes| {
                progress.add(bytes);
                interrupt::go_on()
            })
        });
        interrupt::check()?;
        let Report { problems, .. } = report.map_err(|error| Failure::of_store(&error))?;
        let Some(first) = problems.first() else {
            return Ok(());
        };
        let text = format!(
            "{} is damaged, nothing was imported: {}: {}; export it again",
            self.store.location(),
            first.object,
            first.what
        );
        Err(Failure::failed(text))
    }
}

/// Packs in their new folder, with a manifest that isn't there yet.
#[derive(Debug)]
struct Unfinished {
    packs: Arc<dyn Store>,
    path: String,
    manifest: Vec<u8>,
}

type Stored<T> = strandline::snapshot::Result<T>;

impl Unfinished {
    fn read_only<T>(&self) -> Stored<T> {
        let text = format!("{} is only read here", self.packs.location());
        Err(Error::new(ErrorKind::Invalid, text))
    }
}

impl Store for Unfinished {
    fn create(&self, _path: &str, _bytes: &[u8]) -> Stored<()> {
        self.read_only()
    }

    fn put(&self, _path: &str) -> Stored<Box<dyn Upload>> {
        self.read_only()
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Stored<Vec<u8>> {
        if path != self.path {
            return self.packs.read(path, offset, len);
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.manifest.get(start..start.saturating_add(len)).map(<[u8]>::to_vec);
        bytes.ok_or_else(|| Error::new(ErrorKind::Damaged, format!("{path} is too short")))
    }

    fn size(&self, path: &str) -> Stored<u64> {
        if path == self.path { Ok(self.manifest.len() as u64) } else { self.packs.size(path) }
    }

    fn list(&self, prefix: &str) -> Stored<Vec<Object>> {
        self.packs.list(prefix)
    }

    fn delete(&self, _path: &str) -> Stored<()> {
        self.read_only()
    }

    fn location(&self) -> String {
        self.packs.location()
    }

    fn describe(&self, path: &str) -> String {
        self.packs.describe(path)
    }
}
