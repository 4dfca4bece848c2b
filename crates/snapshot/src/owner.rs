//! The one writer of a job: claims it, begins checkpoints, publishes them, deletes old ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::fence::{Fence, Fences};
use crate::hash::Blob;
use crate::history::{JobRecord, Listed, all_checkpoints, counts};
use crate::job::JobId;
use crate::manifest::{Manifest, RunRef, Section};
use crate::names;
use crate::pack::{Known, PackWriter, Place, Written};
use crate::retain;
use crate::snapshot::Snapshot;
use crate::store::{Lock, Store};
use crate::{Error, ErrorKind, Result};

/// Who wants to write.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The job.
    pub job: JobId,
    /// Its name; the same at every claim.
    pub name: String,
    /// The claimant, for people: process, host.
    pub holder: String,
    /// Unix milliseconds.
    pub now_ms: u64,
    /// All earlier checkpoints shall not count any more.
    pub fresh: bool,
}

/// The one writer of a job. Methods may be called from several threads.
#[derive(Debug)]
pub struct Owner {
    store: Arc<dyn Store>,
    job: JobId,
    fence: Fence,
    accepted: Option<Listed>,
    state: Mutex<State>,
    _lock: Option<Box<dyn Lock>>,
}

/// What changes while the owner lives.
#[derive(Debug, Default)]
struct State {
    /// Completed checkpoints that count and are kept.
    kept: BTreeMap<u64, Kept>,
    /// Checkpoints begun, and what each may reuse.
    making: BTreeMap<u64, Arc<Base>>,
}

/// What is known of a completed checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// `None` where its indexes can't be read: then no pack is deleted at all.
    pub(crate) base: Option<Arc<Base>>,
    pub(crate) damaged: bool,
}

/// The packs and chunks that a checkpoint names.
#[derive(Debug, Default)]
pub(crate) struct Base {
    pub(crate) packs: BTreeSet<String>,
    known: Arc<Known>,
}

/// A checkpoint in the making: gives out writers. Cloned freely.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    store: Arc<dyn Store>,
    job: JobId,
    number: u64,
    token: u64,
    base: Arc<Base>,
}

/// A checkpoint that has been published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Bytes of its manifest.
    pub manifest_bytes: u64,
    /// Bytes that a restore reads, the manifest left out.
    pub full_bytes: u64,
    /// Bytes that it added to storage, the manifest among them.
    pub written_bytes: u64,
}

impl Owner {
    /// Takes the job over. From here on nobody else's checkpoints count.
    ///
    /// # Errors
    /// `Held` if a live process has it; `Invalid` if the id belongs to another name; `Damaged` if a
    /// fence is; the storage fails.
    pub fn claim(store: Arc<dyn Store>, claim: Claim) -> Result<Self> {
        let job = claim.job;
        let lock =
            store.lock(&names::lock(job)).map_err(|error| name_holder(&store, job, error))?;
        store.sweep(&format!("{job}/"))?;
        let record = JobRecord { job_id: job, name: claim.name, created_ms: claim.now_ms };
        record.create(&store)?;
        let fences = Fences::read(&store, job)?;
        let all = all_checkpoints(&store, job)?;
        let counting = all.iter().filter(|listed| !claim.fresh && counts(&fences, listed));
        let counting: Vec<Listed> = counting.cloned().collect();
        let first = next_number(&store, job, &all, &fences)?;
        let token = fences.newest().map_or(0, |fence| fence.token) + 1;
        let newest = counting.last().cloned();
        let fence = Fence {
            token,
            holder: claim.holder,
            created_ms: claim.now_ms,
            accepted: newest.as_ref().map(|listed| listed.checkpoint),
            first,
        };
        Fences::create(&store, job, &fence)?;
        let kept = counting.iter().map(|listed| (listed.checkpoint, keep(&store, job, listed)));
        let state = State { kept: kept.collect(), making: BTreeMap::new() };
        let state = Mutex::new(state);
        Ok(Self { store, job, fence, accepted: newest, state, _lock: lock })
    }

