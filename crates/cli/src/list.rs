//! `strandline checkpoints list`: one line for each checkpoint.

use strandline::checkpointing::{JobMetadata, decode_metadata};
use strandline::snapshot::{JobId, Listed, Snapshot};
use strandline::units::{bytes, count};

use crate::Target;
use crate::failure::{Failure, Result, full};
use crate::place::{Jobs, Place};
use crate::report::{Row, listed};
use crate::table;

pub(crate) fn run(target: &Target) -> Result<u8> {
    let (rows, several_jobs) = match Place::at(&target.uri)? {
        Place::Jobs(jobs) => (rows(target, &jobs)?, jobs.jobs.len() > 1),
        Place::Savepoint(place) => {
            let reading = place.open(target.checkpoint)?;
            let metadata = metadata(&reading.snapshot).map_err(Failure::failed)?;
            let manifest = reading.snapshot.manifest();
            let id = manifest.job_id.to_string();
            (vec![Row::whole(&id, &listed(manifest), &metadata)], false)
        }
    };
    if target.json {
        table::json(&rows);
    } else {
        print_rows(&rows, several_jobs);
    }
    Ok(u8::from(rows.iter().any(|row| row.damaged.is_some())))
}

fn rows(target: &Target, jobs: &Jobs) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut seen = Vec::new();
    for (id, name) in &jobs.jobs {
        let listed = jobs.listed(*id)?;
        let wanted = listed.iter().filter(|listed| target.wants(listed.checkpoint));
        // One that a running job has deleted meanwhile is not there any more.
        let there = wanted.filter(|listed| !jobs.is_gone(*id, listed.checkpoint));
        rows.extend(there.map(|listed| row(jobs, *id, name, listed)));
        seen.extend(listed);
    }
    if rows.is_empty() && target.checkpoint.is_some() {
        return Err(jobs.missing(target.checkpoint, &seen));
    }
    Ok(rows)
}

fn row(jobs: &Jobs, id: JobId, name: &str, listed: &Listed) -> Row {
    let id_text = id.to_string();
    let opened = Snapshot::open(&jobs.store, id, listed.checkpoint);
    match opened.map_err(|error| full(&error)).and_then(|snapshot| metadata(&snapshot)) {
        Ok(metadata) => Row::whole(&id_text, listed, &metadata),
        Err(why) => Row::damaged(&id_text, name, listed.checkpoint, why),
    }
}

/// What the job has to say of a checkpoint.
pub(crate) fn metadata(snapshot: &Snapshot) -> Result<JobMetadata, String> {
    decode_metadata(snapshot.metadata()).map_err(|error| error.full())
}

fn print_rows(rows: &[Row], several_jobs: bool) {
    let header =
        ["job", "checkpoint", "completed", "duration", "full", "written", "operators", "records"];
    let line = |row: &Row| {
        let job = match several_jobs {
            true => format!("{} ({})", row.job_name, row.job_id),
            false => row.job_name.clone(),
        };
        let mut cells = vec![job, row.checkpoint.to_string()];
        if row.damaged.is_some() {
            cells.push("damaged".to_owned());
            return cells;
        }
        let note = if row.finished { " (finished)" } else { "" };
        cells.extend([
            row.completed.clone(),
            format!("{} ms", row.duration_ms),
            bytes(row.full_bytes),
            bytes(row.written_bytes),
            row.operators.to_string(),
            format!("{}{note}", count(row.records_read)),
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
