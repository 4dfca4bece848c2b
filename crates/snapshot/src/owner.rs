//! The one writer of a job: begins checkpoints, publishes them, deletes old ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::block::Compression;
use crate::claim::Opened;
use crate::fence::{Accepted, Fence, create_own};
use crate::hash::{Blob, Hash};
use crate::history::Listed;
use crate::job::JobId;
use crate::lease::Lease;
use crate::live::Base;
use crate::manifest::{self, Manifest, Section};
use crate::merge;
use crate::names;
use crate::pack::{LiveRun, PackWriter, Written};
use crate::plan::{self, PackBytes};
use crate::publish::gather;
use crate::retain;
use crate::run::Packs;
use crate::store::{Lock, Store};
use crate::{Error, ErrorKind, Result, pin};

/// The label of the pack that merged runs go to.
const MERGE_LABEL: &str = "merge";

/// The one writer of a job. Methods may be called from several threads.
#[derive(Debug)]
pub struct Owner {
    store: Arc<dyn Store>,
    job: JobId,
    fence: Fence,
    record: Accepted,
    accepted: Option<Listed>,
    compression: Compression,
    state: Mutex<State>,
    /// The last sign of life.
    lease: Mutex<Lease>,
    _lock: Option<Box<dyn Lock>>,
}

/// What changes while the owner lives.
#[derive(Debug, Default)]
struct State {
    /// Completed checkpoints that count and are kept.
    kept: BTreeMap<u64, Kept>,
    /// Checkpoints begun, and what each goes on from.
    making: BTreeMap<u64, Arc<Base>>,
    sizes: BTreeMap<Arc<str>, u64>,
    /// The highest number that has been begun.
    highest: u64,
    /// Chunks that are known to be damaged.
    distrusted: Arc<BTreeSet<Hash>>,
}

/// What is known of a completed checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// `None` where its indexes can't be read: then no pack is deleted at all.
    pub(crate) base: Option<Arc<Base>>,
    pub(crate) damaged: bool,
}

/// A checkpoint in the making: gives out writers. Cloned freely.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    packs: Arc<Packs>,
    job: JobId,
    number: u64,
    token: u64,
    compression: Compression,
    base: Arc<Base>,
    /// Packs of which little counts: nothing in them is named again where it can be helped.
    dying: Arc<BTreeSet<Arc<str>>>,
    /// What counts of each pack that the base names, and its size.
    packs_of_base: Arc<(PackBytes, PackBytes)>,
    distrusted: Arc<BTreeSet<Hash>>,
}

/// A checkpoint that has been published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Bytes of its manifest.
    pub manifest_bytes: u64,
    /// Bytes that a restore reads at most, the manifest left out.
    pub full_bytes: u64,
    /// Bytes that it added to storage, the manifest among them.
    pub written_bytes: u64,
}

