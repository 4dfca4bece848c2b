//! Chunks: where a run is cut, and the plain bytes of a piece.
//!
//! A chunk is cut *before* an entry when the chunk has at least [`MIN_BYTES`] and the entry draws
//! the lot: a number mixed from the first 8 bytes of its key must be below a bound that is
//! proportional to the entry's own size, so that a cut comes about every [`SPAN_BYTES`] whatever
//! the size of entries. The rule looks at nothing but the entry and the bytes since the last cut, so
//! the same entries are cut the same way on every host, and a change moves the cuts near it only.
//! At [`MAX_BYTES`] a chunk is cut in any case. Runs end at cuts, by a lot of the same kind.
//!
//! Within a chunk a key leaves out what it shares with the one before. Every 16th is whole: a
//! *restart*. The offsets of restarts are at the end, so that a key is found by halving.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use crate::bytes::{Cursor, put_varint, varint_bytes};
use crate::plain::Plain;

/// No cut before a chunk has this many bytes.
pub(crate) const MIN_BYTES: usize = 16 * 1024;

/// Mean number of bytes from the minimum to the cut.
pub(crate) const SPAN_BYTES: u64 = 48 * 1024;

/// A cut comes no later than before the entry that would take the chunk beyond this.
pub(crate) const MAX_BYTES: usize = 256 * 1024;

/// No run ends before it has this many bytes, unless its entries do.
pub(crate) const MIN_RUN_BYTES: u64 = 16 << 20;

/// A run ends no later than at the first cut from here on.
pub(crate) const MAX_RUN_BYTES: u64 = 32 << 20;

/// At one cut in so many a run of the least size ends: 256 chunks of 64 KiB are 16 MiB.
const RUN_ODDS: u64 = 256;

/// Every so many entries a key is whole.
const RESTART_INTERVAL: u32 = 16;

/// The largest key.
pub const MAX_KEY_BYTES: usize = 16 << 20;

/// The largest value.
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// The key has this value.
    Put(&'a [u8]),
    /// The key has no value, whatever older runs say.
    Tombstone,
}

impl Value<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Put(value) => value.len(),
            Self::Tombstone => 0,
        }
    }
}

/// What happens before an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    No,
    Chunk,
    /// The chunk ends, and the run with it.
    Run,
}

/// What to cut before an entry of this key and counted size. `run_bytes` counts the chunks before.
#[inline]
pub(crate) fn cut(run_bytes: u64, chunk_bytes: usize, key: &[u8], entry_bytes: usize) -> Cut {
    if chunk_bytes < MIN_BYTES {
        return Cut::No;
    }
    let lot = mixed(leading(key));
    let bound = (entry_bytes as u64).saturating_mul(u64::MAX / SPAN_BYTES);
    if chunk_bytes + entry_bytes <= MAX_BYTES && lot >= bound {
        return Cut::No;
    }
    let run_bytes = run_bytes + chunk_bytes as u64;
    let drawn = run_bytes >= MIN_RUN_BYTES && mixed(lot) < u64::MAX / RUN_ODDS;
    if drawn || run_bytes >= MAX_RUN_BYTES { Cut::Run } else { Cut::Chunk }
}

/// The first 8 bytes of a key as a number, most significant first; zeros where there are fewer.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "keys sort as their bytes do")]
pub(crate) fn leading(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(first)
        }
    }
}

/// The finalizer of MurmurHash3: keys that begin alike draw unlike lots.
#[inline]
pub(crate) fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    z = (z ^ (z >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    z ^ (z >> 33)
}

/// What an entry counts for where chunks are cut: as if its key shared nothing.
#[inline]
pub(crate) fn entry_bytes(key: &[u8], value: Value<'_>) -> usize {
    let value_bytes = value.len();
    varint_bytes(key.len()) + key.len() + varint_bytes(value_bytes + 1) + value_bytes
}

/// How many bytes two keys share.
#[inline]
pub(crate) fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let mut same = 0;
    for (a, b) in words {
        let differs = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differs != 0 {
            return same + differs.trailing_zeros() as usize / 8;
        }
        same += 8;
    }
    let rest = a.iter().skip(same).zip(b.iter().skip(same));
    same + rest.take_while(|(a, b)| a == b).count()
}

