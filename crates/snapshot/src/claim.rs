//! How somebody becomes the owner of a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fence::{Accepted, Fence, Fences};
use crate::history::{JobRecord, Listed, all_checkpoints, counts};
use crate::job::JobId;
use crate::lease::Lease;
use crate::live::Base;
use crate::names;
use crate::nonce::Nonce;
use crate::owner::{Kept, Owner};
use crate::snapshot::Snapshot;
use crate::store::{Lock, Store};
use crate::{Compression, Error, ErrorKind, Result};

/// Who wants to write.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The job.
    pub job: JobId,
    /// Its name; the same at every claim.
    pub name: String,
    /// The claimant, for people: the process.
    pub holder: String,
    /// Where it is, for people.
    pub host: String,
    /// Tells its bytes from anybody else's.
    pub nonce: Nonce,
    /// Unix milliseconds.
    pub now_ms: u64,
    /// How long the owner may go without a sign of life before others may take it for dead, where
    /// storage has no locks. [`Owner::renew`] is to be called three times as often.
    pub lease_ms: u64,
    /// All earlier checkpoints shall not count any more.
    pub fresh: bool,
    /// Start from this savepoint (whatever names it for ever), not from a checkpoint, unless the
    /// history that counts began with it already and has a checkpoint.
    pub savepoint: Option<String>,
    /// Take the job over from an owner who may be alive. It will find out at its next checkpoint.
    pub take_over: bool,
    /// The first checkpoint's number shall be above this one: that of the savepoint, say.
    pub above: u64,
    /// How new chunks are compressed.
    pub compression: Compression,
}

impl Claim {
    /// A claim by name, at an unknown time and place: a lease of 15 s, the job's own history, Zstandard.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            job: JobId::for_name(name),
            name: name.to_owned(),
            holder: format!("process {}", std::process::id()),
            host: String::new(),
            nonce: Nonce::random(),
            now_ms: 0,
            lease_ms: 15_000,
            fresh: false,
            savepoint: None,
            take_over: false,
            above: 0,
            compression: Compression::default(),
        }
    }
}

/// Somebody who tries to become the owner, and watches the one who may still be alive.
#[derive(Debug)]
pub struct Claimant {
    store: Arc<dyn Store>,
    claim: Claim,
    /// The sign of life that was there when the watch began, and when that was.
    watched: Option<(u64, u64, u64)>,
}

/// What came of a try.
#[derive(Debug)]
pub enum Attempt {
    /// The job is claimed.
    Claimed(Box<Owner>),
    /// The last owner may be alive: try again after so many milliseconds.
    Wait(u64),
}

impl Claimant {
    /// Nothing is read or written yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, claim: Claim) -> Self {
        Self { store, claim, watched: None }
    }

    /// Tries once. `now_ms` is of any clock that doesn't jump.
    ///
    /// Where storage has locks, the last owner is alive or not. Where it has none, its lease must
    /// run out, from the first try on, without a sign of life.
    ///
    /// # Errors
    /// `Held` if a live process has the job, with who, where and its last sign of life; `Invalid` if
    /// the id belongs to another name; `Damaged` if a record is; the storage fails.
    pub fn attempt(&mut self, now_ms: u64) -> Result<Attempt> {
        let job = self.claim.job;
        let lock = match self.store.lock(&names::lock(job)) {
            Err(error) if error.kind() == ErrorKind::Held && self.claim.take_over => None,
            lock => lock.map_err(|error| held(&self.store, job, error))?,
        };
        if !self.claim.take_over {
            let wait_ms = self.watch(lock.is_some(), now_ms)?;
            if wait_ms > 0 {
                return Ok(Attempt::Wait(wait_ms));
            }
        }
        claim(Arc::clone(&self.store), self.claim.clone(), lock).map(Box::new).map(Attempt::Claimed)
    }

    /// How long the last owner must still be watched. One that had the lock is dead if it has been
    /// had since; one that took over without it may be alive.
    fn watch(&mut self, has_lock: bool, now_ms: u64) -> Result<u64> {
        let may_live = |of: &Lease| !(of.released || (has_lock && of.locked));
        let newest = match Lease::newest(&self.store, self.claim.job) {
            // A sign that can't be read must not keep the job from starting where a lock tells.
            Err(error) if has_lock && error.kind() == ErrorKind::Damaged => None,
            newest => newest?,
        };
        let Some(lease) = newest.filter(may_live) else {
            return Ok(0);
        };
        let (token, sequence, since_ms) =
            *self.watched.get_or_insert((lease.token, lease.sequence, now_ms));
        if (token, sequence) != (lease.token, lease.sequence) {
            let text = format!("the job is being run by {}: stop that first", lease.describe());
            return Err(Error::new(ErrorKind::Held, text));
        }
        Ok(since_ms.saturating_add(lease.lease_ms).saturating_sub(now_ms))
    }
}

