//! Which jobs and which checkpoints there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::fence::Fences;
use crate::job::JobId;
use crate::manifest::{frame, read_framed};
use crate::names;
use crate::snapshot::Snapshot;
use crate::store::{Store, open_store};
use crate::{Error, ErrorKind, Result};

/// A completed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub checkpoint: u64,
    /// The fence token of its owner; 0 if its manifest is damaged.
    pub token: u64,
    /// When it was published, Unix milliseconds; 0 if its manifest is damaged.
    pub created_ms: u64,
    /// Bytes that a restore reads.
    pub full_bytes: u64,
    /// Bytes that it added to storage, its manifest left out.
    pub written_bytes: u64,
    /// Why its manifest can't be read. It is a completed checkpoint all the same.
    pub damaged: Option<String>,
}

/// A job that has something under a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEntry {
    /// Its id.
    pub id: JobId,
    /// Its name; empty if the record of it can't be read.
    pub name: String,
}

/// What a URI stands for.
#[derive(Clone, Debug)]
pub struct Location {
    /// The store at the root.
    pub store: Arc<dyn Store>,
    /// The job whose folder the URI named.
    pub job: Option<JobId>,
    /// All jobs under the root.
    pub jobs: Vec<JobEntry>,
}

impl Location {
    /// The job that was named, or the only one there is.
    ///
    /// # Errors
    /// `NotFound` if there is none, `Ambiguous` with a list if there are several.
    pub fn one_job(&self) -> Result<&JobEntry> {
        let mut found = self.jobs.iter().filter(|entry| self.job.is_none_or(|job| job == entry.id));
        let first = found.next().ok_or_else(|| {
            let text = format!("there is no job at {}", self.store.location());
            Error::new(ErrorKind::NotFound, text)
        })?;
        if found.next().is_none() {
            return Ok(first);
        }
        let names: Vec<String> =
            self.jobs.iter().map(|entry| format!("{} ({})", entry.id, entry.name)).collect();
        let text = format!(
            "there are several jobs at {}; name the folder of one: {}",
            self.store.location(),
            names.join(", ")
        );
        Err(Error::new(ErrorKind::Ambiguous, text))
    }
}

/// What a URI stands for: a root, or the folder of one job under it.
///
/// # Errors
/// As [`open_store`]; the storage fails.
pub fn resolve(uri: &str) -> Result<Location> {
    let (root, job) = split_job(uri)?;
    let store = open_store(root)?;
    let jobs = list_jobs(&store)?;
    Ok(Location { store, job, jobs })
}

/// Parts `root/<job id>` into root and id; a URI whose last part is no id is a root.
///
/// # Errors
/// `Invalid` if it leads into a job's folder.
pub fn split_job(uri: &str) -> Result<(&str, Option<JobId>)> {
    let (root, job) = parts(uri);
    let inside = root.split('/').any(|part| part.parse::<JobId>().is_ok());
    if inside {
        let text =
            format!("{uri:?} is inside a job's folder: name that folder, or the root above it");
        return Err(Error::invalid(text));
    }
    Ok((root, job))
}

fn parts(uri: &str) -> (&str, Option<JobId>) {
    let trimmed = uri.trim_end_matches('/');
    if let Ok(id) = trimmed.parse() {
        return (".", Some(id));
    }
    let parts = trimmed.rsplit_once('/');
    match parts.and_then(|(root, last)| Some((root, last.parse().ok()?))) {
        Some((root, id)) => (if root.is_empty() { "/" } else { root }, Some(id)),
        None => (uri, None),
    }
}

/// All jobs under a root.
///
/// # Errors
/// The storage fails.
pub fn list_jobs(store: &Arc<dyn Store>) -> Result<Vec<JobEntry>> {
    let objects = store.list("")?;
    let folders = objects.iter().filter_map(|object| object.path.split_once('/')?.0.parse().ok());
    let ids: BTreeSet<JobId> = folders.collect();
    let name = |id| JobRecord::read(store, id).map_or(String::new(), |record| record.name);
    Ok(ids.into_iter().map(|id| JobEntry { id, name: name(id) }).collect())
}