impl Owner {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        job: JobId,
        opened: Opened,
        accepted: Option<Listed>,
        compression: Compression,
    ) -> Self {
        let Opened { fence, accepted: record, lease, kept, sizes, lock } = opened;
        let highest = record.first - 1;
        let distrusted = Arc::default();
        let state = State { kept, making: BTreeMap::new(), sizes, highest, distrusted };
        Self {
            store,
            job,
            fence,
            record,
            accepted,
            compression,
            state: Mutex::new(state),
            lease: Mutex::new(lease),
            _lock: lock,
        }
    }

    /// The fence token: grows with every owner.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.fence.token
    }

    /// The number of this owner's first checkpoint: above every number of which there is a trace
    /// under the job.
    #[must_use]
    pub fn first_checkpoint(&self) -> u64 {
        self.record.first
    }

    /// The checkpoint that this owner goes on from.
    #[must_use]
    pub fn accepted(&self) -> Option<&Listed> {
        self.accepted.as_ref()
    }

    /// The savepoint that it was told to start from, if it does.
    #[must_use]
    pub fn savepoint(&self) -> Option<&str> {
        self.record.savepoint.as_deref()
    }

    /// The newest completed checkpoint that can be read: what the next one may be based on.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        let state = self.state.lock();
        state.kept.iter().rev().find(|(_, kept)| kept.base.is_some()).map(|(number, _)| *number)
    }

    /// Gives a sign of life: to be called three times within the lease. Learns of a successor early.
    ///
    /// # Errors
    /// `Fenced` if another owner has taken over; the storage fails.
    pub fn renew(&self, now_ms: u64) -> Result<()> {
        self.fence.check(&self.store, self.job)?;
        self.sign(|lease| lease.renewed_ms = now_ms)
    }

    fn sign(&self, change: impl FnOnce(&mut Lease)) -> Result<()> {
        let mut lease = self.lease.lock();
        let highest = self.state.lock().highest;
        let mut next = Lease { sequence: lease.sequence + 1, highest, ..lease.clone() };
        change(&mut next);
        let given = next.give(&self.store, self.job);
        // A sign whose outcome is in doubt is not given again: the next one has a number of its own.
        *lease = next;
        given
    }

    /// Learns that chunks are damaged, from a [`Report`](crate::Report): checkpoints begun from now on
    /// do not name them again. What is written in full is whole then; of what is written as changes,
    /// the parts that are lost are to be [rewritten](PackWriter::rewrite).
    pub fn distrust(&self, chunks: impl IntoIterator<Item = Hash>) {
        let mut state = self.state.lock();
        let mut distrusted = (*state.distrusted).clone();
        distrusted.extend(chunks);
        state.distrusted = Arc::new(distrusted);
    }

    /// Begins a checkpoint. `base` is the completed one that it goes on from: entries written as
    /// [`Changed`](crate::Contents::Changed) are changes since then, and what has not changed is
    /// not written again. The base is kept until this checkpoint has been published or abandoned.
    ///
    /// # Errors
    /// The number has been used; there is no such base, or it can't be read.
    pub fn begin(&self, checkpoint: u64, base: Option<u64>) -> Result<Checkpoint> {
        let (base, sizes) = self.begin_on(checkpoint, base)?;
        let live = base.live_bytes().clone();
        let dying = plan::dying(&live, &sizes);
        Ok(Checkpoint {
            packs: Arc::new(Packs {
                store: Arc::clone(&self.store),
                folder: names::packs(self.job),
                manifest: names::manifest(self.job, base.checkpoint),
                maps: None,
                local: None,
            }),
            job: self.job,
            number: checkpoint,
            token: self.fence.token,
            compression: self.compression,
            base,
            dying: Arc::new(dying),
            packs_of_base: Arc::new((live, sizes)),
            distrusted: Arc::clone(&self.state.lock().distrusted),
        })
    }

    /// Takes the number, and keeps the base; the sizes of packs that it names.
    fn begin_on(&self, checkpoint: u64, base: Option<u64>) -> Result<(Arc<Base>, PackBytes)> {
        let mut state = self.state.lock();
        if checkpoint < self.record.first || checkpoint <= state.highest {
            return Err(Error::invalid(format!("checkpoint {checkpoint} has been used")));
        }
        let base = match base {
            None => Arc::default(),
            Some(number) => state.base(number).ok_or_else(|| {
                Error::invalid(format!("checkpoint {number} can't be a base: it is not kept"))
            })?,
        };
        state.making.insert(checkpoint, Arc::clone(&base));
        state.highest = checkpoint;
        let sizes = base.packs.iter().filter_map(|pack| state.sizes.get_key_value(pack));
        let sizes = sizes.map(|(pack, bytes)| (Arc::clone(pack), *bytes)).collect();
        Ok((base, sizes))
    }

    /// Publishes a checkpoint: this is the commit point. Everything that `written` names is durable
    /// by then. A section that nobody has written is not in it.
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
        let base = self.state.lock().making.get(&checkpoint).cloned();
        let base =
            base.ok_or_else(|| Error::invalid(format!("checkpoint {checkpoint} is not begun")))?;
        let other = |of: &&Written| of.checkpoint != checkpoint && of.checkpoint > 0;
        if let Some(of) = written.iter().find(other) {
            let text = format!(
                "what was written for checkpoint {} can't be published as checkpoint {checkpoint}",
                of.checkpoint
            );
            return Err(Error::invalid(text));
        }
        let added: u64 = written.iter().map(|of| of.written_bytes).sum();
        let sizes: Vec<(Arc<str>, u64)> =
            written.iter().filter_map(|of| Some((of.pack.clone()?, of.written_bytes))).collect();
        let sections = gather(&base, written)?;
        let full_bytes = sections.values().flatten().map(live_bytes).sum();
        let manifest = Manifest {
            job_id: self.job,
            checkpoint,
            token: self.fence.token,
            nonce: self.fence.nonce,
            created_ms: now_ms,
            full_bytes,
            written_bytes: added,
            sections: sections.iter().map(section).collect(),
            metadata: Blob(metadata),
        };
        let bytes = manifest.encode()?;
        self.check_fence()?;
        self.create_manifest(checkpoint, &bytes)?;
        // It exists, and is no garbage while it is in the making; but it may be void. What doesn't
        // count must not push out what does, in a `retain` that is under way.
        self.check_fence().map_err(|error| {
            let fenced = error.kind() == ErrorKind::Fenced;
            if fenced { error } else { unsettled(checkpoint, error) }
        })?;
        self.keep(checkpoint, Base::new(checkpoint, sections), sizes);
        let manifest_bytes = bytes.len() as u64;
        Ok(Published { manifest_bytes, full_bytes, written_bytes: added + manifest_bytes })
    }

    fn keep(&self, checkpoint: u64, base: Base, sizes: Vec<(Arc<str>, u64)>) {
        let kept = Kept { base: Some(Arc::new(base)), damaged: false };
        let mut state = self.state.lock();
        state.making.remove(&checkpoint);
        state.kept.insert(checkpoint, kept);
        state.sizes.extend(sizes);
    }

    /// Creates the manifest, or sees to it that there is none and will be none.
    fn create_manifest(&self, checkpoint: u64, bytes: &[u8]) -> Result<()> {
        let path = names::manifest(self.job, checkpoint);
        let Err(error) = create_own(&self.store, &path, bytes) else {
            return Ok(());
        };
        if error.kind() == ErrorKind::AlreadyExists {
            return Err(error);
        }
        if self.store.local_root().is_some() {
            // What a folder has not done by now it never will. What is there may be another owner's.
            let there = self.store.size(&path).and_then(|_| self.store.read(&path, 0, bytes.len()));
            match there {
                Err(missing) if missing.kind() == ErrorKind::NotFound => {}
                Ok(there) if there == bytes => {}
                Err(unknown) if unknown.kind() != ErrorKind::Damaged => {
                    return Err(unsettled(checkpoint, unknown));
                }
                Ok(_) | Err(_) => return Err(error),
            }
            self.store.delete(&path).map_err(|error| unsettled(checkpoint, error))?;
            return Err(error);
        }
        self.occupy(checkpoint, &path, bytes, error)
    }

    /// A write that seems to have failed may be on its way still. With its name taken it comes to
    /// nothing; if it comes first, it has not failed.
    fn occupy(&self, checkpoint: u64, path: &str, bytes: &[u8], failed: Error) -> Result<()> {
        match create_own(&self.store, path, &manifest::void(self.fence.nonce)?) {
            Ok(()) => Err(failed),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let there = self.store.read(path, 0, bytes.len());
                let there = there.map_err(|error| unsettled(checkpoint, error))?;
                if there == bytes { Ok(()) } else { Err(error) }
            }
            Err(error) => Err(unsettled(checkpoint, error)),
        }
    }

    fn check_fence(&self) -> Result<()> {
        self.fence.check(&self.store, self.job)
    }

    /// Gives a checkpoint up: what was written for it is garbage, never reused, and deleted. One
    /// that has been published all the same is left alone.
    ///
    /// # Errors
    /// The storage fails; the next [`Owner::retain`] tries again.
    pub fn abandon(&self, checkpoint: u64) -> Result<()> {
        self.state.lock().making.remove(&checkpoint);
        let untraced = self.lease.lock().highest < checkpoint;
        let manifest = self.store.size(&names::manifest(self.job, checkpoint));
        if !manifest.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(());
        }
        // A trace of the number must stay before the packs go: it is not given out again.
        if untraced {
            self.sign(|_| {})?;
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
    /// be done again. Nothing that a checkpoint in the making may name is touched, nor what a
    /// reader has pinned. While a kept checkpoint can't be read no pack is deleted, and one that is
    /// damaged is deleted only when `count` newer ones are whole.
    ///
    /// # Errors
    /// `Fenced` if another owner has taken over: then nothing is deleted. The storage fails; what
    /// has been deleted stays deleted.
    pub fn retain(&self, count: usize, now_ms: u64) -> Result<Swept> {
        let packs = self.store.list(&names::packs(self.job))?;
        let manifests = self.store.list(&names::checkpoints(self.job))?;
        // What a later owner has made is in the lists only if its fence was there before.
        self.check_fence()?;
        let numbers =
            manifests.iter().filter_map(|object| names::manifest_checkpoint(&object.path));
        let plan = {
            let mut state = self.state.lock();
            let bases = state.making.values();
            let live = bases.flat_map(|base| base.packs.iter().cloned()).collect();
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
        let checkpoints = plan.checkpoints.len();
        Ok(Swept { checkpoints, packs: self.delete_packs(plan.packs, now_ms)? })
    }

    /// Deletes packs that no reader has pinned. Manifests are gone by now: a reader that comes later
    /// finds none.
    fn delete_packs(&self, packs: Vec<String>, now_ms: u64) -> Result<usize> {
        if packs.is_empty() {
            return Ok(0);
        }
        let pinned = pin::highest(&self.store, self.job, now_ms)?;
        let mut deleted = 0;
        for path in packs {
            let (_, name) = path.rsplit_once('/').unwrap_or_default();
            if names::pack_checkpoint(name).is_some_and(|number| number <= pinned) {
                continue;
            }
            self.store.delete(&path)?;
            self.state.lock().sizes.remove(name);
            deleted += 1;
        }
        Ok(deleted)
    }
}

impl Drop for Owner {
    /// The next start need not wait. If this fails, it waits for the lease to run out.
    fn drop(&mut self) {
        self.sign(|lease| lease.released = true).ok();
    }
}

impl State {
    fn base(&self, number: u64) -> Option<Arc<Base>> {
        self.kept.get(&number)?.base.clone()
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
    /// The completed checkpoint that this one goes on from.
    #[must_use]
    pub fn base(&self) -> Option<u64> {
        (self.base.checkpoint > 0).then_some(self.base.checkpoint)
    }

    /// A writer; each label once. A label has 1 to 100 of `a-z`, `0-9` and `-`, and is not `merge`.
    ///
    /// # Errors
    /// The label doesn't fit.
    pub fn writer(&self, label: &str) -> Result<PackWriter> {
        if label == MERGE_LABEL {
            return Err(Error::invalid(format!("the label {label:?} is the crate's own")));
        }
        self.pack(label)
    }

    fn pack(&self, label: &str) -> Result<PackWriter> {
        let name = names::pack_name(self.number, self.token, label)?;
        let (base, dying) = (Arc::clone(&self.base), Arc::clone(&self.dying));
        let distrusted = Arc::clone(&self.distrusted);
        let look_up = move |section: &str| {
            let section = base.sections.get(section);
            section.map_or_else(Arc::default, |of| of.known(&dying, &distrusted))
        };
        let path = names::pack(self.job, &name);
        let store = Arc::clone(&self.packs.store);
        let writer = PackWriter::new(store, path, self.compression, Box::new(look_up));
        Ok(writer.for_checkpoint(self.number))
    }

    /// Does a share of the work that keeps reading quick and space bounded: merges runs of the base,
    /// writes parts of it again (the bounds are in [`crate`]'s page), once for each
    /// checkpoint that writes changes. To be published with the rest. May take as long as writing some
    /// five times the changes; may run beside writers.
    ///
    /// # Errors
    /// The base is damaged, or storage fails. The checkpoint may be published without it.
    pub fn merge(&self) -> Result<Written> {
        let mut writer = self.pack(MERGE_LABEL)?;
        let sections = self.base.sections.iter();
        let sections = sections.map(|(name, section)| (name.as_str(), &section.runs[..]));
        let mut left = plan::budget(self.changed_bytes());
        for task in plan::plan(sections, &mut left) {
            merge::merge(&self.packs, &self.base, &self.dying, &mut writer, task)?;
        }
        let (live, sizes) = &*self.packs_of_base;
        let empty = plan::to_empty(live, sizes, left);
        merge::relocate_all(&self.packs, &self.base, &empty, &mut writer)?;
        writer.finish()
    }

    /// Bytes of the changes that came with the base.
    fn changed_bytes(&self) -> u64 {
        let runs = self.base.sections.values().flat_map(|section| &section.runs);
        let own = runs.filter(|live| {
            let made = names::pack_checkpoint(&live.run.pack);
            live.run.merged == 1 && made == Some(self.base.checkpoint)
        });
        own.map(|live| live.run.full_bytes).sum()
    }
}

fn live_bytes(live: &LiveRun) -> u64 {
    live.pieces().map(|(_, _, bytes)| bytes).sum()
}

fn section((name, runs): (&String, &Vec<LiveRun>)) -> Section {
    Section { name: name.clone(), runs: runs.iter().map(|live| live.run.clone()).collect() }
}

fn unsettled(checkpoint: u64, error: Error) -> Error {
    let text = format!("whether checkpoint {checkpoint} exists is not known");
    Error::new(ErrorKind::Unsettled, text).because(error)
}