/// The entries of a chunk in the making; its bytes are at the end of somebody's buffer.
#[derive(Debug, Default)]
pub(crate) struct ChunkWriter {
    pub(crate) entries: u32,
    pub(crate) tombstones: u32,
    /// Bytes as the cut rule counts them.
    pub(crate) counted: usize,
    restarts: Vec<u32>,
}

impl ChunkWriter {
    /// Appends an entry. `start` is where the chunk begins in `out`, `shared` what the key shares
    /// with the one before.
    #[inline]
    pub(crate) fn push(
        &mut self,
        out: &mut Vec<u8>,
        start: usize,
        key: &[u8],
        shared: usize,
        value: Value<'_>,
    ) {
        let shared = if self.entries.is_multiple_of(RESTART_INTERVAL) {
            self.restarts.push(u32::try_from(out.len() - start).unwrap_or(u32::MAX));
            0
        } else {
            shared
        };
        let rest = key.get(shared..).unwrap_or_default();
        out.reserve(rest.len() + value.len() + 20);
        put_varint(out, shared as u64);
        put_varint(out, rest.len() as u64);
        out.extend_from_slice(rest);
        match value {
            Value::Tombstone => {
                out.push(0);
                self.tombstones += 1;
            }
            Value::Put(value) => {
                put_varint(out, value.len() as u64 + 1);
                out.extend_from_slice(value);
            }
        }
        self.entries += 1;
    }

    /// Appends the restarts, and begins anew.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        for restart in &self.restarts {
            out.extend_from_slice(&restart.to_le_bytes());
        }
        let count = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        *self = Self { restarts: std::mem::take(&mut self.restarts), ..Self::default() };
        self.restarts.clear();
    }
}

/// Takes one entry, tombstones too; `Break` ends the visit.
pub(crate) type VisitValue<'a> = dyn FnMut(&[u8], Value<'_>) -> ControlFlow<()> + 'a;

/// Whether a key is one too far.
pub(crate) type Stops<'a> = dyn Fn(&[u8]) -> bool + 'a;

/// Why bytes are no chunk.
pub(crate) type Flaw = &'static str;

/// Goes through the entries of a chunk.
#[derive(Debug, Default)]
pub(crate) struct ChunkCursor {
    plain: Plain,
    /// Where entries end and restarts begin.
    end: usize,
    /// Where the next entry begins.
    at: usize,
    key: Vec<u8>,
    value: Option<Range<usize>>,
    /// There is a key before the next one: it must be smaller.
    begun: bool,
}

impl ChunkCursor {
    /// Begins a chunk. The buffer for keys is kept. `after` is the last key of the chunk before.
    pub(crate) fn begin(&mut self, plain: Plain) -> Result<(), Flaw> {
        self.end = entries_end(&plain).ok_or("a chunk has no restarts")?;
        self.plain = plain;
        self.at = 0;
        self.value = None;
        Ok(())
    }

    /// Forgets the key before: the next chunk may begin anywhere.
    pub(crate) fn forget(&mut self) {
        self.begun = false;
        self.key.clear();
    }

