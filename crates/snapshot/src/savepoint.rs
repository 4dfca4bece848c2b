//! Savepoints: a checkpoint written out once more, by itself, to a folder that may be moved.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::block::Compression;
use crate::chunk::Value;
use crate::hash::Blob;
use crate::job::JobId;
use crate::manifest::{Manifest, Section};
use crate::names;
use crate::nonce::Nonce;
use crate::pack::{Contents, PackWriter};
use crate::ranges::KeyRange;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// The name of a savepoint's pack.
const PACK: &str = "state.pack";

/// How a savepoint is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaveOptions {
    /// How its chunks are compressed.
    pub compression: Compression,
    /// When it is made, Unix milliseconds.
    pub now_ms: u64,
}

/// A savepoint that has been made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its folder in the store.
    pub folder: String,
    /// Entries.
    pub entries: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// The name of a new savepoint's folder: `savepoint-<job>-<random>`.
#[must_use]
pub fn savepoint_name(job: JobId) -> String {
    names::savepoint(job, &Nonce::random())
}

impl Snapshot {
    /// Writes all that this checkpoint holds to a folder of a store, where it stands by itself:
    /// merged, without what is deleted, in new packs. It exists when its manifest does; a folder that
    /// has one already is left as it is. `progress` hears of each entry's bytes, and may break off.
    ///
    /// # Errors
    /// `AlreadyExists`; `Subsumed` if this checkpoint has been deleted; `Damaged`; the storage fails,
    /// or `progress` broke off: then what has been written is removed.
    pub fn save(
        &self,
        store: &Arc<dyn Store>,
        folder: &str,
        options: SaveOptions,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Saved> {
        let within = |name: &str| match folder {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        };
        let manifest_path = within(names::MANIFEST);
        if store.size(&manifest_path).is_ok() {
            let text = format!("{} exists already", store.describe(&manifest_path));
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        let pack = within(PACK);
        let written = self.write_pack(store, &pack, options.compression, progress);
        let (sections, mut saved) = written?;
        saved.folder = folder.to_owned();
        let made = self.save_manifest(store, &manifest_path, sections, &saved, options.now_ms);
        match made {
            Ok(manifest_bytes) => {
                saved.written_bytes += manifest_bytes;
                Ok(saved)
            }
            Err(error) => {
                // Nobody can name the pack; the error that counts is the first one.
                store.delete(&pack).ok();
                Err(error)
            }
        }
    }

    fn write_pack(
        &self,
        store: &Arc<dyn Store>,
        path: &str,
        compression: Compression,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(Vec<Section>, Saved)> {
        let nothing_known = Box::new(|_: &str| Arc::default());
        let mut writer =
            PackWriter::new(Arc::clone(store), path.to_owned(), compression, nothing_known);
        let mut entries = 0;
        for section in self.all_sections() {
            entries += self.write_section(&mut writer, section, progress)?;
        }
        let written = writer.finish()?;
        let sections = written.sections.into_iter().map(|section| Section {
            name: section.name,
            runs: section.runs.into_iter().map(|live| live.run).collect(),
        });
        let saved = Saved { folder: String::new(), entries, written_bytes: written.written_bytes };
        Ok((sections.collect(), saved))
    }

    /// The number of entries.
    fn write_section(
        &self,
        writer: &mut PackWriter,
        section: &Section,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let metadata = section.runs.last().map_or_else(Vec::new, |run| run.metadata().to_vec());
        let mut run = writer.section(&section.name, Contents::All, metadata)?;
        let (mut entries, mut failed) = (0, None);
        self.visit_values(&section.name, &KeyRange::all(), &mut |key, value| {
            let Value::Put(value) = value else {
                return ControlFlow::Continue(());
            };
            entries += 1;
            let pushed = run.push(key, value).and_then(|()| {
                match progress((key.len() + value.len()) as u64) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(()) => Err(Error::new(ErrorKind::Io, "it was broken off")),
                }
            });
            match pushed {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        run.finish()?;
        Ok(entries)
    }

    fn save_manifest(
        &self,
        store: &Arc<dyn Store>,
        path: &str,
        sections: Vec<Section>,
        saved: &Saved,
        now_ms: u64,
    ) -> Result<u64> {
        let of = self.manifest();
        let runs = sections.iter().flat_map(|section| &section.runs);
        let manifest = Manifest {
            job_id: of.job_id,
            checkpoint: of.checkpoint,
            token: of.token,
            nonce: Nonce::random(),
            created_ms: now_ms,
            full_bytes: runs.map(|run| run.full_bytes).sum(),
            written_bytes: saved.written_bytes,
            sections,
            metadata: Blob(of.metadata().to_vec()),
        };
        let bytes = manifest.encode()?;
        crate::fence::create_own(store, path, &bytes)?;
        Ok(bytes.len() as u64)
    }
}
