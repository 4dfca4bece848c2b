//! Where the bytes live: a small contract that a folder, a memory map and an object store can all
//! keep.

pub mod conformance;
pub mod files;
pub mod local;
pub mod mapped;
pub mod memory;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

pub use local::LocalStore;
pub use mapped::Mapped;
pub use memory::MemoryStore;

use crate::{Error, ErrorKind, Result};

/// An object: its path and its size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Parts joined by `/`, below the root of the store.
    pub path: String,
    /// Size.
    pub bytes: u64,
}

/// Holds objects: bytes under a path, written once, never changed.
///
/// # What an implementation promises
/// - **Durable**: when [`create`](Self::create) or [`Upload::finish`] has returned, the object is
///   there after a power cut, name and all.
/// - **Whole or not at all**: an object is never seen with a part of its bytes.
/// - **Never replaced**: a path that is taken stays as it is; of any number of concurrent creates
///   of one path exactly one succeeds.
/// - **Consistent**: a list after a create, a finish or a delete shows it.
/// - **Paths**: one or more parts joined by `/`; a part is not empty, not `.` or `..`, and has no
///   control character and no `\`. Anything else is an error of kind `Invalid`.
///
/// [`conformance::check`] tries an implementation against all of these but the first.
pub trait Store: Send + Sync + fmt::Debug {
    /// Makes a new object of these bytes, durable when it returns.
    ///
    /// # Errors
    /// `AlreadyExists` if the path is taken, by whatever bytes.
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()>;

    /// Begins a new object whose bytes come bit by bit. Memory is bounded.
    ///
    /// # Errors
    /// The storage fails.
    fn put(&self, path: &str) -> Result<Box<dyn Upload>>;

    /// Exactly `len` bytes from `offset` on.
    ///
    /// # Errors
    /// `NotFound`; `Damaged` if the object is shorter.
    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>>;

    /// A whole object as memory, for a process that owns the store's files: see [`mapped`] for
    /// what happens to one whose file somebody else cuts short. `None` where the store has no such
    /// thing, and for an object without bytes: then [`read`](Self::read) is the way.
    ///
    /// # Errors
    /// `NotFound`; `Damaged` if it is no file.
    fn map(&self, path: &str) -> Result<Option<Mapped>> {
        check_path(path)?;
        Ok(None)
    }

    /// The size of an object.
    ///
    /// # Errors
    /// `NotFound`.
    fn size(&self, path: &str) -> Result<u64>;

    /// All objects whose path begins with `prefix`, ascending.
    ///
    /// # Errors
    /// The storage fails.
    fn list(&self, prefix: &str) -> Result<Vec<Object>>;

    /// Deletes an object. One that isn't there is fine.
    ///
    /// # Errors
    /// The storage fails.
    fn delete(&self, path: &str) -> Result<()>;

    /// The store as a user would name it.
    fn location(&self) -> String;

    /// An object as a user would look for it.
    fn describe(&self, path: &str) -> String {
        format!("{}/{path}", self.location())
    }

    /// The folder behind a store that is one.
    fn local_root(&self) -> Option<PathBuf> {
        None
    }

    /// Holds a lock until it is dropped or the process is gone, where the storage has such locks.
    /// Without them the fence alone tells owners apart.
    ///
    /// # Errors
    /// `Held` if somebody else has it.
    fn lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        check_path(path)?;
        Ok(None)
    }

    /// Removes what unfinished uploads under this prefix have left. For the owner of the prefix.
    ///
    /// # Errors
    /// The storage fails.
    fn sweep(&self, prefix: &str) -> Result<()> {
        check_prefix(prefix)
    }
}

/// A lock that is held. Dropping it lets go.
pub trait Lock: Send + Sync + fmt::Debug {}

/// An object in the making. Dropped unfinished, it never was.
pub trait Upload: Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// The storage fails; the object never is.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes the object durable under its path, and says its size.
    ///
    /// # Errors
    /// `AlreadyExists` if the path is taken; the storage fails.
    fn finish(self: Box<Self>) -> Result<u64>;
}

/// Opens the store that a URI of some scheme names.
pub type OpenStore = fn(&str) -> Result<Arc<dyn Store>>;