    /// Goes to the next entry; false at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool, Flaw> {
        if self.at >= self.end {
            return Ok(false);
        }
        let bytes = self.plain.get(self.at..self.end).unwrap_or_default();
        let mut cursor = Cursor::new(bytes);
        let entry = take_entry(&mut cursor).ok_or(CUT_SHORT)?;
        extend_key(&mut self.key, self.begun, &entry)?;
        let at = self.end - cursor.rest().len();
        self.begun = true;
        self.at = at;
        self.value = entry.value.map(|value| at - value.len()..at);
        Ok(true)
    }

    /// Visits the entry at hand, and those behind it as long as `stops` doesn't say that the next key
    /// is one too far: `Continue` at the end of the chunk, `Break` with a reason before it.
    ///
    /// This is what reading a whole table comes down to, so everything that an entry needs is in
    /// local variables.
    pub(crate) fn visit(
        &mut self,
        stops: Option<&Stops<'_>>,
        visit: &mut VisitValue<'_>,
    ) -> Result<ControlFlow<Stop>, Flaw> {
        if visit(&self.key, self.value()).is_break() {
            return Ok(ControlFlow::Break(Stop::Visitor));
        }
        let plain = self.plain.clone();
        let bytes = plain.get(..self.end).unwrap_or_default();
        let mut cursor = Cursor::new(bytes.get(self.at..).unwrap_or_default());
        while !cursor.is_empty() {
            let entry = take_entry(&mut cursor).ok_or(CUT_SHORT)?;
            extend_key(&mut self.key, self.begun, &entry)?;
            if stops.is_some_and(|stops| stops(&self.key)) {
                self.stand(self.end - cursor.rest().len(), entry.value);
                return Ok(ControlFlow::Break(Stop::Key));
            }
            let value = entry.value.map_or(Value::Tombstone, Value::Put);
            if visit(&self.key, value).is_break() {
                return Ok(ControlFlow::Break(Stop::Visitor));
            }
        }
        self.stand(self.end, None);
        Ok(ControlFlow::Continue(()))
    }

    /// Stands on an entry that ends at `at`.
    fn stand(&mut self, at: usize, value: Option<&[u8]>) {
        self.begun = true;
        self.at = at;
        self.value = value.map(|value| at - value.len()..at);
    }

    /// Goes to the first entry whose key is at least `key`; false if there is none.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool, Flaw> {
        self.at = self.restart_before(key)?;
        self.forget();
        while self.next()? {
            if &self.key[..] >= key {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The last restart whose key is at most `key`; the first one if there is none.
    fn restart_before(&self, key: &[u8]) -> Result<usize, Flaw> {
        let count = (self.plain.len() - self.end) / 4 - 1;
        let (mut low, mut high) = (0, count);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            match self.restart_key(middle)?.cmp(key) {
                Ordering::Greater => high = middle,
                Ordering::Less | Ordering::Equal => low = middle,
            }
        }
        self.restart(low)
    }

    fn restart(&self, index: usize) -> Result<usize, Flaw> {
        let list = self.plain.get(self.end + 4 * index..).unwrap_or_default();
        let offset = Cursor::new(list).u32().unwrap_or(u32::MAX) as usize;
        if offset < self.end { Ok(offset) } else { Err("a restart of a chunk is out of place") }
    }

    fn restart_key(&self, index: usize) -> Result<&[u8], Flaw> {
        let entry = self.plain.get(self.restart(index)?..self.end).unwrap_or_default();
        let entry = take_entry(&mut Cursor::new(entry)).filter(|entry| entry.shared == 0);
        Ok(entry.ok_or("a restart of a chunk is out of place")?.rest)
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    pub(crate) fn value(&self) -> Value<'_> {
        match &self.value {
            Some(range) => Value::Put(self.plain.get(range.clone()).unwrap_or_default()),
            None => Value::Tombstone,
        }
    }
}

/// Why a visit has ended within a chunk.
pub(crate) enum Stop {
    /// It said so.
    Visitor,
    /// The entry at hand is one too far.
    Key,
}

const CUT_SHORT: Flaw = "an entry of a chunk is cut short";

struct Entry<'a> {
    shared: usize,
    rest: &'a [u8],
    /// `None` for a tombstone.
    value: Option<&'a [u8]>,
}

#[inline]
fn take_entry<'a>(cursor: &mut Cursor<'a>) -> Option<Entry<'a>> {
    let shared = usize::try_from(cursor.varint()?).ok()?;
    let rest = cursor.prefixed()?;
    let value = match cursor.varint()? {
        0 => None,
        len => Some(cursor.take(usize::try_from(len - 1).ok()?)?),
    };
    Some(Entry { shared, rest, value })
}

