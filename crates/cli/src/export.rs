//! `strandline checkpoints export`: a savepoint in one tar file.
//!
//! All that is read is hashed before it is believed. The file is written under another name, made
//! durable and then named, so whatever has its name is whole; a file that is there is never
//! replaced. Memory is that of a savepoint: one chunk for each run that speaks at the place at
//! hand, one write buffer, and about 60 bytes for each chunk.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strandline::durable::publish_new;
use strandline::snapshot::{Saved, Store, savepoint_name};

use crate::ExportTarget;
use crate::archive::Archive;
use crate::failure::{Failure, Result};
use crate::place::Place;
use crate::reading::Reading;
use crate::report::Made;
use crate::savepoint;

pub(crate) fn run(of: &ExportTarget) -> Result<u8> {
    check_free(&of.output)?;
    let place = Place::at(&of.target.uri)?;
    let made = place.read("export", of.target.checkpoint, |reading| {
        let saved = export(reading, &of.output)?;
        Ok(Made::new(reading, of.output.display().to_string(), &saved))
    })?;
    savepoint::print(&made, of.target.json);
    Ok(0)
}

fn check_free(output: &Path) -> Result<()> {
    if output.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(taken(output))
}

fn taken(output: &Path) -> Failure {
    let text = format!("{} exists already: name another file, or remove it", output.display());
    Failure::refused(text)
}

fn export(reading: &Reading, output: &Path) -> Result<Saved> {
    let staged = Staged::beside(output)?;
    let failed = |error: std::io::Error| failed(output, &error);
    let archive = Archive::create(&staged.0).map_err(failed)?;
    let store: Arc<dyn Store> = Arc::new(archive.clone());
    let folder = savepoint_name(reading.snapshot.manifest().job_id);
    let saved = savepoint::save(reading, &store, &folder, "exporting")?;
    archive.close().map_err(failed)?;
    match publish_new(&staged.0, output) {
        Ok(_) => Ok(saved),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(taken(output)),
        Err(error) => Err(failed(error)),
    }
}

fn failed(output: &Path, error: &std::io::Error) -> Failure {
    let text = format!("{} can't be written: {error}", output.display());
    Failure::failed(text)
}

/// The file before it has its name; removed in any case.
struct Staged(PathBuf);

impl Staged {
    fn beside(output: &Path) -> Result<Self> {
        let Some(name) = output.file_name() else {
            let text = format!("{} is no name of a file", output.display());
            return Err(Failure::refused(text));
        };
        let mut staged = std::ffi::OsString::from(format!(".tmp-{}-", std::process::id()));
        staged.push(name);
        Ok(Self(output.with_file_name(staged)))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // It is gone already if it was given its name by renaming.
        drop(std::fs::remove_file(&self.0));
    }
}
