//! A real checkpoint that says what it should not, behind hashes that fit: an input is a list of
//! edits of its manifest, its indexes, its filters and its chunks; whatever has been changed is put
//! into a pack of its own and named by its hash.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use rmpv::Value;
use strandline_snapshot::{
    Compression, Hash, MemoryStore, SaveOptions, Snapshot, Store, pieces, verify,
};

use crate::index::{Chunk, Filter, Index};
use crate::input::Input;
use crate::world::{self, Objects, job, read};

/// The checkpoint that is edited; there are two before it.
const NUMBER: u64 = 3;

/// No input makes more edits.
const MOST_EDITS: usize = 12;

/// What edits have added.
const PACK: &str = "00000000000000000003-3-edits.pack";

/// Edits a checkpoint, and does with it all that can be done with one.
pub fn try_input(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    // What takes longest is not done with every input.
    let how = input.byte();
    let mut edits = Edits::new();
    for _ in 0..MOST_EDITS {
        if input.is_empty() {
            break;
        }
        match input.byte() % 4 {
            0 => edit_tree(&mut input, &mut edits.manifest),
            1 => edits.payload_edit = Some(input.prefixed().to_vec()),
            _ => drop(edits.edit_run(&mut input)),
        }
    }
    let store = world::store(&edits.objects());
    match how % 4 {
        0 => drop(world::live(&store)),
        1 => save(&store),
        _ => use_checkpoint(&store),
    }
}

/// Reads it in every way.
fn use_checkpoint(store: &Arc<dyn Store>) {
    verify(store, job(), NUMBER).ok();
    let Ok(snapshot) = Snapshot::open(store, job(), NUMBER) else { return };
    let names: Vec<String> = snapshot.sections().into_iter().map(str::to_owned).collect();
    let entries: Vec<_> = names.iter().map(|name| read(&snapshot, name)).collect();
    let small = snapshot.clone().with_cache_bytes(20_000);
    for (name, entries) in names.iter().zip(&entries) {
        let entries = entries.as_deref().unwrap_or_default();
        for (key, _) in entries.iter().step_by(entries.len() / 5 + 1) {
            snapshot.get(name, key).ok();
            small.get(name, key).ok();
            let visit = &mut |_: &[u8], _: &[u8]| ControlFlow::Break(());
            snapshot.visit_range(name, key, Some(&[255]), visit).ok();
        }
        snapshot.get(name, b"absent").ok();
    }
}

/// A savepoint holds what was read.
fn save(store: &Arc<dyn Store>) {
    let Ok(snapshot) = Snapshot::open(store, job(), NUMBER) else { return };
    let other: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let options = SaveOptions { compression: Compression::Lz4, ..SaveOptions::default() };
    let saved = snapshot.save(&other, "saved", options, &mut |_| ControlFlow::Continue(()));
    if saved.is_err() {
        return;
    }
    let saved = Snapshot::open_savepoint(&other, "saved").expect("it has just been saved");
    for name in snapshot.sections() {
        let entries = read(&snapshot, name).expect("it has just been read");
        assert!(read(&saved, name).is_ok_and(|found| found == entries), "{name}");
    }
}

/// A checkpoint in the making.
struct Edits {
    manifest: Value,
    /// Edits of the manifest's bytes, behind its frame.
    payload_edit: Option<Vec<u8>>,
    pack: Vec<u8>,
}

fn manifest_path() -> String {
    format!("{}/chk-{NUMBER}/_metadata", job())
}

/// The manifest as it was written.
fn manifest() -> &'static Value {
    static MANIFEST: OnceLock<Value> = OnceLock::new();
    MANIFEST.get_or_init(|| {
        let bytes = &world::objects()[&manifest_path()];
        let mut payload = &bytes[16..bytes.len() - 32];
        rmpv::decode::read_value(&mut payload).expect("a manifest is MessagePack")
    })
}

impl Edits {
    fn new() -> Self {
        let pack = b"SLPK\x01\x00".to_vec();
        Self { manifest: manifest().clone(), payload_edit: None, pack }
    }

