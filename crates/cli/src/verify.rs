//! `strandline checkpoints verify`: reads and hashes everything again.

use strandline::snapshot::{self, ErrorKind, JobId};
use strandline::units::bytes;

use crate::Target;
use crate::failure::{Failure, Result, full};
use crate::interrupt;
use crate::place::{Jobs, Place};
use crate::progress::Progress;
use crate::reading::Reading;
use crate::report::{Found, Verified};
use crate::table;

/// How often all of them are tried, where a job is so fast that none was read to its end.
const TRIES: u32 = 5;

pub(crate) fn run(target: &Target) -> Result<u8> {
    let place = Place::at(&target.uri)?;
    let mut tries = 1;
    let all = loop {
        let all = verify_all(target, &place)?;
        interrupt::check()?;
        let none = !all.is_empty() && all.iter().all(|verified| verified.subsumed);
        if !none || target.checkpoint.is_some() || tries == TRIES {
            break all;
        }
        tries += 1;
    };
    if let [Verified { subsumed: true, checkpoint, .. }] = &all[..]
        && target.checkpoint.is_some()
    {
        return Err(Failure::subsumed(&format!("checkpoint {checkpoint}")));
    }
    if target.json {
        table::json(&all);
    } else {
        all.iter().for_each(print);
    }
    Ok(u8::from(all.iter().any(|verified| !verified.problems.is_empty())))
}

fn verify_all(target: &Target, place: &Place) -> Result<Vec<Verified>> {
    let jobs = match place {
        Place::Savepoint(place) => {
            let reading = place.open(target.checkpoint)?;
            return Ok(vec![verify_reading(&reading)]);
        }
        Place::Jobs(jobs) => jobs,
    };
    let (mut all, mut seen) = (Vec::new(), Vec::new());
    for (id, _) in &jobs.jobs {
        let listed = jobs.listed(*id)?;
        let wanted = listed.iter().filter(|listed| target.wants(listed.checkpoint));
        all.extend(wanted.map(|listed| verify_one(jobs, *id, listed.checkpoint)));
        seen.extend(listed);
    }
    if all.is_empty() && target.checkpoint.is_some() {
        return Err(jobs.missing(target.checkpoint, &seen));
    }
    Ok(all)
}

/// A job that runs may delete a checkpoint before it is pinned: then it is neither whole nor
/// damaged.
fn verify_one(jobs: &Jobs, id: JobId, checkpoint: u64) -> Verified {
    let verified = match jobs.open("verify", id, checkpoint) {
        Ok(reading) => verify_reading(&reading),
        Err(failure) if failure.subsumed => return Verified::subsumed(&id.to_string(), checkpoint),
        // Its manifest is damaged: that is a finding.
        Err(_) => match snapshot::verify(&jobs.store, id, checkpoint) {
            Ok(report) => Verified::of(&id.to_string(), checkpoint, report),
            Err(error) => Verified::unreadable(&id.to_string(), checkpoint, full(&error)),
        },
    };
    if !verified.problems.is_empty() && jobs.is_gone(id, checkpoint) {
        return Verified::subsumed(&id.to_string(), checkpoint);
    }
    verified
}

fn verify_reading(reading: &Reading) -> Verified {
    let manifest = reading.snapshot.manifest();
    let (id, checkpoint) = (manifest.job_id.to_string(), manifest.checkpoint);
    let doing = format!("checkpoint {checkpoint}");
    let progress = Progress::new(&doing, reading.plain_bytes());
    let report = reading.snapshot.verify(&mut |bytes| {
        progress.add(bytes);
        interrupt::go_on()
    });
    match report {
        Ok(report) => Verified::of(&id, checkpoint, report),
        Err(error) if error.kind() == ErrorKind::Subsumed => Verified::subsumed(&id, checkpoint),
        Err(error) => Verified::unreadable(&id, checkpoint, full(&error)),
    }
}

fn print(verified: &Verified) {
    let Verified { job_id, checkpoint, chunks, bytes: read, problems, subsumed } = verified;
    if *subsumed {
        table::line(&format!("{job_id} checkpoint {checkpoint}: subsumed while it was being read"));
        return;
    }
    if problems.is_empty() {
        let read = bytes(*read);
        table::line(&format!("{job_id} checkpoint {checkpoint}: whole ({chunks} chunks, {read})"));
        return;
    }
    table::line(&format!("{job_id} checkpoint {checkpoint}: DAMAGED"));
    for Found { object, what } in problems {
        table::line(&format!("  {object}: {what}"));
    }
}
