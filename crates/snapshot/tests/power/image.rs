//! What is on a disk: files and directories by number, and changes that may or may not reach it.

use std::collections::BTreeMap;

use crate::random::Random;

/// The number of a file or a directory.
pub(crate) type Inode = u64;

/// The directory that everything is in.
pub(crate) const TOP: Inode = 0;

/// Writes reach a disk in pages.
const PAGE_BYTES: usize = 4096;

/// With so few changes on their way every subset of them is tried.
const FEW: usize = 8;

/// Files and directories. What no directory names is not seen.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) files: BTreeMap<Inode, Vec<u8>>,
    pub(crate) dirs: BTreeMap<Inode, BTreeMap<String, Inode>>,
}

/// One change of an image.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A directory has a name for an inode, or none any more.
    Name { dir: Inode, name: String, inode: Option<Inode> },
    /// A file has bytes from an offset on.
    Bytes { file: Inode, offset: usize, bytes: Vec<u8> },
}

/// The state of a disk at one moment: what programs see, what is durable, and what is in between.
/// `durable` with all of `pending` is `live`, unless a sync has failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) live: Image,
    pub(crate) durable: Image,
    pub(crate) pending: Vec<Change>,
    /// Changes whose sync has failed: they may have been made or not, and no sync tells.
    pub(crate) lost: Vec<Change>,
}

impl Default for Image {
    fn default() -> Self {
        Self { files: BTreeMap::new(), dirs: BTreeMap::from([(TOP, BTreeMap::new())]) }
    }
}

impl Image {
    /// All that can be seen, by path: directories without bytes.
    pub(crate) fn visible(&self) -> BTreeMap<String, Option<&[u8]>> {
        let mut found = BTreeMap::new();
        self.collect(TOP, "", &mut found);
        found
    }

    fn collect<'a>(
        &'a self,
        dir: Inode,
        path: &str,
        found: &mut BTreeMap<String, Option<&'a [u8]>>,
    ) {
        for (name, inode) in self.dirs.get(&dir).into_iter().flatten() {
            let inner = format!("{path}/{name}");
            if self.dirs.contains_key(inode) {
                self.collect(*inode, &inner, found);
            }
            found.insert(inner, self.files.get(inode).map(Vec::as_slice));
        }
    }

    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Name { dir, name, inode } => {
                let names = self.dirs.entry(*dir).or_default();
                match inode {
                    Some(inode) => drop(names.insert(name.clone(), *inode)),
                    None => drop(names.remove(name)),
                }
            }
            Change::Bytes { file, offset, bytes } => self.write(*file, *offset, bytes),
        }
    }

    fn write(&mut self, file: Inode, offset: usize, bytes: &[u8]) {
        let there = self.files.entry(file).or_default();
        let end = offset + bytes.len();
        if there.len() < end {
            there.resize(end, 0);
        }
        there.get_mut(offset..end).expect("it is long enough").copy_from_slice(bytes);
    }

    /// A write of which only some pages arrive, or only a first part.
    fn apply_torn(&mut self, change: &Change, random: &mut Random) {
        let Change::Bytes { file, offset, bytes } = change else { return self.apply(change) };
        if random.coin() {
            let kept = random.below(bytes.len() + 1);
            let kept = bytes.get(..kept).expect("no more than there are");
            return self.write(*file, *offset, kept);
        }
        // The length is there, and pages that are not read as zeros.
        let end = offset + bytes.len();
        let there = self.files.entry(*file).or_default();
        there.resize(end.max(there.len()), 0);
        let mut from = *offset;
        while from < end {
            let to = ((from / PAGE_BYTES + 1) * PAGE_BYTES).min(end);
            let page = bytes.get(from - offset..to - offset).expect("a page is a part");
            if random.coin() {
                self.write(*file, from, page);
            }
            from = to;
        }
    }
}

impl Moment {
    /// What a power cut at this moment may leave: with few changes on their way every subset of
    /// them, and some with torn writes; with many a random choice.
    pub(crate) fn after_cut(&self, random: &mut Random) -> Vec<Image> {
        let doubtful: Vec<&Change> = self.lost.iter().chain(&self.pending).collect();
        let mut images = Vec::new();
        if doubtful.len() <= FEW {
            for subset in 0_u32..1 << doubtful.len() {
                images.push(self.image(&doubtful, |index| subset >> index & 1 == 1));
            }
        } else {
            images.push(self.image(&doubtful, |_| false));
            images.push(self.image(&doubtful, |_| true));
            for _ in 0..14 {
                images.push(self.image(&doubtful, |_| random.coin()));
            }
        }
        if doubtful.iter().any(|change| matches!(change, Change::Bytes { .. })) {
            for _ in 0..4 {
                let mut image = self.durable.clone();
                let kept = doubtful.iter().filter(|_| random.below(4) > 0);
                let kept: Vec<&&Change> = kept.collect();
                kept.iter().for_each(|change| image.apply_torn(change, random));
                images.push(image);
            }
        }
        images
    }

    /// One of the images that a cut may leave.
    pub(crate) fn one_after_cut(&self, random: &mut Random) -> Image {
        let mut images = self.after_cut(random);
        images.swap_remove(random.below(images.len()))
    }

    fn image(&self, doubtful: &[&Change], mut kept: impl FnMut(usize) -> bool) -> Image {
        let mut image = self.durable.clone();
        let kept = doubtful.iter().enumerate().filter(|(index, _)| kept(*index));
        kept.for_each(|(_, change)| image.apply(change));
        image
    }
}
