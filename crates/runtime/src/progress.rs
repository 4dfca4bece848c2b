//! A note of how far the sources have read, kept beside the checkpoints on a local disk.
//!
//! It exists for one line in the log: how many records a resumed job reads again. It is written
//! often and never synced, so it outlives the process and not the machine; nothing else may
//! depend on it.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use strandline_snapshot::{JobId, Store};

/// The note of one job.
#[derive(Debug)]
pub(crate) struct ProgressNote {
    path: PathBuf,
    file: Option<File>,
}

impl ProgressNote {
    /// `None` for a store that is not a local folder.
    pub(crate) fn new(store: &Arc<dyn Store>, job: JobId) -> Option<Self> {
        let root = store.local_root()?;
        Some(Self { path: root.join(job.to_string()).join("progress"), file: None })
    }

    /// Notes the count of records read since the job's first start. Failing is fine.
    pub(crate) fn write(&mut self, records: u64) {
        if self.file.is_none() {
            let open = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path);
            self.file = open.ok();
        }
        if let Some(file) = &mut self.file {
            // One call in place, always of the same length: a kill leaves the old note or the new.
            drop(
                file.rewind().and_then(|()| file.write_all(format!("{records:020}\n").as_bytes())),
            );
        }
    }

    /// The count noted last.
    pub(crate) fn read(&self) -> Option<u64> {
        std::fs::read_to_string(&self.path).ok()?.trim().parse().ok()
    }
}
