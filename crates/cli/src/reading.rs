//! Checkpoints and savepoints opened for reading, also beside the job that makes them.
//!
//! A reader pins the checkpoint first, so that its packs stay while it is read, however many newer
//! ones are made. Where the storage can't be written to there is no pin: then a reader that is
//! slower than the job finds its checkpoint subsumed, and takes the then-newest if none was named.

use std::sync::Once;

use strandline::snapshot::{ErrorKind, JobId, Pin, Snapshot};

use crate::failure::{Failure, Result, full};
use crate::host;
use crate::place::{Jobs, Place, SavepointPlace};
use crate::table;

/// How long a pin is good for, if its process can't let go of it.
const PIN_MS: u64 = 60 * 60 * 1000;

/// How often a reader looks for the then-newest checkpoint.
const TRIES: u32 = 5;

/// A checkpoint or a savepoint that is being read.
pub(crate) struct Reading {
    pub(crate) snapshot: Snapshot,
    /// How people know it.
    pub(crate) name: String,
    /// `None` for savepoints, which nobody deletes behind the reader's back, and where there can't
    /// be one.
    _pin: Option<Pin>,
}

impl Place {
    /// Does something with the checkpoint of this number, or else with the newest: again if a newer
    /// one has taken its place meanwhile.
    pub(crate) fn read<T>(
        &self,
        command: &str,
        wanted: Option<u64>,
        mut act: impl FnMut(&Reading) -> Result<T>,
    ) -> Result<T> {
        let mut tries = 1;
        loop {
            let done = self.open(command, wanted).and_then(|reading| act(&reading));
            let again = wanted.is_none() && tries < TRIES;
            match done {
                Err(failure) if failure.subsumed && again => tries += 1,
                done => return done,
            }
        }
    }

    fn open(&self, command: &str, wanted: Option<u64>) -> Result<Reading> {
        match self {
            Self::Savepoint(place) => place.open(wanted),
            Self::Jobs(jobs) => {
                let (id, _) = jobs.one()?;
                let listed = jobs.listed(id)?;
                let number = match wanted {
                    None => listed.last(),
                    Some(number) => listed.iter().find(|listed| listed.checkpoint == number),
                };
                let number = number.ok_or_else(|| jobs.missing(wanted, &listed))?.checkpoint;
                jobs.open(command, id, number)
            }
        }
    }
}

impl SavepointPlace {
    pub(crate) fn open(&self, wanted: Option<u64>) -> Result<Reading> {
        let opened = Snapshot::open_savepoint(&self.store, "");
        let snapshot = opened.map_err(|error| Failure::of_store(&error))?;
        let number = snapshot.manifest().checkpoint;
        if wanted.is_some_and(|wanted| wanted != number) {
            let text = format!("{} is a savepoint of checkpoint {number}, the only one", self.uri);
            return Err(Failure::refused(text));
        }
        Ok(Reading { snapshot, name: format!("savepoint {}", self.uri), _pin: None })
    }
}

impl Jobs {
    /// Opens a checkpoint that has been listed, and pins it.
    pub(crate) fn open(&self, command: &str, id: JobId, number: u64) -> Result<Reading> {
        let holder = format!("{} on {}", host::holder(command), host::name());
        let expires_ms = host::unix_ms().saturating_add(PIN_MS);
        let pinned = Pin::open(&self.store, id, number, &holder, expires_ms);
        let opened = match pinned {
            Ok((pin, snapshot)) => Ok((Some(pin), snapshot)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Damaged) => {
                Err(error)
            }
            Err(error) => {
                let opened = Snapshot::open(&self.store, id, number).map(|of| (None, of));
                if opened.is_ok() {
                    warn_of_no_pin(&full(&error));
                }
                opened
            }
        };
        let (pin, snapshot) = opened.map_err(|error| {
            if error.kind() == ErrorKind::NotFound && self.is_gone(id, number) {
                return Failure::subsumed(&full(&error));
            }
            Failure::of_store(&error)
        })?;
        Ok(Reading { snapshot, name: format!("checkpoint {number} of job {id}"), _pin: pin })
    }
}

fn warn_of_no_pin(why: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        table::say(&format!(
            "warning: reading without a pin, so a running job may delete what is being read: {why}"
        ));
    });
}

impl Reading {
    /// A savepoint in a file.
    pub(crate) fn of_file(snapshot: Snapshot, name: String) -> Self {
        Self { snapshot, name, _pin: None }
    }

    /// Bytes of all chunks before compression, as far as the manifest tells.
    pub(crate) fn plain_bytes(&self) -> u64 {
        let runs = self.snapshot.manifest().sections.iter().flat_map(|section| &section.runs);
        runs.map(|run| run.plain_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use strandline::snapshot::{Claim, MemoryStore, Owner, Store};

    use super::*;

    /// A job with checkpoints 1 and 2, and its owner.
    fn jobs() -> (Jobs, Owner) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let owner = Owner::claim(Arc::clone(&store), Claim::new("job")).expect("nobody has it");
        publish(&owner, 1);
        publish(&owner, 2);
        let jobs = vec![(JobId::for_name("job"), "job".to_owned())];
        (Jobs { uri: "memory".to_owned(), store, jobs }, owner)
    }

    fn publish(owner: &Owner, number: u64) {
        owner.begin(number, owner.newest()).expect("the next number");
        owner.publish(number, Vec::new(), Vec::new(), 0).expect("it is published");
    }

    #[test]
    fn who_names_none_gets_the_then_newest() {
        let (jobs, owner) = jobs();
        let mut seen = Vec::new();
        let read = Place::Jobs(jobs).read("test", None, |reading| {
            seen.push(reading.snapshot.manifest().checkpoint);
            if seen.len() > 1 {
                return Ok(());
            }
            publish(&owner, 3);
            Err(Failure::subsumed(&reading.name))
        });
        assert!(read.is_ok());
        assert_eq!(seen, [2, 3]);
    }

    #[test]
    fn tries_end_and_a_named_checkpoint_has_one() {
        let place = Place::Jobs(jobs().0);
        for (wanted, tries) in [(None, TRIES), (Some(1), 1)] {
            let mut seen = 0;
            let read = place.read("test", wanted, |reading| -> Result<()> {
                seen += 1;
                Err(Failure::subsumed(&reading.name))
            });
            let failure = read.expect_err("every try has failed");
            assert_eq!((seen, failure.code), (tries, 1));
            assert!(failure.text.starts_with("subsumed while reading: newer"), "{failure:?}");
        }
    }

    #[test]
    fn one_that_was_listed_and_is_gone_is_subsumed() {
        let (jobs, owner) = jobs();
        owner.retain(1, 0).expect("nobody has taken over");
        let opened = jobs.open("test", JobId::for_name("job"), 1);
        assert!(opened.is_err_and(|failure| failure.subsumed && failure.code == 1));
        let opened = jobs.open("test", JobId::for_name("job"), 3);
        assert!(opened.is_err_and(|failure| !failure.subsumed), "there never was one");
    }

    #[test]
    fn what_is_read_stays_while_it_is_read() {
        let (jobs, owner) = jobs();
        let id = JobId::for_name("job");
        let pins = |jobs: &Jobs| jobs.store.list(&format!("{id}/pins/")).expect("a list").len();
        let reading = jobs.open("test", id, 1);
        assert_eq!(pins(&jobs), 1);
        drop(reading);
        assert_eq!(pins(&jobs), 0);
        drop(owner);
    }
}
