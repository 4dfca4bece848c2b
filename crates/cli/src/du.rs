//! `strandline checkpoints du`: what each checkpoint costs.

use strandline::snapshot::{JobId, Usage, usage};
use strandline::units::{bytes, count};

use crate::Target;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::place::{Jobs, Place};
use crate::reading::Reading;
use crate::report::UsageRow;
use crate::table;

/// How often the newest checkpoint is pinned, if jobs keep being faster.
const TRIES: u32 = 5;

pub(crate) fn run(target: &Target) -> Result<u8> {
    let mut rows = Vec::new();
    match Place::at(&target.uri)? {
        Place::Savepoint(place) => {
            let reading = place.open(target.checkpoint)?;
            let usage = reading.snapshot.usage().map_err(|error| Failure::of_store(&error))?;
            let job = reading.snapshot.manifest().job_id;
            rows.push(UsageRow::new(&job.to_string(), &usage));
        }
        Place::Jobs(jobs) => {
            for (id, _) in &jobs.jobs {
                let all = of_job(&jobs, *id)?;
                interrupt::check()?;
                let wanted = all.iter().filter(|usage| target.wants(usage.checkpoint));
                rows.extend(wanted.map(|usage| UsageRow::new(&id.to_string(), usage)));
            }
            check_found(target, &jobs, &rows)?;
        }
    }
    if target.json {
        table::json(&rows);
    } else {
        print(&rows);
    }
    Ok(u8::from(rows.iter().any(|row| row.damaged.is_some())))
}

/// A checkpoint that was asked for must be there.
fn check_found(target: &Target, jobs: &Jobs, rows: &[UsageRow]) -> Result<()> {
    if !rows.is_empty() || target.checkpoint.is_none() {
        return Ok(());
    }
    let mut listed = Vec::new();
    for (id, _) in &jobs.jobs {
        listed.extend(jobs.listed(*id)?);
    }
    Err(jobs.missing(target.checkpoint, &listed))
}

/// What all checkpoints of a job hold; the newest is pinned, and so are the packs of the others.
fn of_job(jobs: &Jobs, id: JobId) -> Result<Vec<Usage>> {
    let mut tries = 1;
    loop {
        let listed = jobs.listed(id)?;
        // A damaged one can't be pinned.
        let newest = listed.iter().rfind(|listed| listed.damaged.is_none());
        let pin = newest.map(|newest| jobs.open("du", id, newest.checkpoint)).transpose();
        match pin {
            Err(failure) if failure.subsumed && tries < TRIES => tries += 1,
            Err(failure) => return Err(failure),
            Ok(_pin) => {
                return usage(&jobs.store, id).map_err(|error| Failure::of_store(&error));
            }
        }
    }
}

/// What one that is being read holds, among the others of its job.
pub(crate) fn of_reading(place: &Place, reading: &Reading) -> Result<Usage> {
    let manifest = reading.snapshot.manifest();
    let failed = |error| Failure::of_store(&error);
    let jobs = match place {
        Place::Savepoint(_) => return reading.snapshot.usage().map_err(failed),
        Place::Jobs(jobs) => jobs,
    };
    let all = usage(&jobs.store, manifest.job_id).map_err(failed)?;
    let own = all.into_iter().find(|usage| usage.checkpoint == manifest.checkpoint);
    own.ok_or_else(|| Failure::subsumed(&reading.name))
}

/// `3.2`, or a dash.
pub(crate) fn ratio(of: Option<f64>) -> String {
    of.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"))
}

fn print(rows: &[UsageRow]) {
    let header = [
        "job",
        "checkpoint",
        "full",
        "written",
        "exclusive",
        "shared",
        "ratio",
        "runs",
        "chunks",
        "packs",
    ];
    let line = |row: &UsageRow| {
        let mut cells = vec![row.job_id.clone(), row.checkpoint.to_string()];
        if row.damaged.is_some() {
            cells.push("damaged".to_owned());
            return cells;
        }
        let space = &row.space;
        cells.extend([
            bytes(row.full_bytes),
            bytes(row.written_bytes),
            bytes(space.exclusive_bytes),
            bytes(space.shared_bytes),
            ratio(space.compression_ratio),
            count(space.runs),
            count(space.chunks),
            count(space.packs),
        ]);
        cells
    };
    table::print(&header, rows.iter().map(line).collect());
    for row in rows {
        if let Some(why) = &row.damaged {
            table::say(&format!("checkpoint {} is damaged: {why}", row.checkpoint));
        }
    }
}