    /// The fence token: grows with every owner.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.fence.token
    }

    /// The number of this owner's first checkpoint: above every number of which there is a trace
    /// under the job. (One that was given up without a trace may come again, under this token.)
    #[must_use]
    pub fn first_checkpoint(&self) -> u64 {
        self.fence.first
    }

    /// The checkpoint that this owner goes on from.
    #[must_use]
    pub fn accepted(&self) -> Option<&Listed> {
        self.accepted.as_ref()
    }

    /// Begins a checkpoint. What the newest completed one names can be reused, and is kept until
    /// this one has been published or abandoned.
    ///
    /// # Errors
    /// The number has been used.
    pub fn begin(&self, checkpoint: u64) -> Result<Checkpoint> {
        let mut state = self.state.lock();
        let used = state.kept.keys().next_back().is_some_and(|newest| checkpoint <= *newest);
        if used || checkpoint < self.fence.first || state.making.contains_key(&checkpoint) {
            return Err(Error::invalid(format!("checkpoint {checkpoint} has been used")));
        }
        let base = state.kept.values().rev().find_map(|kept| kept.base.clone()).unwrap_or_default();
        state.making.insert(checkpoint, Arc::clone(&base));
        Ok(Checkpoint {
            store: Arc::clone(&self.store),
            job: self.job,
            number: checkpoint,
            token: self.fence.token,
            base,
        })
    }

    /// Publishes a checkpoint: this is the commit point. Everything that `written` names is durable
    /// by then.
    ///
    /// # Errors
    /// `Fenced` if another owner has taken over; `Unsettled` if the storage failed in a way that
    /// leaves open whether the checkpoint exists: then stop, and let the next owner find out. With
    /// any other error it does not exist.
    pub fn publish(
        &self,
        checkpoint: u64,
        written: Vec<Written>,
        metadata: Vec<u8>,
        now_ms: u64,
    ) -> Result<Published> {
        let full_bytes = written.iter().map(|of| of.full_bytes).sum();
        let added: u64 = written.iter().map(|of| of.written_bytes).sum();
        let (sections, base) = gather(written);
        let manifest = Manifest {
            job_id: self.job,
            checkpoint,
            token: self.fence.token,
            created_ms: now_ms,
            full_bytes,
            written_bytes: added,
            sections,
            metadata: Blob(metadata),
        };
        let bytes = manifest.encode()?;
        self.check_fence()?;
        let path = names::manifest(self.job, checkpoint);
        self.create_manifest(&path, &bytes)?;
        // It exists: from here on nothing of it is garbage, whatever else fails.
        let kept = Kept { base: Some(Arc::new(base)), damaged: false };
        {
            let mut state = self.state.lock();
            state.making.remove(&checkpoint);
            state.kept.insert(checkpoint, kept);
        }
        self.check_fence().map_err(|error| {
            let fenced = error.kind() == ErrorKind::Fenced;
            if fenced { error } else { unsettled(checkpoint, error) }
        })?;
        let manifest_bytes = bytes.len() as u64;
        Ok(Published { manifest_bytes, full_bytes, written_bytes: added + manifest_bytes })
    }

    /// Creates the manifest, or sees to it that there is none.
    fn create_manifest(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let Err(error) = self.store.create(path, bytes) else {
            return Ok(());
        };
        if error.kind() == ErrorKind::AlreadyExists {
            return Err(error);
        }
        let number = names::manifest_checkpoint(path).unwrap_or_default();
        self.store.delete(path).map_err(|error| unsettled(number, error))?;
        Err(error)
    }

    /// Whether this is still the owner: no newer fence, and its own is the one it made. (Somebody
    /// may have removed the whole folder and started anew.)
    fn check_fence(&self) -> Result<()> {
        let token = self.fence.token;
        let fences = self.store.list(&names::fences(self.job))?;
        let newest = fences.iter().filter_map(|object| names::fence_token(&object.path)).max();
        if newest == Some(token) && Fences::read_one(&self.store, self.job, token)? == self.fence {
            return Ok(());
        }
        let text = format!(
            "another process has taken over this job: token={token} newest_token={}",
            newest.unwrap_or(0)
        );
        Err(Error::new(ErrorKind::Fenced, text))
    }

    /// Gives a checkpoint up: what was written for it is garbage, never reused, and deleted. One
    /// that has been published all the same is left alone.
    ///
    /// # Errors
    /// The storage fails; the next [`Owner::retain`] tries again.
    pub fn abandon(&self, checkpoint: u64) -> Result<()> {
        self.state.lock().making.remove(&checkpoint);
        let manifest = self.store.size(&names::manifest(self.job, checkpoint));
        if !manifest.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(());
        }
        for object in self.store.list(&names::packs(self.job))? {
            let (_, name) = object.path.rsplit_once('/').unwrap_or_default();
            let own = names::pack_owner(name) == Some((checkpoint, self.fence.token));
            if own && !self.names(name) {
                self.store.delete(&object.path)?;
            }
        }
        Ok(())
    }

    /// Whether a completed checkpoint names a pack, as far as is known.
    fn names(&self, pack: &str) -> bool {
        let state = self.state.lock();
        state
            .kept
            .values()
            .any(|kept| kept.base.as_ref().is_none_or(|base| base.packs.contains(pack)))
    }

    /// Keeps the newest `count` completed checkpoints (at least one), and deletes the others, void
    /// ones, and packs that nobody names. Manifests go first, the oldest first; interrupted, it can
    /// be done again. Nothing that a checkpoint in the making may name is touched. While a kept
    /// checkpoint can't be read no pack is deleted, and one that is damaged is deleted only when
    /// `count` newer ones are whole.
    ///
    /// # Errors
    /// `Fenced` if another owner has taken over: then nothing is deleted. The storage fails; what
    /// has been deleted stays deleted.
    pub fn retain(&self, count: usize) -> Result<Swept> {
        let packs = self.store.list(&names::packs(self.job))?;
        let manifests = self.store.list(&names::checkpoints(self.job))?;
        // What a later owner has made is in the lists only if its fence was there before.
        self.check_fence()?;
        let numbers =
            manifests.iter().filter_map(|object| names::manifest_checkpoint(&object.path));
        let plan = {
            let mut state = self.state.lock();
            let live: BTreeSet<String> =
                state.making.values().flat_map(|base| base.packs.iter().cloned()).collect();
            let making = state.making.keys().copied().collect();
            let listed = retain::Listing { numbers: numbers.collect(), packs, live, making };
            let plan = retain::plan(&state.kept, listed, count.max(1));
            for checkpoint in &plan.checkpoints {
                state.kept.remove(checkpoint);
            }
            plan
        };
        for checkpoint in &plan.checkpoints {
            self.store.delete(&names::manifest(self.job, *checkpoint))?;
        }
        for pack in &plan.packs {
            self.store.delete(pack)?;
        }
        Ok(Swept { checkpoints: plan.checkpoints.len(), packs: plan.packs.len() })
    }
}

