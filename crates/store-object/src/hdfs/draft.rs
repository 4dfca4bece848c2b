//! A file of HDFS that has no object's name yet, and the upload that fills one.

use bytes::Bytes;
use hdfs_native::WriteOptions;
use hdfs_native::file::FileWriter;
use strandline_snapshot::{Error, ErrorKind, Result, Upload};

use super::{HdfsStore, temporary_name};
use crate::blocking::{start, wait};
use crate::settle::{self, Expected, Remote};

/// Set for each file, so that it is known where its blocks end.
const BLOCK_BYTES: usize = 128 << 20;
/// How much an upload gathers before it is sent, so that one request has little to carry.
const BUFFER_BYTES: usize = 1 << 20;

pub(super) struct Draft {
    /// Of the object.
    path: String,
    temporary: String,
    writer: FileWriter,
    /// Room in the block that is being written.
    room: usize,
}

impl Draft {
    pub(super) async fn begin(store: &HdfsStore, path: &str) -> Result<Self> {
        let file = store.file(path)?;
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let temporary = format!("{folder}/{}", temporary_name());
        let options = WriteOptions::default().block_size(BLOCK_BYTES as u64).create_parent(true);
        let writer = ask(store, path, "written", store.client.create(&temporary, options)).await?;
        Ok(Self { path: path.to_owned(), temporary, writer, room: BLOCK_BYTES })
    }

    pub(super) async fn write(&mut self, store: &HdfsStore, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let now = bytes.split_to(bytes.len().min(self.room).min(BUFFER_BYTES));
            self.room -= now.len();
            ask(store, &self.path, "written", self.writer.write_bytes(now)).await?;
            if self.room == 0 {
                ask(store, &self.path, "synced", self.writer.hsync()).await?;
                self.room = BLOCK_BYTES;
            }
        }
        Ok(())
    }

    /// Gives it its object's name, unless that is taken.
    pub(super) async fn publish(&mut self, store: &HdfsStore) -> Result<()> {
        let path = &self.path;
        ask(store, path, "synced", self.writer.hsync()).await?;
        ask(store, path, "closed", self.writer.close()).await?;
        let file = store.file(path)?;
        let renamed = store.client.rename(&self.temporary, &file, false);
        match store.ask(path, "published", renamed).await {
            // The temporary file is what is missing: an earlier reply may have been lost.
            Err(error) if error.kind() == ErrorKind::NotFound => Err(of_draft(store, path, error)),
            renamed => renamed,
        }
    }

    /// Removes it, and says whether it was there: then it was not published, and never will be, as a
    /// rename that is still on its way has nothing to rename. What can't be removed here is swept by
    /// the next owner.
    pub(super) async fn discard(&mut self, store: &HdfsStore) -> bool {
        let deleted = store.client.delete(&self.temporary, false);
        store.ask(&self.path, "removed", deleted).await.unwrap_or(false)
    }
}

/// A call that is about the temporary file.
async fn ask<T>(
    store: &HdfsStore,
    path: &str,
    doing: &str,
    call: impl Future<Output = hdfs_native::Result<T>>,
) -> Result<T> {
    store.ask(path, doing, call).await.map_err(|error| of_draft(store, path, error))
}

/// The temporary file may be taken or missing, and that says nothing about the object.
fn of_draft(store: &HdfsStore, path: &str, error: Error) -> Error {
    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) {
        let text = format!("{} can't be written", store.name(path));
        return Error::new(ErrorKind::Io, text).because(error);
    }
    error
}

pub(super) struct HdfsUpload {
    store: HdfsStore,
    /// None once it is published or has failed.
    draft: Option<Draft>,
    buffer: Vec<u8>,
    bytes: u64,
    hasher: blake3::Hasher,
}

impl HdfsUpload {
    pub(super) fn new(store: HdfsStore, draft: Draft) -> Self {
        Self {
            store,
            draft: Some(draft),
            buffer: Vec::new(),
            bytes: 0,
            hasher: blake3::Hasher::new(),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let mut draft = self.draft.take().ok_or_else(failed_before)?;
        let store = self.store.clone();
        let draft = wait(async move {
            let written = draft.write(&store, bytes).await;
            if written.is_err() {
                draft.discard(&store).await;
            }
            written.map(|()| draft)
        });
        self.draft = Some(draft?);
        Ok(())
    }
}

fn failed_before() -> Error {
    Error::new(ErrorKind::Io, "the upload has failed before")
}

impl Upload for HdfsUpload {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.buffer.len() == BUFFER_BYTES {
                self.flush()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(BUFFER_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.flush()?;
        let mut draft = self.draft.take().ok_or_else(failed_before)?;
        let expected = Expected { bytes: self.bytes, hash: self.hasher.finalize() };
        let store = self.store.clone();
        wait(async move {
            let Err(failure) = draft.publish(&store).await else { return Ok(()) };
            if draft.discard(&store).await {
                return Err(failure);
            }
            settle::settle(&store, &draft.path, expected, failure, store.options).await
        })?;
        Ok(self.bytes)
    }
}

impl Drop for HdfsUpload {
    /// Removes the temporary file, without waiting for it.
    fn drop(&mut self) {
        let Some(mut draft) = self.draft.take() else { return };
        let store = self.store.clone();
        drop(start(async move { draft.discard(&store).await }));
    }
}