    /// The job's objects, with what has been edited.
    fn objects(self) -> Objects {
        let mut payload = Vec::new();
        rmpv::encode::write_value(&mut payload, &self.manifest).expect("memory does not fail");
        if let Some(script) = self.payload_edit {
            Input::new(&script).edit(&mut payload);
        }
        let mut objects = world::objects().clone();
        objects.insert(manifest_path(), pieces::frame(*b"SLMF", &payload));
        objects.insert(format!("{}/shared/{PACK}", job()), self.pack);
        objects
    }

    /// Part of a pack, as it was written or as it has been edited.
    fn piece(&self, pack: &str, offset: u64, len: u64) -> Option<Vec<u8>> {
        let path = format!("{}/shared/{pack}", job());
        let bytes = if pack == PACK { &self.pack } else { world::objects().get(&path)? };
        let start = usize::try_from(offset).ok()?;
        bytes.get(start..start.checked_add(usize::try_from(len).ok()?)?).map(<[u8]>::to_vec)
    }

    /// Puts a piece into the pack of edits: where it begins, its length, its hash.
    fn put(&mut self, bytes: &[u8]) -> (u64, u32) {
        let offset = self.pack.len() as u64;
        self.pack.extend_from_slice(bytes);
        (offset, u32::try_from(bytes.len()).unwrap_or(u32::MAX))
    }

    /// Edits what belongs to one run.
    fn edit_run(&mut self, input: &mut Input<'_>) -> Option<()> {
        let mut place = self.manifest.clone();
        let section = pick(field(&mut place, "sections")?, input)?;
        let run = pick(field(section, "runs")?, input)?;
        let pack = field(run, "pack")?.as_str()?.to_owned();
        let offset = field(run, "index_offset")?.as_u64()?;
        let len = field(run, "index_bytes")?.as_u64()?;
        let mut index = Index::decode(&self.piece(&pack, offset, len)?)?;
        for _ in 0..=input.below(3) {
            self.edit_index(input, &mut index);
        }
        let mut bytes = index.encode();
        if input.byte() > 200 {
            input.edit(&mut bytes);
        }
        let (offset, len) = self.put(&bytes);
        *field(run, "pack")? = PACK.into();
        *field(run, "index_offset")? = offset.into();
        *field(run, "index_bytes")? = len.into();
        *field(run, "index_hash")? = Value::Binary(Hash::of(&bytes).0.to_vec());
        self.manifest = place;
        Some(())
    }

    fn edit_index(&mut self, input: &mut Input<'_>, index: &mut Index) -> Option<()> {
        let kind = input.byte() % 8;
        let at = input.below(index.chunks.len());
        match kind {
            0..=2 => self.edit_chunk(input, index, at)?,
            3 => edit_reference(input, index.chunks.get_mut(at)?),
            4 => edit_list(input, &mut index.chunks, at),
            5 => self.edit_filter(input, index)?,
            6 => {
                let at = input.below(index.packs.len());
                let mut pack = index.packs.get(at)?.clone();
                input.edit(&mut pack);
                index.packs[at] = pack;
            }
            _ => {
                let at = input.below(index.packs.len());
                edit_list(input, &mut index.packs, at);
            }
        }
        Some(())
    }

    /// Edits the plain bytes of a chunk, and stores them in one way or another.
    fn edit_chunk(&mut self, input: &mut Input<'_>, index: &mut Index, at: usize) -> Option<()> {
        let chunk = index.chunks.get(at)?.clone();
        let pack = String::from_utf8(index.packs.get(usize::try_from(chunk.pack).ok()?)?.clone());
        let stored = self.piece(&pack.ok()?, chunk.offset, chunk.stored_bytes.into())?;
        let plain_bytes = usize::try_from(chunk.plain_bytes).ok()?;
        let plain = pieces::plain_chunk(&stored, plain_bytes, Hash(chunk.hash));
        let mut plain = plain.unwrap_or(stored);
        for _ in 0..=input.below(3) {
            input.edit(&mut plain);
        }
        let how = input.byte();
        let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
        let compression = compressions[usize::from(how % 3)];
        let mut stored = pieces::store_chunk(compression, &plain).ok()?;
        if how > 230 {
            input.edit(&mut stored);
        }
        let (offset, stored_bytes) = self.put(&stored);
        let number = index.pack_number(PACK);
        let edited = index.chunks.get_mut(at)?;
        *edited = Chunk { pack: number, offset, stored_bytes, hash: Hash::of(&plain).0, ..chunk };
        edited.plain_bytes = u32::try_from(plain.len()).ok()?;
        Some(())
    }

