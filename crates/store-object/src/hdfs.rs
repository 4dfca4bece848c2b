//! A store on HDFS.
//!
//! An object is written under a temporary name in its own folder, synced block by block, closed,
//! and renamed to its name; a rename of HDFS can refuse to replace, and the name node has logged it
//! durably when it answers. Data nodes sync a block only when asked to, and the blocks before the
//! last one are out of a later sync's reach, so each is synced when it is full.

mod draft;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use hdfs_native::client::FileStatus;
use hdfs_native::{Client, ClientBuilder, HdfsError};
use strandline_snapshot::store::check_path;
use strandline_snapshot::{Error, ErrorKind, Object, Result, Store, Upload};

use crate::address::Address;
use crate::blocking::{handle, late, wait, within};
use crate::options::Options;
use crate::settle::{self, Expected, Found, Remote};
use draft::{Draft, HdfsUpload};

/// Names of files that have no object's name yet begin with this.
const TEMPORARY: &str = ".tmp-";

const PAUSE_FIRST: Duration = Duration::from_millis(50);

/// How much is read at once to be hashed.
const PIECE_BYTES: usize = 4 << 20;

/// Objects as files below a folder of HDFS, which is made when the first object is. Clones share the
/// client.
///
/// - A path that is taken stays as it is, whatever the size of the object.
/// - A create of the very bytes that are there succeeds: they are taken for its own, whose reply was
///   lost. Whoever must know that nobody else was faster writes something unique.
/// - There are no locks: [`Store::lock`] is `None`.
/// - [`Store::sweep`] removes the temporary files that dead processes have left.
/// - Folders with erasure coding can't be synced, and are refused by the first write.
#[derive(Clone)]
pub struct HdfsStore {
    client: Client,
    /// Scheme and name node.
    base: Arc<str>,
    /// Absolute, without a slash at its end; empty for the root of the file system.
    root: Arc<str>,
    options: Options,
}

impl HdfsStore {
    pub(crate) fn connect(address: &Address, options: Options) -> Result<Self> {
        let builder = ClientBuilder::new().with_url(&address.base);
        let client = builder.with_io_runtime(handle()?.clone()).build().map_err(|error| {
            let text = format!("{} can't be used", address.base);
            Error::new(ErrorKind::Invalid, text).because(error)
        })?;
        let root =
            if address.prefix.is_empty() { String::new() } else { format!("/{}", address.prefix) };
        Ok(Self { client, base: address.base.as_str().into(), root: root.into(), options })
    }

