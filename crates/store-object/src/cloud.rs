//! A store over an HTTP object service: S3, Google Cloud Storage, Azure.

mod upload;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use strandline_snapshot::store::check_path;
use strandline_snapshot::{Error, ErrorKind, Object, Result, Store, Upload};

use crate::blocking::{wait, within};
use crate::options::Options;
use crate::settle::{self, Expected, Found, Remote};
use upload::CloudUpload;

/// Objects of a bucket, below a prefix. Clones share the client.
///
/// - A create, and an upload of at most one part, is one conditional put: a path that is taken stays
///   as it is.
/// - A larger upload has no such condition on the services: the path is looked at, then the upload is
///   completed. Whoever makes large objects gives each a name of its own.
/// - A create of the very bytes that are there succeeds: they are taken for its own, whose reply was
///   lost. Whoever must know that nobody else was faster writes something unique.
/// - There are no locks: [`Store::lock`] is `None`.
/// - An upload that a dead process has left is not seen and can't be found through this client; a
///   rule of the bucket's life cycle removes it. [`Store::sweep`] has nothing to do.
#[derive(Clone)]
pub struct CloudStore {
    service: Arc<dyn ObjectStore>,
    /// Scheme and bucket.
    base: Arc<str>,
    /// Empty, or with a slash at its end.
    prefix: Arc<str>,
    options: Options,
}

impl CloudStore {
    /// A store over any client, for credentials that the environment can't say. `base` is how a user
    /// names the bucket, `prefix` a path in it or nothing. The client must have conditional puts
    /// (`PutMode::Create`) and time-outs of its own.
    ///
    /// # Errors
    /// `Invalid`: the prefix can't be a path, or a setting is wrong.
    pub fn new(
        service: Arc<dyn ObjectStore>,
        base: &str,
        prefix: &str,
        options: Options,
    ) -> Result<Self> {
        let options = options.check()?;
        let prefix = prefix.trim_end_matches('/');
        if !prefix.is_empty() {
            check_path(prefix)?;
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { service, base: base.into(), prefix: prefix.into(), options })
    }

    /// The key of an object.
    fn key(&self, path: &str) -> Result<Path> {
        check_path(path)?;
        let key = Path::parse(format!("{}{path}", self.prefix));
        key.map_err(|error| Error::new(ErrorKind::Invalid, format!("{path:?}: {error}")))
    }

    /// Runs a request on this store to its end.
    fn call<T, W, F>(&self, path: &str, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: FnOnce(Self, String) -> F,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        wait(work(self.clone(), path.to_owned()))
    }