/// What a retention deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Checkpoints.
    pub checkpoints: usize,
    /// Packs.
    pub packs: usize,
}

impl Checkpoint {
    /// A writer; each label once. A label has 1 to 100 of `a-z`, `0-9` and `-`.
    ///
    /// # Errors
    /// The label doesn't fit.
    pub fn writer(&self, label: &str) -> Result<PackWriter> {
        let name = names::pack_name(self.number, self.token, label)?;
        Ok(PackWriter::new(Arc::clone(&self.store), self.job, &name, Arc::clone(&self.base.known)))
    }
}

/// Runs by section, and what they name.
fn gather(written: Vec<Written>) -> (Vec<Section>, Base) {
    let mut sections: BTreeMap<String, Vec<RunRef>> = BTreeMap::new();
    let mut packs = BTreeSet::new();
    let mut known = Known::new();
    for of in written {
        for (name, runs) in of.sections {
            packs.extend(runs.iter().map(|run| run.pack.clone()));
            sections.entry(name).or_default().extend(runs);
        }
        packs.extend(of.known.iter().map(|(_, place)| place.pack.to_string()));
        known.extend(of.known);
    }
    let sections = sections.into_iter().map(|(name, runs)| Section { name, runs }).collect();
    (sections, Base { packs, known: Arc::new(known) })
}

fn keep(store: &Arc<dyn Store>, job: JobId, listed: &Listed) -> Kept {
    let opened = Snapshot::open(store, job, listed.checkpoint);
    let base = opened.and_then(|snapshot| base_of(&snapshot)).map(Arc::new);
    Kept { damaged: base.is_err(), base: base.ok() }
}

/// What a checkpoint names, from its indexes.
fn base_of(snapshot: &Snapshot) -> Result<Base> {
    let mut packs = BTreeSet::new();
    let mut known = Known::new();
    for run in snapshot.all_sections().iter().flat_map(|section| &section.runs) {
        packs.insert(run.pack.clone());
        let index = snapshot.index(run)?;
        packs.extend(index.packs.iter().cloned());
        let names: Vec<Arc<str>> = index.packs.iter().map(|name| name.as_str().into()).collect();
        known.extend(index.chunks.iter().filter_map(|chunk| {
            let place = Place {
                pack: names.get(chunk.pack).cloned()?,
                offset: chunk.offset,
                stored_bytes: chunk.stored_bytes,
                plain_bytes: chunk.plain_bytes,
            };
            Some((chunk.hash, place))
        }));
    }
    Ok(Base { packs, known: Arc::new(known) })
}

/// One above every number under the job: manifests, void ones too, packs, and what fences began
/// with.
fn next_number(store: &Arc<dyn Store>, job: JobId, all: &[Listed], fences: &Fences) -> Result<u64> {
    let packs = store.list(&names::packs(job))?;
    let of_pack = |path: &str| names::pack_checkpoint(path.rsplit_once('/')?.1);
    let seen = packs.iter().filter_map(|object| of_pack(&object.path));
    let seen = seen.chain(all.iter().map(|listed| listed.checkpoint));
    let seen = seen.max().map_or(1, |number| number + 1);
    Ok(fences.newest().map_or(seen, |fence| seen.max(fence.first)))
}

fn unsettled(checkpoint: u64, error: Error) -> Error {
    let text = format!("whether checkpoint {checkpoint} exists is not known");
    Error::new(ErrorKind::Unsettled, text).because(error)
}

/// Says who holds the job.
fn name_holder(store: &Arc<dyn Store>, job: JobId, error: Error) -> Error {
    if error.kind() != ErrorKind::Held {
        return error;
    }
    let fences = Fences::read(store, job).unwrap_or_default();
    let holder = fences.newest().map_or("somebody", |fence| fence.holder.as_str());
    let text = format!("the job is being run by {holder}: stop that first");
    Error::new(ErrorKind::Held, text).because(error)
}