    fn edit_filter(&mut self, input: &mut Input<'_>, index: &mut Index) -> Option<()> {
        let kind = input.byte();
        if kind < 16 {
            index.filter = None;
            return Some(());
        }
        let filter = index.filter.clone()?;
        let pack = String::from_utf8(index.packs.get(usize::try_from(filter.pack).ok()?)?.clone());
        let mut bytes = self.piece(&pack.ok()?, filter.offset, filter.bytes.into())?;
        input.edit(&mut bytes);
        let (offset, len) = self.put(&bytes);
        let pack = index.pack_number(PACK);
        let mut edited = Filter { pack, offset, bytes: len, hash: Hash::of(&bytes).0 };
        if kind > 200 {
            edited.offset = input.number();
            edited.bytes = low(input.number());
            edited.pack = input.number();
        }
        index.filter = Some(edited);
        Some(())
    }
}

/// The low half.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

fn edit_reference(input: &mut Input<'_>, chunk: &mut Chunk) {
    match input.byte() % 8 {
        0 => chunk.pack = input.number(),
        1 => chunk.offset = input.number(),
        2 => chunk.stored_bytes = low(input.number()),
        3 => chunk.plain_bytes = low(input.number()),
        4 => chunk.entries = low(input.number()),
        5 => chunk.tombstones = low(input.number()),
        6 => input.edit(&mut chunk.first_key),
        _ => chunk.hash[input.below(32)] ^= input.byte(),
    }
}

/// Repeats, removes or moves one of a list.
fn edit_list<T: Clone>(input: &mut Input<'_>, list: &mut Vec<T>, at: usize) {
    if at >= list.len() {
        return;
    }
    let to = input.below(list.len());
    match input.byte() % 4 {
        0 => list.insert(to, list[at].clone()),
        1 => drop(list.remove(at)),
        2 => list.swap(at, to),
        _ => list.truncate(at),
    }
}

fn field<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let Value::Map(fields) = value else { return None };
    fields.iter_mut().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
}

fn pick<'a>(value: &'a mut Value, input: &mut Input<'_>) -> Option<&'a mut Value> {
    let Value::Array(list) = value else { return None };
    let at = input.below(list.len());
    list.get_mut(at)
}

/// Edits one place of a tree: goes down as long as the input says so.
fn edit_tree(input: &mut Input<'_>, value: &mut Value) {
    let choice = input.byte();
    match value {
        Value::Map(fields) if choice < 250 => {
            let at = usize::from(choice) % fields.len().max(1);
            if let Some((_, value)) = fields.get_mut(at) {
                edit_tree(input, value);
            }
        }
        Value::Array(list) if choice < 160 => {
            let at = usize::from(choice) % list.len().max(1);
            if let Some(value) = list.get_mut(at) {
                edit_tree(input, value);
            }
        }
        Value::Array(list) if choice < 250 => {
            let at = input.below(list.len());
            edit_list(input, list, at);
        }
        Value::Binary(bytes) if choice < 250 => input.edit(bytes),
        Value::String(text) if choice < 250 => {
            let mut bytes = text.as_bytes().to_vec();
            input.edit(&mut bytes);
            *value = String::from_utf8_lossy(&bytes).into_owned().into();
        }
        Value::Integer(_) if choice < 250 => *value = input.number().into(),
        _ => {
            *value = match input.byte() % 5 {
                0 => Value::Nil,
                1 => Value::Array(Vec::new()),
                2 => Value::Binary(input.prefixed().to_vec()),
                3 => true.into(),
                _ => input.number().into(),
            }
        }
    }
}
