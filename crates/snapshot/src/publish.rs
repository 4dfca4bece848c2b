//! The runs of a new checkpoint: those of its base, what merges have made of them, and what writers
//! have added.

use std::collections::BTreeMap;

use crate::live::Base;
use crate::pack::{Change, Contents, LiveRun, Written, WrittenSection};
use crate::ranges::{KeyRange, overlapping, without};
use crate::{Error, Result};

/// A section in the making.
#[derive(Default)]
struct Gathered {
    contents: Option<Contents>,
    added: Vec<LiveRun>,
}

/// The sections of the checkpoint, with their runs, the oldest first.
pub(crate) fn gather(base: &Base, written: Vec<Written>) -> Result<BTreeMap<String, Vec<LiveRun>>> {
    let mut sections: BTreeMap<String, Gathered> = BTreeMap::new();
    let mut changes: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    for of in written {
        for section in of.sections {
            add(&mut sections, section)?;
        }
        for change in of.changes {
            changes.entry(change.section().to_owned()).or_default().push(change);
        }
    }
    let runs = |(name, gathered): (String, Gathered)| {
        let mut runs = match gathered.contents {
            Some(Contents::Changed) => changed(base, &name, changes.remove(&name)),
            Some(Contents::All) | None => Vec::new(),
        };
        runs.extend(gathered.added);
        (name, runs)
    };
    let sections: BTreeMap<String, Vec<LiveRun>> = sections.into_iter().map(runs).collect();
    sections.iter().try_for_each(|(name, runs)| check_metadata(name, runs))?;
    Ok(sections)
}

/// Runs are merged, so what is said of one must hold for all.
fn check_metadata(section: &str, runs: &[LiveRun]) -> Result<()> {
    let alike = runs.windows(2).all(|pair| match pair {
        [a, b] => a.run.metadata() == b.run.metadata(),
        _ => true,
    });
    if alike {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the changes of section `{section}` have other metadata than the runs they go on from: write all of it"
    )))
}

fn add(sections: &mut BTreeMap<String, Gathered>, section: WrittenSection) -> Result<()> {
    let gathered = sections.entry(section.name).or_default();
    let contents = *gathered.contents.get_or_insert(section.contents);
    if contents != section.contents {
        let text =
            "a section was written as all that there is by one writer, and as changes by another";
        return Err(Error::invalid(text));
    }
    gathered.added.extend(section.runs);
    Ok(())
}

/// The base's runs of a section, after merges.
fn changed(base: &Base, name: &str, changes: Option<Vec<Change>>) -> Vec<LiveRun> {
    let Some(section) = base.sections.get(name) else {
        return Vec::new();
    };
    let mut runs = section.runs.clone();
    let mut merged = Vec::new();
    // What is written anew hides what merges have made of the same part.
    let mut changes: Vec<Change> = changes.into_iter().flatten().collect();
    changes.sort_by_key(|change| matches!(change, Change::Rewrite { .. }));
    for change in changes {
        match change {
            Change::Move { run, to, .. } => {
                if let Some(live) = runs.get_mut(run) {
                    let ranges = std::mem::take(&mut live.run.ranges);
                    *live = to;
                    live.run.ranges = ranges;
                }
            }
            Change::Replace { range, runs: replaced, by, .. } => {
                let replaced = |(number, _): &(usize, &mut LiveRun)| replaced.contains(number);
                let runs = runs.iter_mut().enumerate().filter(replaced);
                hide(runs.map(|(_, live)| live), &range);
                merged.extend(by);
            }
            Change::Rewrite { range, by, .. } => {
                hide(runs.iter_mut().chain(&mut merged), &range);
                merged.extend(by);
            }
        }
    }
    runs.extend(merged);
    runs.retain(|live| !live.run.ranges.is_empty());
    runs
}

/// These runs do not speak for this range any more.
fn hide<'a>(runs: impl Iterator<Item = &'a mut LiveRun>, range: &KeyRange) {
    for live in runs {
        if !overlapping(&live.run.ranges, range).is_empty() {
            live.run.ranges = without(&live.run.ranges, range);
        }
    }
}

impl Change {
    fn section(&self) -> &str {
        match self {
            Self::Replace { section, .. }
            | Self::Rewrite { section, .. }
            | Self::Move { section, .. } => section,
        }
    }
}
