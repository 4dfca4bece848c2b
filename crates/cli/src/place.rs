//! What a URI stands for: a root with jobs, one job's folder, or a savepoint's folder.

use std::path::Path;
use std::sync::Arc;

use strandline::snapshot::{self, JobId, Listed, Store, history, open_store, resolve};

use crate::failure::{Failure, Result, full};

/// The name of a savepoint's manifest in its folder.
const MANIFEST: &str = "_metadata";

/// Where checkpoints or a savepoint are.
pub(crate) enum Place {
    Jobs(Jobs),
    Savepoint(SavepointPlace),
}

/// The jobs that a URI names: one, or all under a root.
pub(crate) struct Jobs {
    pub(crate) uri: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) jobs: Vec<(JobId, String)>,
}

/// A savepoint's own folder, as a store.
pub(crate) struct SavepointPlace {
    pub(crate) uri: String,
    pub(crate) store: Arc<dyn Store>,
}

impl Place {
    pub(crate) fn at(uri: &str) -> Result<Self> {
        if let Some(store) = savepoint_at(uri)? {
            return Ok(Self::Savepoint(SavepointPlace { uri: uri.to_owned(), store }));
        }
        Jobs::at(uri).map(Self::Jobs)
    }
}

/// A folder with a manifest in it that is no checkpoint's.
fn savepoint_at(uri: &str) -> Result<Option<Arc<dyn Store>>> {
    let wrong = |error: snapshot::Error| Failure::refused(full(&error));
    let (_, job) = snapshot::split_job(uri).map_err(wrong)?;
    if job.is_some() {
        return Ok(None);
    }
    let store = open_store(uri).map_err(wrong)?;
    if store.size(MANIFEST).is_err() {
        return Ok(None);
    }
    if store.local_root().is_some_and(|root| is_in_a_jobs_folder(&root)) {
        let text =
            format!("{uri} is one checkpoint of a job: name the job's folder, and --checkpoint");
        return Err(Failure::refused(text));
    }
    Ok(Some(store))
}

fn is_in_a_jobs_folder(folder: &Path) -> bool {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let job = absolute.parent().and_then(Path::file_name);
    job.and_then(|name| name.to_str()).is_some_and(|name| name.parse::<JobId>().is_ok())
}

impl Jobs {
    pub(crate) fn at(uri: &str) -> Result<Self> {
        let found = resolve(uri).map_err(|error| Failure::refused(full(&error)))?;
        let jobs: Vec<_> = found
            .jobs
            .into_iter()
            .filter(|entry| found.job.is_none_or(|job| job == entry.id))
            .map(|entry| (entry.id, entry.name))
            .collect();
        if jobs.is_empty() {
            let text = format!(
                "there are no checkpoints at {uri}: name the root of a checkpoint storage, a job's \
                 folder in it, or a savepoint's folder"
            );
            return Err(Failure::refused(text));
        }
        Ok(Self { uri: uri.to_owned(), store: found.store, jobs })
    }

    /// The only job; with several the user must say which.
    pub(crate) fn one(&self) -> Result<(JobId, &str)> {
        match &self.jobs[..] {
            [(id, name)] => Ok((*id, name)),
            several => {
                let names: Vec<String> =
                    several.iter().map(|(id, name)| format!("{id} ({name})")).collect();
                Err(Failure::refused(format!(
                    "{} has several jobs; name the folder of one: {}",
                    self.uri,
                    names.join(", ")
                )))
            }
        }
    }

    /// Completed checkpoints of a job, ascending; damaged ones among them.
    pub(crate) fn listed(&self, id: JobId) -> Result<Vec<Listed>> {
        history(&self.store, id).map_err(|error| Failure::of_store(&error))
    }

    /// There is no such checkpoint.
    pub(crate) fn missing(&self, wanted: Option<u64>, listed: &[Listed]) -> Failure {
        let number = wanted.map_or_else(|| "of any number".to_owned(), |n| n.to_string());
        let there: Vec<String> = listed.iter().map(|one| one.checkpoint.to_string()).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Failure::refused(format!("{} has no checkpoint {number}; there are: {there}", self.uri))
    }

    /// Whether a later checkpoint has taken its place. Metadata are deleted first, so a checkpoint
    /// whose files go away while it is listed is damaged.
    pub(crate) fn is_gone(&self, id: JobId, checkpoint: u64) -> bool {
        let listed = history(&self.store, id).unwrap_or_default();
        let newer = listed.iter().any(|listed| listed.checkpoint > checkpoint);
        newer && !listed.iter().any(|listed| listed.checkpoint == checkpoint)
    }
}
