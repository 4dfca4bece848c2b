//! `strandline checkpoints show`: all about one checkpoint, or all that is in it.

use std::ops::ControlFlow;

use strandline::checkpointing::{JobMetadata, OperatorMetadata, SplitProgress};
use strandline::snapshot;
use strandline::units::{bytes, count};

use crate::ShowTarget;
use crate::du;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::list;
use crate::place::Place;
use crate::reading::Reading;
use crate::report::{Details, EntryLine, Row, SectionDetail, Space, listed};
use crate::table::{self, Lines};

pub(crate) fn run(of: &ShowTarget) -> Result<u8> {
    let place = Place::at(&of.target.uri)?;
    if of.entries {
        return place.read("show", of.target.checkpoint, |reading| entries(of, reading));
    }
    if of.section.is_some() {
        return Err(Failure::refused("--section is for --entries: give both"));
    }
    let details = place.read("show", of.target.checkpoint, |reading| details(&place, reading))?;
    if of.target.json {
        table::json(&details);
    } else {
        print_details(&details);
    }
    Ok(u8::from(details.row.damaged.is_some()))
}

fn details(place: &Place, reading: &Reading) -> Result<Details> {
    let snapshot = &reading.snapshot;
    let metadata: JobMetadata = list::metadata(snapshot).map_err(Failure::failed)?;
    let usage = du::of_reading(place, reading)?;
    let section = |section: &snapshot::Section| SectionDetail {
        name: section.name.clone(),
        runs: section.runs.len(),
        entries: section.runs.iter().map(|run| run.entry_count).sum(),
        full_bytes: section.runs.iter().map(|run| run.full_bytes).sum(),
    };
    let manifest = snapshot.manifest();
    let mut row = Row::whole(&manifest.job_id.to_string(), &listed(manifest), &metadata);
    let space = usage.damaged.is_none().then(|| Space::of(&usage));
    row.damaged = usage.damaged;
    Ok(Details {
        row,
        space,
        token: manifest.token,
        max_parallelism: metadata.max_parallelism,
        sections: manifest.sections.iter().map(section).collect(),
        operators_detail: metadata.operators,
        splits: metadata.splits,
    })
}

fn print_details(details: &Details) {
    print_head(details);
    let operator = |of: &OperatorMetadata| {
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
    let split = |of: &SplitProgress| {
        let place = if of.ended { "read to its end".to_owned() } else { of.position.clone() };
        vec![format!("{}: {}", of.source, of.split), count(of.records), place]
    };
    table::line("");
    table::print(&["split", "records", "position"], details.splits.iter().map(split).collect());
    if let Some(why) = &details.row.damaged {
        table::say(&format!("checkpoint {} is damaged: {why}", details.row.checkpoint));
    }
}

fn print_head(details: &Details) {
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
    details.space.iter().for_each(print_space);
    table::line(&format!("records read {}", count(row.records_read)));
    if row.finished {
        table::line("the job has finished with it");
    }
}

fn print_space(space: &Space) {
    table::line(&format!(
        "holds        {} of its own, {} shared with other checkpoints",
        bytes(space.exclusive_bytes),
        bytes(space.shared_bytes)
    ));
    table::line(&format!(
        "made of      {} runs, {} chunks, {} packs; compressed {} to one",
        count(space.runs),
        count(space.chunks),
        count(space.packs),
        du::ratio(space.compression_ratio)
    ));
}

/// One line for each entry: section, key, value; bytes in hex.
fn entries(of: &ShowTarget, reading: &Reading) -> Result<u8> {
    let snapshot = &reading.snapshot;
    let sections = match &of.section {
        None => snapshot.sections(),
        Some(section) => {
            let there = snapshot.sections();
            if !there.contains(&section.as_str()) {
                let text =
                    format!("{} has no section {section:?}; there are: {there:?}", reading.name);
                return Err(Failure::refused(text));
            }
            vec![section.as_str()]
        }
    };
    let mut lines = Lines::new();
    let mut going = ControlFlow::Continue(());
    for section in sections {
        if going.is_break() {
            break;
        }
        let visited = snapshot.visit(section, &mut |key, value| {
            going = entry(&mut lines, section, key, value, of.target.json);
            going
        });
        visited.map_err(|error| {
            let subsumed = error.kind() == snapshot::ErrorKind::Subsumed && !lines.has_begun();
            Failure { subsumed, ..Failure::of_store(&error) }
        })?;
    }
    lines.finish();
    interrupt::check()?;
    Ok(0)
}

fn entry(
    lines: &mut Lines,
    section: &str,
    key: &[u8],
    value: &[u8],
    json: bool,
) -> ControlFlow<()> {
    let (key, value) = (table::hex(key), table::hex(value));
    if json {
        lines.json(&EntryLine { section, key: &key, value: &value })
    } else {
        lines.line(&[section, &key, &value])
    }
}