    fn file(&self, path: &str) -> Result<String> {
        check_path(path)?;
        if path.split('/').any(|part| part.starts_with(TEMPORARY)) {
            let text = format!("{path:?}: names that begin with {TEMPORARY} are temporary ones");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(format!("{}/{path}", self.root))
    }

    fn call<T, W, F>(&self, path: &str, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: FnOnce(Self, String) -> F,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        wait(work(self.clone(), path.to_owned()))
    }

    /// One call of the client, in time.
    async fn ask<T>(
        &self,
        path: &str,
        doing: &str,
        call: impl Future<Output = hdfs_native::Result<T>>,
    ) -> Result<T> {
        let answer = self.in_time(path, call).await?;
        answer.map_err(|error| self.error(path, doing, error))
    }

    async fn in_time<T>(&self, path: &str, call: impl Future<Output = T>) -> Result<T> {
        let limit = self.options.request_timeout;
        let answer = tokio::time::timeout(limit, call).await;
        answer.map_err(|_| late(limit, &self.name(path)))
    }

    /// A call that may be repeated, until it succeeds or the attempts or the time are used up.
    async fn insist<T, F>(&self, path: &str, doing: &str, call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = hdfs_native::Result<T>>,
    {
        let attempts = self.attempt(path, doing, call);
        within(self.options.total_timeout, &self.name(path), attempts).await
    }

    async fn attempt<T, F>(&self, path: &str, doing: &str, mut call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = hdfs_native::Result<T>>,
    {
        let mut pause = PAUSE_FIRST;
        let mut left = self.options.attempts;
        loop {
            left -= 1;
            // The client has made attempts of its own when the time is over.
            let answer = self.in_time(path, call()).await?;
            let answer = answer.map_err(|error| self.error(path, doing, error));
            let failed = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Io);
            if !failed || left == 0 {
                return answer;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    async fn status(&self, path: &str) -> Result<FileStatus> {
        let file = self.file(path)?;
        let status = self.insist(path, "read", || self.client.get_file_info(&file)).await?;
        if status.isdir {
            let text = format!("{} is damaged: it is no file", self.name(path));
            return Err(Error::new(ErrorKind::Damaged, text));
        }
        Ok(status)
    }

    async fn read_range(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        let there = self.status(path).await?.length as u64;
        let wanted = offset.saturating_add(len as u64);
        if there < wanted {
            let name = self.name(path);
            let text =
                format!("{name} is damaged: it has {there} bytes, and {wanted} were expected");
            return Err(Error::new(ErrorKind::Damaged, text));
        }
        let start = usize::try_from(offset);
        let start = start.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        self.fetch(path, start, len).await.map(Vec::from)
    }

    /// A range that the file has.
    async fn fetch(&self, path: &str, start: usize, len: usize) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let file = self.file(path)?;
        let bytes =
            self.insist(path, "read", || read_once(&self.client, &file, start, len)).await?;
        if bytes.len() == len {
            return Ok(bytes);
        }
        Err(Error::new(ErrorKind::Io, format!("{}: a short reply", self.name(path))))
    }

    async fn hash(&self, path: &str, bytes: u64) -> Result<Expected> {
        let mut hasher = blake3::Hasher::new();
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut start = 0;
        while start < length {
            let piece = self.fetch(path, start, PIECE_BYTES.min(length - start)).await?;
            hasher.update(&piece);
            start += piece.len();
        }
        Ok(Expected { bytes, hash: hasher.finalize() })
    }

    /// All files in a folder and below, also temporary ones, with their paths below the root.
    async fn walk(&self, folder: &str) -> Result<Vec<Object>> {
        let mut folders = vec![folder.to_owned()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            let (inner, found): (Vec<_>, Vec<_>) =
                self.entries(&folder).await?.into_iter().partition(|status| status.isdir);
            folders.extend(inner.iter().map(|status| self.below_root(&status.path)));
            files.extend(found.iter().map(|status| Object {
                path: self.below_root(&status.path),
                bytes: status.length as u64,
            }));
        }
        Ok(files)
    }

    fn below_root(&self, full: &str) -> String {
        full.strip_prefix(&*self.root).unwrap_or(full).trim_start_matches('/').to_owned()
    }

    /// A folder that is not there, or no more, has none.
    async fn entries(&self, folder: &str) -> Result<Vec<FileStatus>> {
        let full = format!("{}/{folder}", self.root);
        let full = if full == "/" { "/" } else { full.trim_end_matches('/') };
        let mut pages = self.client.list_status_iter(full, false).into_stream();
        let mut entries = Vec::new();
        loop {
            let next = async { pages.next().await.transpose() };
            match self.ask(folder, "listed", next).await {
                Ok(Some(status)) => entries.push(status),
                Ok(None) => return Ok(entries),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(entries),
                Err(error) => return Err(error),
            }
        }
    }

    async fn find(&self, prefix: &str) -> Result<Vec<Object>> {
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut found = self.walk(folder).await?;
        found.retain(|object| object.path.starts_with(prefix) && !is_temporary(&object.path));
        found.sort();
        Ok(found)
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let file = self.file(path)?;
        self.insist(path, "deleted", || self.client.delete(&file, false)).await?;
        // The folder goes with its last file, but for the root; one that isn't empty stays.
        if let Some((folder, _)) = path.rsplit_once('/') {
            let folder = format!("{}/{folder}", self.root);
            drop(self.ask(path, "deleted", self.client.delete(&folder, false)).await);
        }
        Ok(())
    }

    async fn sweep_temporary(&self, prefix: &str) -> Result<()> {
        let folder = prefix.trim_end_matches('/');
        for object in self.walk(folder).await?.iter().filter(|object| is_temporary(&object.path)) {
            let file = format!("{}/{}", self.root, object.path);
            self.insist(&object.path, "deleted", || self.client.delete(&file, false)).await?;
        }
        Ok(())
    }

    async fn compare(&self, path: &str, expected: Expected) -> Result<Found> {
        if self.status(path).await?.length as u64 != expected.bytes {
            return Ok(Found::Other);
        }
        let found = self.hash(path, expected.bytes).await?;
        Ok(if found == expected { Found::Ours } else { Found::Other })
    }

    fn error(&self, path: &str, doing: &str, error: HdfsError) -> Error {
        let name = self.name(path);
        let (kind, text) = if is_missing(&error) {
            (ErrorKind::NotFound, format!("{name} is missing"))
        } else if matches!(error, HdfsError::AlreadyExists(_)) {
            (ErrorKind::AlreadyExists, format!("{name} exists already"))
        } else if matches!(error, HdfsError::IsADirectoryError(_)) {
            (ErrorKind::Damaged, format!("{name} is damaged: it is no file"))
        } else if is_refusal(&error) {
            (ErrorKind::Invalid, format!("{name} can't be {doing}"))
        } else {
            (ErrorKind::Io, format!("{name} can't be {doing}"))
        };
        Error::new(kind, text).because(first_line(error))
    }
}

/// Without the stack of the server, which says nothing to a user.
fn first_line(error: HdfsError) -> HdfsError {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    if let HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text) = &error {
        return HdfsError::RPCError(class.clone(), first(text));
    }
    if let HdfsError::AlreadyExists(text) | HdfsError::FileNotFound(text) = &error {
        return HdfsError::OperationFailed(first(text));
    }
    error
}

/// The name of the server's exception.
fn exception(error: &HdfsError) -> &str {
    if let HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _) = error {
        return class.rsplit('.').next().unwrap_or_default();
    }
    ""
}

fn is_missing(error: &HdfsError) -> bool {
    matches!(error, HdfsError::FileNotFound(_)) || exception(error) == "FileNotFoundException"
}

/// What no attempt will change.
fn is_refusal(error: &HdfsError) -> bool {
    let refused = matches!(
        error,
        HdfsError::InvalidPath(_)
            | HdfsError::InvalidArgument(_)
            | HdfsError::UnsupportedFeature(_)
            | HdfsError::SASLError(_)
            | HdfsError::NoSASLMechanism
    );
    refused || matches!(exception(error), "AccessControlException" | "InvalidPathException")
}

async fn read_once(
    client: &Client,
    file: &str,
    start: usize,
    len: usize,
) -> hdfs_native::Result<Bytes> {
    let reader = client.read(file).await?;
    // The client panics where a file is shorter.
    if reader.file_length() < start.saturating_add(len) {
        return Err(HdfsError::OperationFailed("the file has become shorter".to_owned()));
    }
    reader.read_range(start, len).await
}

fn is_temporary(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with(TEMPORARY))
}

/// Unique among all names of this process, and by chance among those of all others; where chance
/// fails, the file can't be created.
fn temporary_name() -> String {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let process = PROCESS.get_or_init(|| RandomState::new().hash_one(std::process::id()));
    // Relaxed: all that counts is that no number comes twice.
    format!("{TEMPORARY}{process:016x}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Remote for HdfsStore {
    fn name(&self, path: &str) -> String {
        format!("{}{}/{path}", self.base, self.root)
    }

    async fn try_create(&self, path: &str, bytes: Bytes) -> Result<()> {
        let mut draft = Draft::begin(self, path).await?;
        let written = match draft.write(self, bytes).await {
            Ok(()) => draft.publish(self).await,
            failed => failed,
        };
        if written.is_err() {
            draft.discard(self).await;
        }
        written
    }

    async fn look(&self, path: &str, expected: Expected) -> Result<Found> {
        match self.compare(path, expected).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
            // A folder.
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(Found::Other),
            found => found,
        }
    }
}

impl Store for HdfsStore {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.file(path)?;
        let bytes = Bytes::copy_from_slice(bytes);
        self.call(path, |store, path| async move {
            settle::create(&store, &path, bytes, store.options).await
        })
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        let draft = self.call(path, |store, path| async move { Draft::begin(&store, &path).await });
        Ok(Box::new(HdfsUpload::new(self.clone(), draft?)))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.call(
            path,
            move |store, path| async move { store.read_range(&path, offset, len).await },
        )
    }

    fn size(&self, path: &str) -> Result<u64> {
        self.call(path, |store, path| async move { Ok(store.status(&path).await?.length as u64) })
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        crate::check_prefix(prefix)?;
        self.call(prefix, |store, prefix| async move { store.find(&prefix).await })
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.call(path, |store, path| async move { store.remove(&path).await })
    }

    fn location(&self) -> String {
        format!("{}{}", self.base, self.root)
    }

    fn sweep(&self, prefix: &str) -> Result<()> {
        crate::check_prefix(prefix)?;
        self.call(prefix, |store, prefix| async move { store.sweep_temporary(&prefix).await })
    }
}

impl fmt::Debug for HdfsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HdfsStore")
            .field("location", &self.location())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
