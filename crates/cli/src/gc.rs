//! `strandline checkpoints gc`: deletes what nothing names, where no job runs that would do it.
//!
//! All checkpoints that count are kept. The job is claimed first, so that nobody can begin one while
//! packs are deleted; a claim changes nothing of what counts.

use std::time::Duration;

use strandline::snapshot::{
    Attempt, Claim, Claimant, ErrorKind, Garbage, JobId, Object, Owner, garbage,
};
use strandline::units::{bytes, count};

use crate::GcTarget;
use crate::failure::{Failure, Result, full};
use crate::host;
use crate::interrupt;
use crate::place::{Jobs, Place};
use crate::report::{Collected, ObjectLine};
use crate::table;

/// How long a start must watch for signs of life, if this process dies where storage has no locks.
const LEASE_MS: u64 = 60_000;

/// The longest wait for a last owner that may be alive.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

pub(crate) fn run(of: &GcTarget) -> Result<u8> {
    let jobs = match Place::at(&of.uri)? {
        Place::Jobs(jobs) => jobs,
        Place::Savepoint(place) => {
            let text = format!("{} is a savepoint, which is yours: delete its folder", place.uri);
            return Err(Failure::refused(text));
        }
    };
    let (mut code, mut all) = (0, Vec::new());
    for (id, name) in &jobs.jobs {
        let collected = if of.dry_run { look(&jobs, *id) } else { collect(&jobs, *id, name) };
        match collected {
            Ok(collected) => all.push(collected),
            Err(failure) => {
                table::say(&format!("error: job {id} ({name}): {}", failure.text));
                code = code.max(failure.code);
            }
        }
    }
    if of.json {
        table::json(&all);
    } else {
        all.iter().for_each(print);
    }
    Ok(code)
}

fn look(jobs: &Jobs, id: JobId) -> Result<Collected> {
    let found = garbage(&jobs.store, id, host::unix_ms());
    let found = found.map_err(|error| Failure::of_store(&error))?;
    Ok(collected(jobs, id, found, true))
}

fn collected(jobs: &Jobs, id: JobId, found: Garbage, dry_run: bool) -> Collected {
    let line = |object: &Object| ObjectLine {
        path: jobs.store.describe(&object.path),
        bytes: object.bytes,
    };
    Collected {
        job_id: id.to_string(),
        dry_run,
        bytes: found.bytes(),
        manifests: found.manifests.iter().map(line).collect(),
        packs: found.packs.iter().map(line).collect(),
        unreadable: found.unreadable,
    }
}

fn collect(jobs: &Jobs, id: JobId, name: &str) -> Result<Collected> {
    let failed = |error: strandline::snapshot::Error| Failure::of_store(&error);
    let owner = claim(jobs, id, name)?;
    let before = objects(jobs, id)?;
    owner.retain(usize::MAX, host::unix_ms()).map_err(failed)?;
    let after = objects(jobs, id)?;
    let mut gone = before;
    gone.retain(|object| !after.contains(object));
    let (manifests, packs) = gone.into_iter().partition(|of| of.path.ends_with("/_metadata"));
    let unreadable = garbage(&jobs.store, id, host::unix_ms()).map_err(failed)?.unreadable;
    Ok(collected(jobs, id, Garbage { manifests, packs, unreadable }, false))
}

fn objects(jobs: &Jobs, id: JobId) -> Result<std::collections::BTreeSet<Object>> {
    let mut found = std::collections::BTreeSet::new();
    for prefix in [format!("{id}/shared/"), format!("{id}/chk-")] {
        found.extend(jobs.store.list(&prefix).map_err(|error| Failure::of_store(&error))?);
    }
    Ok(found)
}

/// Claims a job that nobody runs.
fn claim(jobs: &Jobs, id: JobId, name: &str) -> Result<Owner> {
    if name.is_empty() {
        let record = jobs.store.describe(&format!("{id}/_job"));
        let text =
            format!("{record}, the record of the job's name, can't be read: start the job once");
        return Err(Failure::refused(text));
    }
    let claim = Claim {
        job: id,
        holder: host::holder("checkpoints gc"),
        host: host::name(),
        now_ms: host::unix_ms(),
        lease_ms: LEASE_MS,
        ..Claim::new(name)
    };
    let mut claimant = Claimant::new(std::sync::Arc::clone(&jobs.store), claim);
    let mut waited = Duration::ZERO;
    loop {
        let now_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        match claimant.attempt(now_ms) {
            Ok(Attempt::Claimed(owner)) => return Ok(owner),
            Ok(Attempt::Wait(wait_ms)) => {
                if waited.is_zero() {
                    table::say(&format!(
                        "waiting for a sign of life of the last owner: wait_ms={wait_ms}"
                    ));
                }
                // Counted as waited: what passes besides makes the watch longer, never shorter.
                let wait = Duration::from_millis(wait_ms).min(LONGEST_WAIT);
                host::pause(wait);
                interrupt::check()?;
                waited += wait;
            }
            Err(error) if error.kind() == ErrorKind::Held => {
                let text = format!("the running job collects by itself ({})", full(&error));
                return Err(Failure::refused(text));
            }
            Err(error) => return Err(Failure::of_store(&error)),
        }
    }
}

fn print(of: &Collected) {
    let word = if of.dry_run { "would delete" } else { "deleted" };
    for object in of.manifests.iter().chain(&of.packs) {
        table::line(&format!("{word} {} ({})", object.path, bytes(object.bytes)));
    }
    let objects = (of.manifests.len() + of.packs.len()) as u64;
    table::line(&format!("{}: {word} {} files, {}", of.job_id, count(objects), bytes(of.bytes)));
    if let Some(why) = &of.unreadable {
        table::say(&format!("warning: no pack is deleted while a checkpoint can't be read: {why}"));
    }
}
