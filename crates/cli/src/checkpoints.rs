//! `strandline checkpoints …`.

use std::sync::Arc;

use strandline::checkpointing::{JobMetadata, decode_metadata};
use strandline::snapshot::{self, JobId, Listed, Snapshot, Store, history, resolve};
use strandline::units::{bytes, count};

use crate::Target;
use crate::report::{Details, Found, Row, SectionDetail, Verified};
use crate::table;

/// What a command ends with when it can't do what it was asked.
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl Failure {
    fn unreadable(error: &dyn std::error::Error) -> Self {
        Self { text: full(error), code: 1 }
    }

    fn bad_argument(text: String) -> Self {
        Self { text, code: 2 }
    }
}

type Result<T, E = Failure> = std::result::Result<T, E>;

/// The error and its causes on one line.
fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The jobs that a URI names: one, or all under a root.
struct Jobs {
    store: Arc<dyn Store>,
    jobs: Vec<(JobId, String)>,
}

impl Jobs {
    fn at(uri: &str) -> Result<Self> {
        let found = resolve(uri).map_err(|error| Failure::bad_argument(full(&error)))?;
        let jobs: Vec<_> = found
            .jobs
            .into_iter()
            .filter(|entry| found.job.is_none_or(|job| job == entry.id))
            .map(|entry| (entry.id, entry.name))
            .collect();
        if jobs.is_empty() {
            return Err(Failure::bad_argument(format!("there are no checkpoints at {uri}")));
        }
        Ok(Self { store: found.store, jobs })
    }

