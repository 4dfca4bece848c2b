//! `strandline checkpoints diff`: what differs between two checkpoints.

use std::ops::ControlFlow;

use strandline::snapshot::{Compared, Difference, ErrorKind, SectionDiff, Tally, diff};
use strandline::units::{bytes, count};

use crate::DiffTarget;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::place::Place;
use crate::progress::Progress;
use crate::reading::Reading;
use crate::report::{DifferenceLine, SectionDiffRow};
use crate::table::{self, Lines};

pub(crate) fn run(of: &DiffTarget) -> Result<u8> {
    let (a, b) = sides(&of.operands)?;
    let sections =
        a.read(|a| b.read(|b| if of.entries { entries(of, a, b) } else { compare(a, b) }))?;
    if of.entries {
        return Ok(0);
    }
    if of.json {
        table::json(&sections.iter().map(SectionDiffRow::of).collect::<Vec<_>>());
    } else {
        print(&sections);
    }
    Ok(0)
}

/// One of the two.
struct Side {
    place: Place,
    checkpoint: Option<u64>,
}

impl Side {
    fn read<T>(&self, act: impl FnMut(&Reading) -> Result<T>) -> Result<T> {
        self.place.read("diff", self.checkpoint, act)
    }
}

/// `URI A B`, each a number or another URI; or two URIs.
fn sides(operands: &[String]) -> Result<(Side, Side)> {
    let newest = |uri: &str| Ok(Side { place: Place::at(uri)?, checkpoint: None });
    match operands {
        [a, b] => Ok((newest(a)?, newest(b)?)),
        [uri, a, b] => {
            let side = |of: &str| match of.parse() {
                Ok(number) => Ok(Side { place: Place::at(uri)?, checkpoint: Some(number) }),
                Err(_) => newest(of),
            };
            Ok((side(a)?, side(b)?))
        }
        _ => Err(Failure::refused("diff takes a URI and two checkpoints, or two URIs")),
    }
}

fn compare(a: &Reading, b: &Reading) -> Result<Vec<SectionDiff>> {
    let progress = Progress::new("comparing", b.plain_bytes());
    let compared = diff(&a.snapshot, &b.snapshot, &mut |entry| {
        if entry.difference != Difference::Removed {
            progress.add(entry.bytes);
        }
        interrupt::go_on()
    });
    interrupt::check()?;
    compared.map_err(|error| Failure::of_store(&error))
}

/// One line for each entry that differs.
fn entries(of: &DiffTarget, a: &Reading, b: &Reading) -> Result<Vec<SectionDiff>> {
    let mut lines = Lines::new();
    let compared = diff(&a.snapshot, &b.snapshot, &mut |entry| entry_line(of, &mut lines, entry));
    lines.finish();
    interrupt::check()?;
    compared.map_err(|error| {
        let subsumed = error.kind() == ErrorKind::Subsumed && !lines.has_begun();
        Failure { subsumed, ..Failure::of_store(&error) }
    })
}

fn entry_line(of: &DiffTarget, lines: &mut Lines, entry: &Compared<'_>) -> ControlFlow<()> {
    let difference = match entry.difference {
        Difference::Added => "added",
        Difference::Removed => "removed",
        Difference::Changed => "changed",
        Difference::Unchanged => return interrupt::go_on(),
    };
    let key = table::hex(entry.key);
    if of.json {
        lines.json(&DifferenceLine { difference, section: entry.section, key: &key })
    } else {
        lines.line(&[difference, entry.section, &key])
    }
}

fn print(sections: &[SectionDiff]) {
    let tally = |of: &Tally| match of.entries {
        0 => "-".to_owned(),
        entries => format!("{} ({})", count(entries), bytes(of.bytes)),
    };
    let line = |of: &SectionDiff| {
        let tallies = [&of.added, &of.removed, &of.changed, &of.unchanged];
        let mut cells = vec![of.section.clone()];
        cells.extend(tallies.map(tally));
        cells
    };
    let rows = sections.iter().map(line).collect();
    table::print(&["state", "added", "removed", "changed", "unchanged"], rows);
}