/// Makes [`open_store`] know `scheme://…`, in this process, from now on. The last one to register a
/// scheme opens it; `file` and `memory` stay what they are.
pub fn register_scheme(scheme: &'static str, open: OpenStore) {
    schemes().lock().insert(scheme, open);
}

fn schemes() -> &'static Mutex<BTreeMap<&'static str, OpenStore>> {
    static SCHEMES: OnceLock<Mutex<BTreeMap<&'static str, OpenStore>>> = OnceLock::new();
    SCHEMES.get_or_init(Mutex::default)
}

/// Opens the store that a URI names: a path, `file:///…`, `memory:name` (shared by all who open
/// that name in this process), or a scheme that was [registered](register_scheme). Paths are taken
/// as they are: `%20` is three characters.
///
/// # Errors
/// `Unsupported` for other schemes.
pub fn open_store(uri: &str) -> Result<Arc<dyn Store>> {
    if let Some(path) = uri.strip_prefix("file://") {
        if !path.starts_with('/') {
            let text = format!("a file URI has three slashes and an absolute path: {uri:?}");
            return Err(Error::invalid(text));
        }
        return Ok(Arc::new(LocalStore::new(path)));
    }
    if uri.starts_with("file:") {
        let text = format!("a file URI has three slashes and an absolute path: {uri:?}");
        return Err(Error::invalid(text));
    }
    if let Some(name) = uri.strip_prefix("memory:") {
        return Ok(Arc::new(MemoryStore::named(name)));
    }
    if let Some((scheme, _)) = uri.split_once("://") {
        let registered = schemes().lock().get(scheme).copied();
        return registered.map_or_else(|| Err(unknown(scheme)), |open| open(uri));
    }
    if uri.is_empty() {
        return Err(Error::invalid("the storage has no name"));
    }
    Ok(Arc::new(LocalStore::new(uri)))
}

/// Schemes that a crate beside this one opens.
const REMOTE: [&str; 7] = ["s3", "s3a", "gs", "az", "abfs", "abfss", "hdfs"];

fn unknown(scheme: &str) -> Error {
    let text = if REMOTE.contains(&scheme) {
        format!(
            "storage {scheme}:// needs the crate strandline-store-object (feature object-stores of \
             strandline) and a call of its register() at the start of the program"
        )
    } else {
        format!(
            "storage {scheme}:// is not known to this build: use a folder, file:///…, or memory:name"
        )
    };
    Error::new(ErrorKind::Unsupported, text)
}

/// Whether a path can be an object's.
///
/// # Errors
/// `Invalid`, with the reason.
pub fn check_path(path: &str) -> Result<()> {
    let part_fits = |part: &str| {
        !matches!(part, "" | "." | "..") && !part.contains(|c: char| c.is_control() || c == '\\')
    };
    if path.split('/').all(part_fits) {
        return Ok(());
    }
    Err(Error::invalid(format!("{path:?} can't be the path of an object")))
}

/// Whether a list may begin with this: nothing, or a path that may end in the middle of a part.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    let trimmed = prefix.strip_suffix('/').unwrap_or(prefix);
    if trimmed.is_empty() { Ok(()) } else { check_path(trimmed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        for good in ["a", "a/b", "a b/%20/ü", "chk-1/_metadata"] {
            assert!(check_path(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a//b", "a/", "..", "a/../b", "./a", "a\0b", "a\nb", "a\\b"] {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn uris() {
        let location = |uri| open_store(uri).map(|store| store.location()).ok();
        assert_eq!(location("file:///a/b c").as_deref(), Some("/a/b c"));
        assert_eq!(location("a%20b").as_deref(), Some("a%20b"));
        assert_eq!(location("memory:x").as_deref(), Some("memory:x"));
        assert_eq!(location("file://a"), None);
        assert_eq!(location("file:a"), None);
        assert_eq!(location(""), None);
        let error = open_store("gopher://x").expect_err("there is no such storage");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("gopher"));
        let error = open_store("s3://bucket").expect_err("it is in another crate");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("strandline-store-object"), "{error}");
    }

    #[test]
    fn a_scheme_can_be_registered_more_than_once() {
        let open: OpenStore = |uri| Ok(Arc::new(MemoryStore::named(uri)));
        register_scheme("registered", open);
        register_scheme("registered", open);
        let store = open_store("registered://x/y").expect("the scheme is known");
        assert_eq!(store.location(), "memory:registered://x/y");
    }
}
