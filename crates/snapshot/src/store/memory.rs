//! A store in memory, for tests and for jobs that need not outlive their process.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::store::{Mapped, Object, Store, Upload, check_path, check_prefix};
use crate::{Error, ErrorKind, Result};

type Objects = Arc<Mutex<BTreeMap<String, Arc<[u8]>>>>;

/// Objects in a map. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    name: String,
    objects: Objects,
}

impl MemoryStore {
    /// The store that everybody in this process gets by this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        static NAMED: OnceLock<Mutex<BTreeMap<String, Objects>>> = OnceLock::new();
        let mut named = NAMED.get_or_init(Mutex::default).lock();
        let objects = Arc::clone(named.entry(name.to_owned()).or_default());
        Self { name: name.to_owned(), objects }
    }

    fn get(&self, path: &str) -> Result<Arc<[u8]>> {
        check_path(path)?;
        let found = self.objects.lock().get(path).cloned();
        found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{} is missing", self.describe(path)))
        })
    }
}

impl Store for MemoryStore {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        check_path(path)?;
        let mut objects = self.objects.lock();
        if objects.contains_key(path) {
            let text = format!("{} exists already", self.describe(path));
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        objects.insert(path.to_owned(), bytes.into());
        Ok(())
    }

    fn put(&self, path: &str) -> Result<Box<dyn Upload>> {
        check_path(path)?;
        Ok(Box::new(Pending { store: self.clone(), path: path.to_owned(), bytes: Vec::new() }))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = self.get(path)?;
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| bytes.get(start..start.checked_add(len)?));
        range.map(<[u8]>::to_vec).ok_or_else(|| {
            let wanted = offset.saturating_add(len as u64);
            let text = format!("it has {} bytes, and {wanted} were expected", bytes.len());
            Error::damaged(&self.describe(path), text)
        })
    }

    fn map(&self, path: &str) -> Result<Option<Mapped>> {
        let bytes = self.get(path)?;
        Ok(if bytes.is_empty() { None } else { Some(bytes.into()) })
    }

    fn size(&self, path: &str) -> Result<u64> {
        Ok(self.get(path)?.len() as u64)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        check_prefix(prefix)?;
        let objects = self.objects.lock();
        let found =
            objects.range(prefix.to_owned()..).take_while(|(path, _)| path.starts_with(prefix));
        Ok(found
            .map(|(path, bytes)| Object { path: path.clone(), bytes: bytes.len() as u64 })
            .collect())
    }

    fn delete(&self, path: &str) -> Result<()> {
        check_path(path)?;
        self.objects.lock().remove(path);
        Ok(())
    }

    fn location(&self) -> String {
        format!("memory:{}", self.name)
    }
}

struct Pending {
    store: MemoryStore,
    path: String,
    bytes: Vec<u8>,
}

impl Upload for Pending {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.store.create(&self.path, &self.bytes)?;
        Ok(self.bytes.len() as u64)
    }
}