impl Owner {
    /// Takes the job over, if that is possible without waiting. From here on nobody else's
    /// checkpoints count.
    ///
    /// # Errors
    /// As [`Claimant::attempt`]; `Held` also where the last owner would have to be watched.
    pub fn claim(store: Arc<dyn Store>, claim: Claim) -> Result<Self> {
        let mut claimant = Claimant::new(store, claim);
        match claimant.attempt(0)? {
            Attempt::Claimed(owner) => Ok(*owner),
            Attempt::Wait(wait_ms) => {
                let lease = Lease::newest(&claimant.store, claimant.claim.job)?;
                let holder = lease.map_or_else(|| "somebody".to_owned(), |lease| lease.describe());
                let text = format!(
                    "the job may still be run by {holder}: if it is dead, that is certain in \
                     {wait_ms} ms"
                );
                Err(Error::new(ErrorKind::Held, text))
            }
        }
    }
}

fn claim(store: Arc<dyn Store>, claim: Claim, lock: Option<Box<dyn Lock>>) -> Result<Owner> {
    let job = claim.job;
    store.sweep(&format!("{job}/"))?;
    let record = JobRecord { job_id: job, name: claim.name, created_ms: claim.now_ms };
    record.create(&store)?;
    let fence = Fence {
        token: next_token(&store, job)?,
        holder: claim.holder,
        host: claim.host,
        nonce: claim.nonce,
        created_ms: claim.now_ms,
    };
    // A start from nothing needs nothing of what was before, and mends what is damaged of it.
    let before = unless_damaged(claim.fresh, Lease::newest(&store, job))?;
    fence.create(&store, job)?;
    Accepted::seal(&store, job, &fence)?;
    // From here on nothing that an earlier owner publishes is reported by it.
    let fences = unless_damaged(claim.fresh, Fences::read(&store, job))?;
    let all = all_checkpoints(&store, job)?;
    let taken_up = claim.savepoint.as_ref().is_some_and(|savepoint| fences.began_with(savepoint));
    let counting: Vec<Listed> =
        all.iter().filter(|listed| counts(&fences, listed)).cloned().collect();
    // Taken up, but nothing has come of it: once more.
    let goes_on = taken_up && !counting.is_empty();
    let anew = claim.fresh || (claim.savepoint.is_some() && !goes_on);
    let counting = if anew { Vec::new() } else { counting };
    let begun = before.map_or(0, |lease| lease.highest);
    let first = first_number(&store, job, &fences, begun.max(claim.above))?;
    let accepted = Accepted {
        token: fence.token,
        nonce: fence.nonce,
        accepted: counting.last().map(|listed| listed.checkpoint),
        first,
        savepoint: claim.savepoint.filter(|_| anew),
    };
    let lease = Lease {
        token: fence.token,
        sequence: 1,
        holder: fence.holder.clone(),
        host: fence.host.clone(),
        renewed_ms: claim.now_ms,
        lease_ms: claim.lease_ms,
        highest: first - 1,
        released: false,
        locked: lock.is_some(),
    };
    lease.give(&store, job)?;
    remove_older_leases(&store, job, fence.token)?;
    accepted.create(&store, job).map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            let text = "another process has taken over this job while it was being claimed";
            Error::new(ErrorKind::Fenced, text).because(error)
        } else {
            error
        }
    })?;
    fence.check(&store, job)?;
    let kept = counting.iter().map(|listed| Ok((listed.checkpoint, keep(&store, job, listed)?)));
    let kept = kept.collect::<Result<_>>()?;
    let sizes = pack_sizes(&store, job)?;
    let opened = Opened { fence, accepted, lease, kept, sizes, lock };
    Ok(Owner::new(store, job, opened, counting.last().cloned(), claim.compression))
}

