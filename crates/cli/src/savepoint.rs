//! `strandline savepoint create`: a completed checkpoint, written out once more by itself.

use std::sync::Arc;

use strandline::snapshot::{
    Compression, SaveOptions, Saved, Store, open_store, savepoint_name, split_job,
};
use strandline::units::{bytes, count};

use crate::SavepointTarget;
use crate::failure::{Failure, Result, full};
use crate::host;
use crate::interrupt;
use crate::place::Place;
use crate::progress::Progress;
use crate::reading::Reading;
use crate::report::Made;
use crate::table;

pub(crate) fn create(of: &SavepointTarget) -> Result<u8> {
    let place = Place::at(&of.target.uri)?;
    let store = match (&of.to, &place) {
        (Some(uri), _) => root(uri)?,
        (None, Place::Jobs(jobs)) => Arc::clone(&jobs.store),
        (None, Place::Savepoint(_)) => {
            let text = "a savepoint is no place for another one: say with --target where it goes";
            return Err(Failure::refused(text));
        }
    };
    let made = place.read("savepoint create", of.target.checkpoint, |reading| {
        let folder = savepoint_name(reading.snapshot.manifest().job_id);
        let saved = save(reading, &store, &folder, "savepoint")?;
        Ok(Made::new(reading, store.describe(&folder), &saved))
    })?;
    print(&made, of.target.json);
    Ok(0)
}

/// The root of a store: not a job's folder, which is the owner's.
pub(crate) fn root(uri: &str) -> Result<Arc<dyn Store>> {
    let refused = |error| Failure::refused(full(&error));
    let (_, job) = split_job(uri).map_err(refused)?;
    if job.is_some() {
        let text = format!("{uri} is a job's folder, where its owner alone writes: name another");
        return Err(Failure::refused(text));
    }
    open_store(uri).map_err(refused)
}

/// Writes all of it to a folder of a store.
pub(crate) fn save(
    reading: &Reading,
    store: &Arc<dyn Store>,
    folder: &str,
    doing: &str,
) -> Result<Saved> {
    let progress = Progress::new(doing, reading.plain_bytes());
    let options = SaveOptions { compression: Compression::default(), now_ms: host::unix_ms() };
    let saved = reading.snapshot.save(store, folder, options, &mut |bytes| {
        progress.add(bytes);
        interrupt::go_on()
    });
    interrupt::check()?;
    saved.map_err(|error| Failure::of_store(&error))
}

/// Says what has been made.
pub(crate) fn print(made: &Made, json: bool) {
    if json {
        return table::json(made);
    }
    table::line(&format!(
        "{}: checkpoint {} of job {} ({} entries, {})",
        made.place,
        made.checkpoint,
        made.job_id,
        count(made.entries),
        bytes(made.bytes)
    ));
}