    /// The only job; with several the user must say which.
    fn one(&self, uri: &str) -> Result<(JobId, &str)> {
        match &self.jobs[..] {
            [(id, name)] => Ok((*id, name)),
            several => {
                let names: Vec<String> =
                    several.iter().map(|(id, name)| format!("{id} ({name})")).collect();
                Err(Failure::bad_argument(format!(
                    "{uri} has several jobs; name the folder of one: {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// Completed checkpoints of a job, ascending; damaged ones among them.
    fn listed(&self, id: JobId) -> Result<Vec<Listed>> {
        history(&self.store, id).map_err(|error| Failure::unreadable(&error))
    }

    fn metadata(&self, id: JobId, checkpoint: u64) -> Result<JobMetadata, String> {
        let opened = Snapshot::open(&self.store, id, checkpoint);
        let snapshot = opened.map_err(|error| full(&error))?;
        decode_metadata(snapshot.metadata()).map_err(|error| error.full())
    }

    fn row(&self, id: JobId, name: &str, listed: &Listed) -> Row {
        let id_text = id.to_string();
        match self.metadata(id, listed.checkpoint) {
            Ok(metadata) => Row::whole(&id_text, listed, &metadata),
            Err(why) => Row::damaged(&id_text, name, listed.checkpoint, why),
        }
    }
}

/// One line for each checkpoint.
pub(crate) fn list(target: &Target) -> Result<u8> {
    let jobs = Jobs::at(&target.uri)?;
    let mut rows = Vec::new();
    for (id, name) in &jobs.jobs {
        let listed = jobs.listed(*id)?;
        let wanted = listed.iter().filter(|listed| wants(target, listed.checkpoint));
        // One that a running job has deleted meanwhile is not there any more.
        let there = wanted.filter(|listed| !is_gone(&jobs, *id, listed.checkpoint));
        rows.extend(there.map(|listed| jobs.row(*id, name, listed)));
    }
    check_found(target, rows.len())?;
    if target.json {
        table::json(&rows);
    } else {
        print_rows(&rows, jobs.jobs.len() > 1);
    }
    Ok(u8::from(rows.iter().any(|row| row.damaged.is_some())))
}

/// A checkpoint that was asked for must be there.
fn check_found(target: &Target, found: usize) -> Result<()> {
    match target.checkpoint {
        Some(number) if found == 0 => {
            let text = format!("{} has no checkpoint {number}", target.uri);
            Err(Failure::bad_argument(text))
        }
        _ => Ok(()),
    }
}

fn wants(target: &Target, checkpoint: u64) -> bool {
    target.checkpoint.is_none_or(|wanted| wanted == checkpoint)
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

/// All about one checkpoint.
pub(crate) fn show(target: &Target) -> Result<u8> {
    let jobs = Jobs::at(&target.uri)?;
    let (id, _) = jobs.one(&target.uri)?;
    let listed = jobs.listed(id)?;
    let wanted = listed.iter().rfind(|listed| wants(target, listed.checkpoint));
    let Some(listed) = wanted else {
        let there: Vec<String> = listed.iter().map(|one| one.checkpoint.to_string()).collect();
        let number = target.checkpoint.map_or_else(|| "of any number".into(), |n| n.to_string());
        let text =
            format!("{} has no checkpoint {number}; there are: {}", target.uri, there.join(", "));
        return Err(Failure::bad_argument(text));
    };
    let details = details(&jobs, id, listed)?;
    if target.json {
        table::json(&details);
    } else {
        print_details(&details);
    }
    Ok(0)
}

fn details(jobs: &Jobs, id: JobId, listed: &Listed) -> Result<Details> {
    let opened = Snapshot::open(&jobs.store, id, listed.checkpoint);
    let snapshot = opened.map_err(|error| Failure::unreadable(&error))?;
    let metadata =
        decode_metadata(snapshot.metadata()).map_err(|error| Failure::unreadable(&error))?;
    let section = |section: &snapshot::Section| SectionDetail {
        name: section.name.clone(),
        runs: section.runs.len(),
        entries: section.runs.iter().map(|run| run.entry_count).sum(),
        full_bytes: section.runs.iter().map(|run| run.full_bytes).sum(),
    };
    Ok(Details {
        row: Row::whole(&id.to_string(), listed, &metadata),
        token: listed.token,
        max_parallelism: metadata.max_parallelism,
        sections: snapshot.manifest().sections.iter().map(section).collect(),
        operators_detail: metadata.operators,
        splits: metadata.splits,
    })
}

fn print_details(details: &Details) {
    let row = &details.row;
    table::line(&format!("job          {} ({})", row.job_name, row.job_id));
    table::line(&format!("checkpoint   {} (fence token {})", row.checkpoint, details.token));
    table::line(&format!(
        "completed    {}, {} ms after its trigger",
        row.completed, row.duration_ms
    ));
    table::line(&format!(
        "size         {} full, {} written",
        bytes(row.full_bytes),
        bytes(row.written_bytes)
    ));
    table::line(&format!("records read {}", count(row.records_read)));
    if row.finished {
        table::line("the job has finished with it");
    }
    let operator = |of: &strandline::checkpointing::OperatorMetadata| {
        let ended = format!("{} of {}", of.ended, of.parallelism);
        vec![of.uid.clone(), of.name.clone(), of.parallelism.to_string(), ended]
    };
    table::line("");
    let rows = details.operators_detail.iter().map(operator).collect();
    table::print(&["operator", "name", "parallelism", "ended"], rows);
    let section = |of: &SectionDetail| {
        vec![of.name.clone(), of.runs.to_string(), count(of.entries), bytes(of.full_bytes)]
    };
    table::line("");
    table::print(
        &["state", "runs", "entries", "full"],
        details.sections.iter().map(section).collect(),
    );
    let split = |of: &strandline::checkpointing::SplitProgress| {
        let place = if of.ended { "read to its end".to_owned() } else { of.position.clone() };
        vec![format!("{}: {}", of.source, of.split), count(of.records), place]
    };
    table::line("");
    table::print(&["split", "records", "position"], details.splits.iter().map(split).collect());
}

/// Reads and hashes everything again.
pub(crate) fn verify(target: &Target) -> Result<u8> {
    let jobs = Jobs::at(&target.uri)?;
    let mut all = Vec::new();
    for (id, _) in &jobs.jobs {
        for listed in jobs.listed(*id)? {
            if wants(target, listed.checkpoint) {
                all.push(verify_one(&jobs, *id, listed.checkpoint));
            }
        }
    }
    check_found(target, all.len())?;
    if target.json {
        table::json(&all);
    } else {
        all.iter().for_each(print_verified);
    }
    Ok(u8::from(all.iter().any(|verified| !verified.problems.is_empty())))
}

/// A job that runs may delete a checkpoint while it is read: then it is neither whole nor damaged.
fn verify_one(jobs: &Jobs, id: JobId, checkpoint: u64) -> Verified {
    let mut verified = match snapshot::verify(&jobs.store, id, checkpoint) {
        Ok(report) => Verified::of(&id.to_string(), checkpoint, report),
        Err(error) => Verified::unreadable(&id.to_string(), checkpoint, full(&error)),
    };
    if !verified.problems.is_empty() && is_gone(jobs, id, checkpoint) {
        verified.problems.clear();
        verified.subsumed = true;
    }
    verified
}

/// Whether a later checkpoint has taken its place. Metadata are deleted first, so a checkpoint
/// whose files go away while it is listed is damaged.
fn is_gone(jobs: &Jobs, id: JobId, checkpoint: u64) -> bool {
    let listed = history(&jobs.store, id).unwrap_or_default();
    let newer = listed.iter().any(|listed| listed.checkpoint > checkpoint);
    newer && !listed.iter().any(|listed| listed.checkpoint == checkpoint)
}

fn print_verified(verified: &Verified) {
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