/// Makes the key before into the entry's own, if that one comes after it.
#[inline]
fn extend_key(key: &mut Vec<u8>, begun: bool, entry: &Entry<'_>) -> Result<(), Flaw> {
    if !fits_after(key, begun, entry.shared, entry.rest) {
        return Err("the entries of a run are not in ascending order");
    }
    key.truncate(entry.shared);
    key.extend_from_slice(entry.rest);
    Ok(())
}

/// Whether a key made of `shared` bytes of `before` and `rest` is one that comes after it.
#[inline]
fn fits_after(before: &[u8], begun: bool, shared: usize, rest: &[u8]) -> bool {
    if !begun {
        return shared == 0;
    }
    match before.get(shared..) {
        // Where all is left out that could be, the first byte decides.
        Some([first, ..]) if rest.first() != Some(first) => rest.first() > Some(first),
        // A restart repeats what is shared.
        Some(before) => rest > before,
        None => false,
    }
}

/// Where the entries of a chunk end, and its restarts begin.
fn entries_end(plain: &[u8]) -> Option<usize> {
    let list_end = plain.len().checked_sub(4)?;
    let count = Cursor::new(plain.get(list_end..)?).u32()? as usize;
    let end = list_end.checked_sub(count.checked_mul(4)?)?;
    (count > 0 && end > 0).then_some(end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    fn model() -> impl Strategy<Value = Model> {
        let key = prop::collection::vec(0_u8..3, 0..20);
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..200));
        prop::collection::btree_map(key, value, 1..80)
    }

    fn encode(model: &Model) -> Vec<u8> {
        let (mut writer, mut out, mut last) = (ChunkWriter::default(), vec![7], Vec::new());
        for (key, value) in model {
            let value = value.as_deref().map_or(Value::Tombstone, Value::Put);
            writer.push(&mut out, 1, key, shared_bytes(&last, key), value);
            last.clone_from(key);
        }
        writer.finish(&mut out);
        out.split_off(1)
    }

    fn cursor(bytes: Vec<u8>) -> Result<ChunkCursor, Flaw> {
        let mut cursor = ChunkCursor::default();
        cursor.begin(Plain::from(bytes))?;
        Ok(cursor)
    }

    fn entry(cursor: &ChunkCursor) -> (Vec<u8>, Option<Vec<u8>>) {
        let value = match cursor.value() {
            Value::Put(value) => Some(value.to_vec()),
            Value::Tombstone => None,
        };
        (cursor.key().to_vec(), value)
    }

    proptest! {
        #[test]
        fn entries_come_back(model in model()) {
            let mut cursor = cursor(encode(&model)).expect("it is a chunk");
            let mut read = Model::new();
            while cursor.next().expect("it is a chunk") {
                read.extend([entry(&cursor)]);
            }
            prop_assert_eq!(read, model);
        }

        #[test]
        fn keys_are_found(model in model(), key in prop::collection::vec(0_u8..3, 0..20)) {
            let mut cursor = cursor(encode(&model)).expect("it is a chunk");
            let found = cursor.seek(&key).expect("it is a chunk").then(|| entry(&cursor));
            let expected = model.range(key..).next().map(|(key, value)| (key.clone(), value.clone()));
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), key: [u8; 3]) {
            if let Ok(mut cursor) = cursor(bytes) {
                while cursor.next() == Ok(true) {}
                cursor.seek(&key).ok();
            }
        }

        #[test]
        fn damaged_chunks_do_not_panic(model in model(), at: prop::sample::Index, bit in 0..8) {
            let mut bytes = encode(&model);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            if let Ok(mut cursor) = cursor(bytes) {
                while cursor.next() == Ok(true) {}
                cursor.seek(&[1, 1]).ok();
            }
        }
    }
}