    async fn read_range(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.checked_add(len as u64);
        let (Some(end), true) = (end, len > 0) else {
            return self.check_size(path, offset.saturating_add(len as u64)).await.map(|()| vec![]);
        };
        match self.fetch(path, offset..end).await {
            Ok(bytes) if bytes.len() == len => Ok(bytes.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(error),
            // A range that goes beyond the end is refused or cut short, as the service likes.
            other => {
                self.check_size(path, end).await?;
                other?;
                Err(Error::new(ErrorKind::Io, format!("{}: a short reply", self.name(path))))
            }
        }
    }

    async fn fetch(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let key = self.key(path)?;
        let work = async {
            let reply = self.service.get_range(&key, range).await;
            reply.map_err(|error| self.error(path, "read", error))
        };
        within(self.options.total_timeout, &self.name(path), work).await
    }

    /// That an object is there and has so many bytes.
    async fn check_size(&self, path: &str, wanted: u64) -> Result<()> {
        let bytes = self.head(path).await?;
        if bytes >= wanted {
            return Ok(());
        }
        let name = self.name(path);
        let text = format!("{name} is damaged: it has {bytes} bytes, and {wanted} were expected");
        Err(Error::new(ErrorKind::Damaged, text))
    }

    async fn head(&self, path: &str) -> Result<u64> {
        let key = self.key(path)?;
        let work = async {
            let meta = self.service.head(&key).await;
            Ok(meta.map_err(|error| self.error(path, "read", error))?.size)
        };
        within(self.options.total_timeout, &self.name(path), work).await
    }

    async fn find(&self, prefix: &str) -> Result<Vec<Object>> {
        let full = format!("{}{prefix}", self.prefix);
        // Services list folders; what only begins like the prefix is left out here.
        let folder = full.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = Path::parse(folder)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("{prefix:?}: {error}")))?;
        let mut pages = self.service.list(Some(&folder).filter(|folder| !folder.is_root()));
        let mut found = Vec::new();
        let name = self.name(prefix);
        loop {
            let next = async { Ok(pages.next().await) };
            let Some(meta) = within(self.options.total_timeout, &name, next).await? else { break };
            let meta = meta.map_err(|error| self.error(prefix, "listed", error))?;
            let path = meta.location.as_ref().strip_prefix(&*self.prefix);
            if let Some(path) = path.filter(|path| path.starts_with(prefix)) {
                found.push(Object { path: path.to_owned(), bytes: meta.size });
            }
        }
        found.sort();
        Ok(found)
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let key = self.key(path)?;
        let work = async {
            match self.service.delete(&key).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.error(path, "deleted", error)),
            }
        };
        within(self.options.total_timeout, &self.name(path), work).await
    }

    async fn hash(&self, path: &str) -> Result<Expected> {
        let key = self.key(path)?;
        let name = self.name(path);
        let failed = |error| self.error(path, "read", error);
        let reply = self.service.get(&key).await.map_err(failed)?;
        let mut pieces = reply.into_stream();
        let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
        loop {
            let next = async { Ok(pieces.next().await) };
            let Some(piece) = within(self.options.request_timeout, &name, next).await? else {
                return Ok(Expected { bytes, hash: hasher.finalize() });
            };
            let piece = piece.map_err(failed)?;
            bytes += piece.len() as u64;
            hasher.update(&piece);
        }
    }

    async fn compare(&self, path: &str, expected: Expected) -> Result<Found> {
        if self.head(path).await? != expected.bytes {
            return Ok(Found::Other);
        }
        let found = self.hash(path).await?;
        Ok(if found == expected { Found::Ours } else { Found::Other })
    }

    fn error(&self, path: &str, doing: &str, error: object_store::Error) -> Error {
        use object_store::Error as Cause;
        let name = self.name(path);
        let refused =
            matches!(error, Cause::PermissionDenied { .. } | Cause::Unauthenticated { .. });
        let unknown = matches!(error, Cause::NotSupported { .. } | Cause::NotImplemented { .. });
        let taken = matches!(error, Cause::AlreadyExists { .. } | Cause::Precondition { .. });
        let (kind, text) = if matches!(error, Cause::NotFound { .. }) {
            (ErrorKind::NotFound, format!("{name} is missing"))
        } else if taken {
            (ErrorKind::AlreadyExists, format!("{name} exists already"))
        } else if refused {
            (ErrorKind::Invalid, format!("{name} can't be {doing}: access is denied"))
        } else if unknown {
            (ErrorKind::Unsupported, format!("{name} can't be {doing}: the service lacks that"))
        } else {
            (ErrorKind::Io, format!("{name} can't be {doing}"))
        };
        Error::new(kind, text).because(Brief(error))
    }
}

/// What a service or the network has said, in a line. The client's errors repeat their causes, and
/// some of them are pages of XML.
#[derive(Debug)]
struct Brief(object_store::Error);

impl std::error::Error for Brief {}

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0.to_string();
        let mut last: &dyn std::error::Error = &self.0;
        while let Some(cause) = last.source() {
            last = cause;
        }
        f.write_str(&brief(&whole, &last.to_string()))
    }
}

