//! An object service in memory that loses replies, answers wrongly and hangs, as it is told.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Fine,
    /// It is not done, and an error is the answer.
    Fails,
    /// It is done, and an error is the answer.
    LosesReply,
    /// It is not done, and the answer is that the path is taken.
    Conflicts,
    /// It is done, tried again on the way, and the answer is that the path is taken.
    RepeatsItself,
    /// It is done, and there is no answer.
    Hangs,
}

/// The service. Clones share objects and fates.
#[derive(Clone, Debug)]
pub(crate) struct Faulty {
    pub(crate) inner: Arc<InMemory>,
    fates: Arc<Fates>,
}

#[derive(Debug, Default)]
struct Fates {
    /// For writes, completions and deletes, in their order; then all is fine.
    writes: Mutex<VecDeque<Fate>>,
    /// For reads and lists: only `Fine`, `Fails` and `Hangs` make a difference.
    reads: Mutex<VecDeque<Fate>>,
    aborted: AtomicUsize,
}

impl Faulty {
    pub(crate) fn new(writes: &[Fate], reads: &[Fate]) -> Self {
        let faulty = Self { inner: Arc::new(InMemory::new()), fates: Arc::default() };
        faulty.destine(writes, reads);
        faulty
    }

    /// What will become of the next requests.
    pub(crate) fn destine(&self, writes: &[Fate], reads: &[Fate]) {
        *self.fates.writes.lock().expect("no panic") = writes.to_vec().into();
        *self.fates.reads.lock().expect("no panic") = reads.to_vec().into();
    }

    /// How many uploads were taken back.
    pub(crate) fn aborted(&self) -> usize {
        self.fates.aborted.load(Ordering::Relaxed)
    }

    async fn before_read(&self) -> Result<()> {
        match next(&self.fates.reads) {
            Fate::Fine => Ok(()),
            Fate::Hangs => std::future::pending().await,
            Fate::Fails | Fate::LosesReply | Fate::Conflicts | Fate::RepeatsItself => Err(broken()),
        }
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a faulty service")
    }
}

fn next(fates: &Mutex<VecDeque<Fate>>) -> Fate {
    fates.lock().expect("no panic").pop_front().unwrap_or(Fate::Fine)
}

fn broken() -> Error {
    Error::Generic { store: "faulty", source: "503 slow down".into() }
}

fn taken() -> Error {
    Error::AlreadyExists { path: "a path".to_owned(), source: "409 or 412".into() }
}

async fn first<T>(mut replies: BoxStream<'static, Result<T>>) -> Result<T> {
    replies.next().await.unwrap_or_else(|| Err(broken()))
}

async fn meet<T>(fate: Fate, work: impl Future<Output = Result<T>>) -> Result<T> {
    match fate {
        Fate::Fine => work.await,
        Fate::Fails => Err(broken()),
        Fate::Conflicts => Err(taken()),
        Fate::LosesReply => work.await.and_then(|_| Err(broken())),
        Fate::RepeatsItself => work.await.and_then(|_| Err(taken())),
        Fate::Hangs => {
            drop(work.await);
            std::future::pending().await
        }
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        at: &Path,
        bytes: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        meet(next(&self.fates.writes), self.inner.put_opts(at, bytes, options)).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(at, options).await?;
        Ok(Box::new(FaultyUpload { inner, fates: Arc::clone(&self.fates) }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.before_read().await?;
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (inner, fates) = (Arc::clone(&self.inner), Arc::clone(&self.fates));
        let delete = move |path: Result<Path>| {
            let one = futures_util::stream::once(std::future::ready(path)).boxed();
            meet(next(&fates.writes), first(inner.delete_stream(one)))
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, listed) = (self.clone(), self.inner.list(prefix));
        // One fate for the list, met at its end: what was listed before is of no use.
        let end = futures_util::stream::once(async move { this.before_read().await });
        listed.chain(end.filter_map(async |ended| ended.err().map(Err))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    fates: Arc<Fates>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, bytes: PutPayload) -> UploadPart {
        let (fate, sending) = (next(&self.fates.writes), self.inner.put_part(bytes));
        Box::pin(meet(fate, sending))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        meet(next(&self.fates.writes), self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.fates.aborted.fetch_add(1, Ordering::Relaxed);
        self.inner.abort().await
    }
}
