//! Checkpoints on S3, Google Cloud Storage, Azure and HDFS.
//!
//! # Idea
//!
//! The snapshot crate asks little of storage: create an object if its name is free, stream one,
//! read a range, list, delete. This crate keeps that contract on services that are far away, where a
//! reply may be lost after the write was done. An HTTP service gets one conditional put; HDFS gets a
//! temporary file, synced, and one rename that never replaces. Whenever the outcome of such a write
//! is not certain, what lies at the path is read back and compared with what was to be written: the
//! same bytes mean that the write went through. So callers put something unique into bytes that
//! nobody else may have written.
//!
//! ```text
//!  snapshot ──► Store (blocking)
//!                 ├── CloudStore ──► object_store ──► S3, GCS, Azure    put if absent
//!                 └── HdfsStore  ──► hdfs-native  ──► HDFS              temporary + rename
//!                          │
//!                 write ── lost? ──► read back ──► ours: done │ other: taken │ nothing: again
//! ```
//!
//! Calls block; behind them is one async runtime of two threads for the process, started by the
//! first call.
//!
//! # Costs
//!
//! A create is one request, or five calls to the name node on HDFS. An upload takes memory of three
//! parts (24 MiB unless set otherwise), and hashes its bytes once more to know its own again. Each
//! call ends within [`Options::total_timeout`] and one [`Options::request_timeout`], but for a list
//! and a read-back, which may take that long for each page.
//!
//! # A program
//!
//! ```
//! use std::sync::Arc;
//! use object_store::memory::InMemory;
//! use strandline_snapshot::Store;
//! use strandline_store_object::{CloudStore, Options};
//!
//! // What `open("s3://bucket/checkpoints")` gives, over a service that needs no account.
//! let service = Arc::new(InMemory::new());
//! let store = CloudStore::new(service, "mem://bucket", "checkpoints", Options::default())?;
//! store.create("job/chk-1", b"manifest")?;
//! assert_eq!(store.read("job/chk-1", 0, 4)?, b"mani");
//! assert_eq!(store.describe("job/chk-1"), "mem://bucket/checkpoints/job/chk-1");
//! assert!(store.create("job/chk-1", b"another").is_err());
//! # Ok::<(), strandline_snapshot::Error>(())
//! ```
//!
//! Features: `s3` (default), `gcs`, `azure`, `hdfs`; each adds a kind of storage and changes nothing
//! else. URIs, variables and limits are in `docs/storage.md`. MSRV: 1.89.

mod address;
mod blocking;
mod cloud;
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
mod connect;
#[cfg(feature = "hdfs")]
mod hdfs;
mod options;
mod settle;

use std::sync::Arc;

use strandline_snapshot::store::{check_path, register_scheme};
use strandline_snapshot::{Result, Store};

use address::{Address, SCHEMES, Service};

pub use cloud::CloudStore;
#[cfg(feature = "hdfs")]
pub use hdfs::HdfsStore;
pub use options::Options;

/// Opens the store that a URI names, with the usual settings: `s3://bucket/prefix`,
/// `gs://bucket/prefix`, `az://container/prefix`, `abfss://container@account…/prefix`,
/// `hdfs://host:port/path`. Credentials and endpoints come from the environment, as the tools of
/// each service read them. Nothing is asked of the service yet.
///
/// # Errors
/// `Invalid` for a wrong URI or setting, `Unsupported` for a service that this build lacks.
pub fn open(uri: &str) -> Result<Arc<dyn Store>> {
    open_with(uri, Options::default())
}

/// The same with other settings.
///
/// # Errors
/// As [`open`].
pub fn open_with(uri: &str, options: Options) -> Result<Arc<dyn Store>> {
    options.check()?;
    let address = Address::parse(uri)?;
    match address.service {
        #[cfg(feature = "s3")]
        Service::S3 => connect::s3(&address, options),
        #[cfg(feature = "gcs")]
        Service::Gcs => connect::gcs(&address, options),
        #[cfg(feature = "azure")]
        Service::Azure => connect::azure(&address, options),
        #[cfg(feature = "hdfs")]
        Service::Hdfs => Ok(Arc::new(HdfsStore::connect(&address, options)?)),
        #[cfg(not(all(feature = "s3", feature = "gcs", feature = "azure", feature = "hdfs")))]
        other => Err(missing(uri, other)),
    }
}

/// Makes [`strandline_snapshot::open_store`] know the schemes of this crate, for this process. It
/// may be called any number of times.
pub fn register() {
    for (scheme, _) in SCHEMES {
        register_scheme(scheme, open);
    }
}

/// Whether a list may begin with this: nothing, or a path that may end in the middle of a part.
fn check_prefix(prefix: &str) -> Result<()> {
    let trimmed = prefix.strip_suffix('/').unwrap_or(prefix);
    if trimmed.is_empty() { Ok(()) } else { check_path(trimmed) }
}

#[cfg(not(all(feature = "s3", feature = "gcs", feature = "azure", feature = "hdfs")))]
fn missing(uri: &str, service: Service) -> strandline_snapshot::Error {
    use strandline_snapshot::{Error, ErrorKind};

    let feature = service.feature();
    let text = format!("{uri}: this build lacks the feature {feature} of strandline-store-object");
    Error::new(ErrorKind::Unsupported, text)
}
