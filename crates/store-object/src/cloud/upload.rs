//! An upload to an object service, in parts, two of them on their way while a third fills.

use std::collections::VecDeque;

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use strandline_snapshot::{Error, ErrorKind, Result, Upload};
use tokio::task::JoinHandle;

use super::{CloudStore, of_part};
use crate::blocking::{late, start, wait, within};
use crate::settle::{self, Expected, Remote, taken};

/// What services take of one object.
const PARTS_MAX: u64 = 10_000;
const IN_FLIGHT_MAX: usize = 2;

pub(super) struct CloudUpload {
    store: CloudStore,
    path: String,
    /// At most one part. It is sent when more comes, so that an object of one part is put as such.
    buffer: Vec<u8>,
    bytes: u64,
    hasher: blake3::Hasher,
    parts: Option<Parts>,
}

/// Parts that have been sent.
struct Parts {
    upload: Box<dyn MultipartUpload>,
    count: u64,
    in_flight: VecDeque<JoinHandle<object_store::Result<()>>>,
}

impl CloudUpload {
    pub(super) fn new(store: CloudStore, path: &str) -> Self {
        Self {
            store,
            path: path.to_owned(),
            buffer: Vec::new(),
            bytes: 0,
            hasher: blake3::Hasher::new(),
            parts: None,
        }
    }

    fn send_part(&mut self) -> Result<()> {
        let part = Bytes::from(std::mem::take(&mut self.buffer));
        let mut parts = match self.parts.take() {
            Some(parts) => parts,
            None => self.begin()?,
        };
        let (store, path) = (self.store.clone(), self.path.clone());
        let sent = wait(async move {
            let sent = parts.send(&store, &path, part).await;
            Ok((parts, sent))
        });
        let (parts, sent) = sent?;
        self.parts = Some(parts);
        sent
    }

    fn begin(&self) -> Result<Parts> {
        let (store, path) = (self.store.clone(), self.path.clone());
        wait(async move {
            let (key, name) = (store.key(&path)?, store.name(&path));
            let work = async {
                let upload = store.service.put_multipart(&key).await;
                upload.map_err(|error| of_part(store.error(&path, "written", error), &name))
            };
            let upload = within(store.options.total_timeout, &name, work).await?;
            Ok(Parts { upload, count: 0, in_flight: VecDeque::new() })
        })
    }

    fn complete(&mut self, mut parts: Parts) -> Result<()> {
        let expected = Expected { bytes: self.bytes, hash: self.hasher.finalize() };
        let (store, path) = (self.store.clone(), self.path.clone());
        wait(async move {
            let completed = parts.complete(&store, &path, expected).await;
            if completed.is_err() {
                parts.abort(&store).await;
            }
            completed
        })
    }
}

impl Upload for CloudUpload {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        let part_bytes = self.store.options.part_bytes;
        while !bytes.is_empty() {
            if self.buffer.len() == part_bytes {
                self.send_part()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(part_bytes - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        if self.parts.is_some() && !self.buffer.is_empty() {
            self.send_part()?;
        }
        if let Some(parts) = self.parts.take() {
            self.complete(parts)?;
            return Ok(self.bytes);
        }
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let (store, path) = (self.store.clone(), self.path.clone());
        wait(async move { settle::create(&store, &path, bytes, store.options).await })?;
        Ok(self.bytes)
    }
}

impl Drop for CloudUpload {
    /// Takes back what was sent, without waiting for it.
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        let store = self.store.clone();
        // Without a runtime nothing was sent.
        drop(start(async move { parts.abort(&store).await }));
    }
}

impl Parts {
    async fn send(&mut self, store: &CloudStore, path: &str, part: Bytes) -> Result<()> {
        if self.count == PARTS_MAX {
            let name = store.name(path);
            let text = format!("{name} has more than {PARTS_MAX} parts: make parts larger");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        while self.in_flight.len() >= IN_FLIGHT_MAX {
            self.wait_for_one(store, path).await?;
        }
        self.count += 1;
        let sending = self.upload.put_part(PutPayload::from(part));
        self.in_flight.push_back(start(sending)?);
        Ok(())
    }

    async fn wait_for_one(&mut self, store: &CloudStore, path: &str) -> Result<()> {
        let Some(mut sending) = self.in_flight.pop_front() else { return Ok(()) };
        let (limit, name) = (store.options.total_timeout, store.name(path));
        let Ok(sent) = tokio::time::timeout(limit, &mut sending).await else {
            sending.abort();
            return Err(late(limit, &name));
        };
        let sent = sent.map_err(object_store::Error::from).flatten();
        sent.map_err(|error| of_part(store.error(path, "written", error), &name))
    }

    /// The services don't complete an upload on condition, so the path is looked at before.
    async fn complete(&mut self, store: &CloudStore, path: &str, expected: Expected) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.wait_for_one(store, path).await?;
        }
        let name = store.name(path);
        match store.head(path).await {
            Ok(_) => return Err(taken(&name)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let limit = store.options.total_timeout;
        let work = async {
            let completed = self.upload.complete().await;
            completed.map(drop).map_err(|error| of_part(store.error(path, "written", error), &name))
        };
        let Err(failure) = within(limit, &name, work).await else { return Ok(()) };
        settle::settle(store, path, expected, failure, store.options).await
    }

    /// A failure leaves parts that nobody sees, and that a rule of the bucket removes.
    async fn abort(&mut self, store: &CloudStore) {
        let limit = store.options.request_timeout;
        for sending in self.in_flight.drain(..) {
            drop(tokio::time::timeout(limit, sending).await);
        }
        drop(tokio::time::timeout(limit, self.upload.abort()).await);
    }
}