/// From the whole text of an error and that of its last cause.
fn brief(whole: &str, last: &str) -> String {
    let between = |text: &str, start: &str, end: &str| {
        let (_, rest) = text.split_once(start)?;
        rest.split_once(end).map(|(inside, _)| inside.to_owned())
    };
    let line = last.lines().next().unwrap_or_default();
    let line = line.split_once("<?xml").map_or(line, |(before, _)| before);
    let mut text = line.trim_end_matches([' ', ':']).to_owned();
    for tag in ["Code", "Message"] {
        if let Some(said) = between(last, &format!("<{tag}>"), &format!("</{tag}>")) {
            text = format!("{text}: {}", said.lines().next().unwrap_or_default());
        }
    }
    // Whom it was asked: a wrong endpoint is seen at once.
    match between(whole, "://", "/") {
        Some(host) if !host.contains(' ') => format!("{host}: {text}"),
        _ => text,
    }
}

/// Of a request for a part of an object: such a part may be taken or missing, and that says nothing
/// about the object.
fn of_part(error: Error, name: &str) -> Error {
    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) {
        return Error::new(ErrorKind::Io, format!("{name} can't be written")).because(error);
    }
    error
}

impl Remote for CloudStore {
    fn name(&self, path: &str) -> String {
        let slash = if self.prefix.is_empty() && path.is_empty() { "" } else { "/" };
        format!("{}{slash}{}{path}", self.base, self.prefix)
    }

    async fn try_create(&self, path: &str, bytes: Bytes) -> Result<()> {
        let key = self.key(path)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.service.put_opts(&key, PutPayload::from(bytes), options).await;
        put.map(drop).map_err(|error| {
            if matches!(error, object_store::Error::NotFound { .. }) {
                let text = format!("{} can't be written: there is no such bucket", self.name(path));
                return Error::new(ErrorKind::Invalid, text).because(Brief(error));
            }
            self.error(path, "written", error)
        })
    }

    async fn look(&self, path: &str, expected: Expected) -> Result<Found> {
        match self.compare(path, expected).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
            found => found,
        }
    }
}

impl Store for CloudStore {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        check_path(path)?;
        let bytes = Bytes::copy_from_slice(bytes);
        self.call(path, |store, path| async move {
            settle::create(&store, &path, bytes, store.options).await
        })
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        self.key(path)?;
        Ok(Box::new(CloudUpload::new(self.clone(), path)))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        check_path(path)?;
        self.call(
            path,
            move |store, path| async move { store.read_range(&path, offset, len).await },
        )
    }

    fn size(&self, path: &str) -> Result<u64> {
        check_path(path)?;
        self.call(path, |store, path| async move { store.head(&path).await })
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        crate::check_prefix(prefix)?;
        self.call(prefix, |store, prefix| async move { store.find(&prefix).await })
    }

    fn delete(&self, path: &str) -> Result<()> {
        check_path(path)?;
        self.call(path, |store, path| async move { store.remove(&path).await })
    }

    fn location(&self) -> String {
        self.name("").trim_end_matches('/').to_owned()
    }
}

impl fmt::Debug for CloudStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudStore")
            .field("location", &self.location())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(whole: &str, last: &str, expected: &str) {
        assert_eq!(brief(whole, last), expected);
    }

    #[test]
    fn errors_are_brief() {
        let last = "Server returned non-2xx status code: 404 Not Found: <?xml version=\"1.0\"?>\n\
                    <Error><Code>NoSuchBucket</Code><Message>There is none</Message></Error>";
        check(
            &format!("Error performing GET http://127.0.0.1:8433/b?x in 1 ms - {last}"),
            last,
            "127.0.0.1:8433: Server returned non-2xx status code: 404 Not Found: NoSuchBucket: There is none",
        );
        check(
            "Error performing HEAD https://s3.amazonaws.com/b/a in 1 ms, after 4 retries",
            "Connection refused (os error 111)",
            "s3.amazonaws.com: Connection refused (os error 111)",
        );
        check("Generic faulty error: 503 slow down", "503 slow down", "503 slow down");
        check("x", "", "");
    }
}