/// The name of a job that has something under a root; `None` if there is no record of it.
///
/// # Errors
/// The record is damaged; the storage fails.
pub fn job_name(store: &Arc<dyn Store>, id: JobId) -> Result<Option<String>> {
    match JobRecord::read(store, id) {
        Ok(record) => Ok(Some(record.name)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The completed checkpoints of a job that count, ascending. Reads nothing but manifests and
/// fences, so it may be called beside a running job.
///
/// # Errors
/// The storage fails, or a fence is damaged.
pub fn history(store: &Arc<dyn Store>, job: JobId) -> Result<Vec<Listed>> {
    let mut all = all_checkpoints(store, job)?;
    let fences = Fences::read(store, job)?;
    all.retain(|listed| counts(&fences, listed));
    Ok(all)
}

/// Whether the history of a job that counts began with this savepoint: then its checkpoints go on
/// from there.
///
/// # Errors
/// The storage fails, or a record is damaged.
pub fn has_taken_up(store: &Arc<dyn Store>, job: JobId, savepoint: &str) -> Result<bool> {
    Ok(Fences::read(store, job)?.began_with(savepoint))
}

/// The savepoint that the last owner started from, if it did. While no checkpoint counts, the job has
/// nothing but that savepoint to go on from.
///
/// # Errors
/// The storage fails, or a record is damaged.
pub fn last_savepoint(store: &Arc<dyn Store>, job: JobId) -> Result<Option<String>> {
    let fences = Fences::read(store, job)?;
    Ok(fences.newest().and_then(|record| record.savepoint.clone()))
}

pub(crate) fn counts(fences: &Fences, listed: &Listed) -> bool {
    let token = match listed.damaged {
        None => listed.token,
        Some(_) => fences.presumed_token(listed.checkpoint),
    };
    fences.counts(listed.checkpoint, token)
}

/// All checkpoints with a manifest, void ones among them, ascending.
pub(crate) fn all_checkpoints(store: &Arc<dyn Store>, job: JobId) -> Result<Vec<Listed>> {
    let objects = store.list(&names::checkpoints(job))?;
    let numbers = objects.iter().filter_map(|object| {
        let number = names::manifest_checkpoint(&object.path)?;
        (object.path == names::manifest(job, number)).then_some(number)
    });
    let listed = numbers.filter_map(|checkpoint| list_one(store, job, checkpoint).transpose());
    let mut listed: Vec<Listed> = listed.collect::<Result<_>>()?;
    listed.sort_by_key(|listed| listed.checkpoint);
    Ok(listed)
}

/// `None` if it has just been deleted.
fn list_one(store: &Arc<dyn Store>, job: JobId, checkpoint: u64) -> Result<Option<Listed>> {
    match Snapshot::open(store, job, checkpoint) {
        Ok(snapshot) => {
            let manifest = snapshot.manifest();
            Ok(Some(Listed {
                checkpoint,
                token: manifest.token,
                created_ms: manifest.created_ms,
                full_bytes: manifest.full_bytes,
                written_bytes: manifest.written_bytes,
                damaged: None,
            }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // Storage that fails is no damage: the next try may find it whole.
        Err(error) if error.kind() == ErrorKind::Io => Err(error),
        Err(error) => Ok(Some(Listed {
            checkpoint,
            token: 0,
            created_ms: 0,
            full_bytes: 0,
            written_bytes: 0,
            damaged: Some(error.to_string()),
        })),
    }
}

/// The record of a job's name, made once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) job_id: JobId,
    pub(crate) name: String,
    pub(crate) created_ms: u64,
}

impl JobRecord {
    const MAGIC: [u8; 4] = *b"SLJB";

    pub(crate) fn read(store: &Arc<dyn Store>, id: JobId) -> Result<Self> {
        let path = names::job(id);
        let record: Self = read_framed(Self::MAGIC, store, &path)?;
        if record.job_id == id {
            return Ok(record);
        }
        let what = format!("it is the record of job {}", record.job_id);
        Err(Error::damaged(&store.describe(&path), what))
    }

    /// Makes the record, or compares it with the one that is there.
    pub(crate) fn create(&self, store: &Arc<dyn Store>) -> Result<()> {
        match store.create(&names::job(self.job_id), &frame(Self::MAGIC, self)?) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let there = Self::read(store, self.job_id)?;
                if there.name == self.name {
                    return Ok(());
                }
                let text = format!(
                    "job id {} belongs to job `{}`: give job `{}` another id or another root",
                    self.job_id, there.name, self.name
                );
                Err(Error::invalid(text))
            }
            created => created,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uri: &str, root: &str, has_job: bool) {
        let (found, job) = split_job(uri).expect("a fine URI");
        assert_eq!((found, job.is_some()), (root, has_job), "uri={uri}");
    }

    #[test]
    fn a_uri_is_a_root_or_one_jobs_folder() {
        check("target/checkpoints", "target/checkpoints", false);
        check("a/0123456789abcdef0123456789abcdef/", "a", true);
        check("file:///a/0123456789abcdef0123456789abcdef", "file:///a", true);
        check("/0123456789abcdef0123456789abcdef", "/", true);
        check("0123456789abcdef0123456789abcdef", ".", true);
        check("0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcde", false);
    }

    #[test]
    fn a_uri_does_not_lead_into_a_jobs_folder() {
        for inside in ["chk-1", "shared", "chk-1/_metadata"] {
            let uri = format!("a/0123456789abcdef0123456789abcdef/{inside}");
            assert!(split_job(&uri).is_err(), "{uri}");
        }
    }
}