/// What was read; nothing, if it is damaged and need not be read.
fn unless_damaged<T: Default>(need_not: bool, read: Result<T>) -> Result<T> {
    match read {
        Err(error) if need_not && error.kind() == ErrorKind::Damaged => Ok(T::default()),
        read => read,
    }
}

/// What a claim has found and made.
pub(crate) struct Opened {
    pub(crate) fence: Fence,
    pub(crate) accepted: Accepted,
    pub(crate) lease: Lease,
    pub(crate) kept: BTreeMap<u64, Kept>,
    pub(crate) sizes: BTreeMap<Arc<str>, u64>,
    pub(crate) lock: Option<Box<dyn Lock>>,
}

/// What is known of a checkpoint. Storage that fails is no damage: the next try may find it whole.
fn keep(store: &Arc<dyn Store>, job: JobId, listed: &Listed) -> Result<Kept> {
    let opened = Snapshot::open(store, job, listed.checkpoint);
    match opened.and_then(|snapshot| Base::read(&snapshot)) {
        Ok(base) => Ok(Kept { damaged: false, base: Some(Arc::new(base)) }),
        Err(error) if error.kind() == ErrorKind::Io => Err(error),
        Err(_) => Ok(Kept { damaged: true, base: None }),
    }
}

fn pack_sizes(store: &Arc<dyn Store>, job: JobId) -> Result<BTreeMap<Arc<str>, u64>> {
    let objects = store.list(&names::packs(job))?;
    let sizes = objects.iter().filter_map(|object| {
        let (_, name) = object.path.rsplit_once('/')?;
        Some((name.into(), object.bytes))
    });
    Ok(sizes.collect())
}

/// One above every token of which there is a trace: where a fence is gone, what its owner has
/// recorded still speaks of all lower tokens.
fn next_token(store: &Arc<dyn Store>, job: JobId) -> Result<u64> {
    let accepted = store.list(&names::all_accepted(job))?;
    let leases = store.list(&names::leases(job))?;
    let accepted = accepted.iter().filter_map(|object| names::token(&object.path));
    let leases = leases.iter().filter_map(|object| names::lease_order(&object.path));
    let seen = accepted.chain(leases.map(|(token, _)| token)).max().unwrap_or(0);
    let seen = seen.max(Fence::newest_token(store, job)?);
    seen.checked_add(1).ok_or_else(|| {
        Error::invalid(format!("there is no fence token above {seen}, which is in use"))
    })
}

/// One above every number under the job: manifests, also of what was given up, packs, what owners began with
/// and what the last one has begun.
fn first_number(store: &Arc<dyn Store>, job: JobId, fences: &Fences, floor: u64) -> Result<u64> {
    let packs = store.list(&names::packs(job))?;
    let of_pack = |path: &str| names::pack_checkpoint(path.rsplit_once('/')?.1);
    let seen = packs.iter().filter_map(|object| of_pack(&object.path));
    let manifests = store.list(&names::checkpoints(job))?;
    let seen = seen.chain(manifests.iter().filter_map(|of| names::manifest_checkpoint(&of.path)));
    let seen = seen.chain([floor]).max().unwrap_or(0);
    let next = seen.checked_add(1).ok_or_else(|| {
        Error::invalid(format!("there is no checkpoint number above {seen}, which is in use"))
    })?;
    Ok(fences.newest().map_or(next, |record| next.max(record.first)))
}

fn remove_older_leases(store: &Arc<dyn Store>, job: JobId, token: u64) -> Result<()> {
    for object in store.list(&names::leases(job))? {
        if names::lease_order(&object.path).is_some_and(|(of, _)| of < token) {
            store.delete(&object.path)?;
        }
    }
    Ok(())
}

/// Says who holds the job.
fn held(store: &Arc<dyn Store>, job: JobId, error: Error) -> Error {
    if error.kind() != ErrorKind::Held {
        return error;
    }
    let lease = Lease::newest(store, job).ok().flatten();
    let holder = lease.map_or_else(|| "somebody".to_owned(), |lease| lease.describe());
    let text = format!("the job is being run by {holder}: stop that first");
    Error::new(ErrorKind::Held, text).because(error)
}
