//! What a frozen view looks like to whoever writes it: entries of bytes in byte order.
//!
//! ```text
//!  key    [ hash, 8 bytes big-endian | canonical bytes of the key | canonical bytes of the namespace ]
//!  value  [ MessagePack, structs as arrays of their fields ]
//! ```
//!
//! No lengths lie between the parts of a key: canonical bytes end by themselves, so whoever knows the
//! types can tell the parts apart, and the byte order is that of (hash, key, namespace). The namespace
//! `()` has no bytes.
//!
//! A table is in hash order already, so a view is written as it is read; only entries with equal hashes
//! (the namespaces of one key, in practice) are sorted, and only among themselves. The bytes depend on
//! nothing but the entries: not on the order in which they came, nor on the table's pages.

mod value;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::value::{decode_value, encode_value};
use crate::error::{Error, ErrorKind, hex};
use crate::key::{KeyHash, decode_key, encode_key, hash_key_bytes};
use crate::table::View;

/// Takes an entry (key, value) and says whether to go on.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Takes a change (key, and the value unless it has gone) and says whether to go on.
pub type VisitChange<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>) -> ControlFlow<()>;

/// State that no longer changes, as entries of bytes.
pub trait Frozen: Send + Sync {
    /// How many entries there are.
    fn entry_count(&self) -> usize;

    /// Shows each entry (key, value), in strictly ascending byte order of their keys, until the last
    /// one or until told to break off.
    ///
    /// # Errors
    /// An entry can't be encoded; the error names it. Entries are never left out, so what has been
    /// seen by then is of no use.
    fn visit(&self, visit: Visit<'_>) -> Result<(), Error>;

    /// Whether [`visit_changes`](Self::visit_changes) shows less than everything, and what has gone.
    /// Where it doesn't, what it shows replaces all that there was.
    fn tracks_changes(&self) -> bool;

    /// Shows what has changed since the last confirmed freeze: each key with its value, and without
    /// one where it was removed. In strictly ascending byte order, until the last one or until told
    /// to break off.
    ///
    /// # Errors
    /// As [`visit`](Self::visit).
    fn visit_changes(&self, visit: VisitChange<'_>) -> Result<(), Error>;
}

/// Keyed state with a namespace: the table's keys are pairs, and its hashes are those of the first.
///
/// Values that MessagePack can't tell apart come back as the simpler one: `Some(None)` and `Some(())`
/// as `None`. Don't nest options in state. Arrays and maps may be nested 128 levels deep in a value.
pub fn keyed<K, N, V>(view: View<(K, N), V>) -> impl Frozen + 'static
where
    K: Serialize + Send + Sync + 'static,
    N: Serialize + Send + Sync + 'static,
    V: Serialize + Send + Sync + 'static,
{
    KeyedEntries { view, parts: pair::<K, N> }
}

/// Keyed state without a namespace. See [`keyed`] for what values lose.
pub fn keyed_plain<K, V>(view: View<K, V>) -> impl Frozen + 'static
where
    K: Serialize + Send + Sync + 'static,
    V: Serialize + Send + Sync + 'static,
{
    KeyedEntries { view, parts: plain::<K> }
}

/// Reads an entry that [`keyed`] or [`keyed_plain`] (with `N` = `()`) has written.
///
/// # Errors
/// [`Corrupt`](ErrorKind::Corrupt): the bytes aren't those of such types, something trails them, the
/// hash isn't that of the key, or the key would now be written with other bytes (as after an enum's
/// variant was renamed with an alias), so that it would be looked for elsewhere.
pub fn decode_entry<K, N, V>(key: &[u8], value: &[u8]) -> Result<(KeyHash, K, N, V), Error>
where
    K: DeserializeOwned + Serialize,
    N: DeserializeOwned,
    V: DeserializeOwned,
{
    let (hash, bytes) = split_hash(key)?;
    let (decoded, rest) = decode_key::<K>(bytes)?;
    let own = bytes.strip_suffix(rest).unwrap_or_default();
    if hash_key_bytes(own) != hash {
        return Err(corrupt("the hash of an entry isn't that of its key", key));
    }
    let mut again = Vec::with_capacity(own.len());
    encode_key(&decoded, &mut again)?;
    if again != own {
        return Err(corrupt("a key would be written with other bytes than it was read from", key));
    }
    let (namespace, rest) = decode_key::<N>(rest)?;
    if !rest.is_empty() {
        return Err(corrupt("bytes trail the key of an entry", key));
    }
    match decode_value(value) {
        Ok(value) => Ok((hash, decoded, namespace, value)),
        Err(error) => Err(corrupt("the value of an entry can't be decoded", key).because(error)),
    }
}

/// Entries that are bytes already, as operator state keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries(BTreeMap<Vec<u8>, Vec<u8>>);

impl Entries {
    /// Sets the value of a key and returns the one before.
    pub fn insert(&mut self, key: Vec<u8>, value: Vec<u8>) -> Option<Vec<u8>> {
        self.0.insert(key, value)
    }
}

/// Of equal keys, the last one counts.
impl FromIterator<(Vec<u8>, Vec<u8>)> for Entries {
    fn from_iter<I: IntoIterator<Item = (Vec<u8>, Vec<u8>)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl Frozen for Entries {
    fn entry_count(&self) -> usize {
        self.0.len()
    }

    fn visit(&self, visit: Visit<'_>) -> Result<(), Error> {
        // Breaking off is no error.
        let _broken_off = self.0.iter().try_for_each(|(key, value)| visit(key, value));
        Ok(())
    }

    fn tracks_changes(&self) -> bool {
        false
    }

    fn visit_changes(&self, visit: VisitChange<'_>) -> Result<(), Error> {
        self.visit(&mut |key, value| visit(key, Some(value)))
    }
}

/// Entries of a table, whose keys have a key and a namespace in them.
struct KeyedEntries<T, V, P> {
    view: View<T, V>,
    parts: P,
}

impl<T, K, N, V, P> Frozen for KeyedEntries<T, V, P>
where
    T: Send + Sync,
    K: Serialize,
    N: Serialize,
    V: Serialize + Send + Sync,
    P: Fn(&T) -> (&K, &N) + Send + Sync,
{
    fn entry_count(&self) -> usize {
        self.view.len()
    }

    fn visit(&self, visit: Visit<'_>) -> Result<(), Error> {
        let mut visit = |key: &[u8], value: Option<&[u8]>| match value {
            Some(value) => visit(key, value),
            None => ControlFlow::Continue(()),
        };
        let mut batch = Batch::new(&mut visit);
        self.view.visit(|hash, both, value| {
            let (key, namespace) = (self.parts)(both);
            batch.take(hash, key, namespace, Some(value))
        })?;
        batch.finish()
    }

    fn tracks_changes(&self) -> bool {
        true
    }

    fn visit_changes(&self, visit: VisitChange<'_>) -> Result<(), Error> {
        let mut batch = Batch::new(visit);
        self.view.visit_changes(|hash, both, value| {
            let (key, namespace) = (self.parts)(both);
            batch.take(hash, key, namespace, value)
        })?;
        batch.finish()
    }
}

/// The encoded entries of one hash. Its memory is used again for the next.
struct Batch<'a> {
    visit: VisitChange<'a>,
    hash: Option<KeyHash>,
    bytes: Vec<u8>,
    entries: Vec<Encoded>,
    /// Why it ends early: an error, or `Ok` where it was told to break off.
    ended: Option<Result<(), Error>>,
}

/// Where an entry's key and value are.
struct Encoded {
    key: Range<usize>,
    value: Option<Range<usize>>,
}

impl<'a> Batch<'a> {
    fn new(visit: VisitChange<'a>) -> Self {
        Self { visit, hash: None, bytes: Vec::new(), entries: Vec::new(), ended: None }
    }

    /// Takes the next entry; those of the hash before are shown.
    fn take<K, N, V>(
        &mut self,
        hash: KeyHash,
        key: &K,
        namespace: &N,
        value: Option<&V>,
    ) -> ControlFlow<()>
    where
        K: Serialize,
        N: Serialize,
        V: Serialize,
    {
        let shown =
            if self.hash == Some(hash) { Ok(ControlFlow::Continue(())) } else { self.show() };
        self.hash = Some(hash);
        match shown {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return self.end(Ok(())),
            Err(error) => return self.end(Err(error)),
        }
        match self.push(hash, key, namespace, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => self.end(Err(error)),
        }
    }

    fn end(&mut self, with: Result<(), Error>) -> ControlFlow<()> {
        self.ended = Some(with);
        ControlFlow::Break(())
    }

    fn finish(mut self) -> Result<(), Error> {
        match self.ended.take() {
            Some(ended) => ended,
            None => self.show().map(drop),
        }
    }

    fn push<K, N, V>(
        &mut self,
        hash: KeyHash,
        key: &K,
        namespace: &N,
        value: Option<&V>,
    ) -> Result<(), Error>
    where
        K: Serialize,
        N: Serialize,
        V: Serialize,
    {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&hash_bytes(hash));
        encode_key(key, &mut self.bytes)?;
        if hash_key_bytes(part(&self.bytes, begin + 8..self.bytes.len())) != hash {
            let text = "the hash that was given with a key isn't its own";
            return Err(refused_key(text, part(&self.bytes, begin..self.bytes.len())));
        }
        encode_key(namespace, &mut self.bytes)?;
        let middle = self.bytes.len();
        if let Some(value) = value
            && let Err(error) = encode_value(value, &mut self.bytes)
        {
            return Err(refused_value(part(&self.bytes, begin..middle), error));
        }
        let value = value.map(|_| middle..self.bytes.len());
        self.entries.push(Encoded { key: begin..middle, value });
        Ok(())
    }

    /// Shows all entries in order and forgets them.
    fn show(&mut self) -> Result<ControlFlow<()>, Error> {
        let Self { bytes, entries, visit, .. } = self;
        entries.sort_unstable_by_key(|entry| part(bytes, entry.key.clone()));
        let mut flow = ControlFlow::Continue(());
        let mut last: &[u8] = &[];
        for entry in entries.iter() {
            let key = part(bytes, entry.key.clone());
            if key == last {
                return Err(refused_key("two unequal keys have equal bytes", key));
            }
            last = key;
            flow = visit(key, entry.value.clone().map(|value| part(bytes, value)));
            if flow.is_break() {
                break;
            }
        }
        bytes.clear();
        entries.clear();
        Ok(flow)
    }
}

fn pair<K, N>(both: &(K, N)) -> (&K, &N) {
    (&both.0, &both.1)
}

fn plain<K>(key: &K) -> (&K, &()) {
    (key, &())
}

fn part(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).expect("the range was written before")
}

#[expect(clippy::big_endian_bytes, reason = "entries must sort by their hash")]
fn hash_bytes(hash: KeyHash) -> [u8; 8] {
    hash.0.to_be_bytes()
}

#[expect(clippy::big_endian_bytes, reason = "entries must sort by their hash")]
fn split_hash(key: &[u8]) -> Result<(KeyHash, &[u8]), Error> {
    let Some((hash, rest)) = key.split_first_chunk::<8>() else {
        return Err(corrupt("an entry's key is shorter than a hash", key));
    };
    Ok((KeyHash(u64::from_be_bytes(*hash)), rest))
}

fn corrupt(text: &str, key: &[u8]) -> Error {
    Error::corrupt(format!("{text}: key={}", hex(key)))
}

fn refused_key(text: &str, key: &[u8]) -> Error {
    Error::key_refused(format!("{text}: key={}", hex(key)))
}

fn refused_value(key: &[u8], error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let text = format!("a value can't be encoded: key={}", hex(key));
    Error::new(ErrorKind::ValueRefused, text).because(error)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::key::hash_key;
    use crate::table::Table;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Sum {
        count: u32,
        total: i64,
    }

    fn table<N: Clone + Eq>(entries: &[(&str, N, Sum)]) -> Table<(String, N), Sum> {
        let mut table = Table::new();
        for (key, namespace, sum) in entries {
            let hash = hash_key(key, &mut Vec::new()).unwrap();
            table.insert(hash, ((*key).to_owned(), namespace.clone()), sum.clone());
        }
        table
    }

    fn visited(frozen: &dyn Frozen) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut seen = Vec::new();
        frozen
            .visit(&mut |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(seen.is_sorted_by(|one, two| one.0 < two.0));
        assert_eq!(seen.len(), frozen.entry_count());
        seen
    }

    fn sum(total: i64) -> Sum {
        Sum { count: 1, total }
    }

    #[test]
    fn an_entry_has_these_bytes() {
        let frozen = keyed(table(&[("ab", -3_i8, sum(200))]).freeze());
        let [(key, value)] = visited(&frozen).try_into().unwrap();
        let hash = hash_key_bytes(b"ab\0\x01");
        assert_eq!(hex(&key), format!("{:016x}616200017ffc", hash.0));
        assert_eq!(hex(&value), "9201ccc8");
        let decoded = decode_entry::<String, i8, Sum>(&key, &value).unwrap();
        assert_eq!(decoded, (hash, "ab".to_owned(), -3, sum(200)));
    }

    #[test]
    fn namespaces_of_one_key_are_sorted() {
        let namespaces = [7, -7, 300, 0, -300];
        let entries = namespaces.map(|namespace| ("k", namespace, sum(namespace)));
        let seen = visited(&keyed(table(&entries).freeze()));
        let decoded =
            seen.iter().map(|(key, value)| decode_entry::<String, i64, Sum>(key, value).unwrap().2);
        assert_eq!(decoded.collect::<Vec<_>>(), [-300, -7, 0, 7, 300]);
    }

    #[test]
    fn breaking_off_ends_the_visit() {
        let frozen = keyed(table(&[("a", 1, sum(1)), ("b", 1, sum(2)), ("a", 2, sum(3))]).freeze());
        let entries: Entries = visited(&frozen).into_iter().collect();
        for frozen in [&frozen as &dyn Frozen, &entries] {
            let mut count = 0;
            let mut visit = |_: &[u8], _: &[u8]| {
                count += 1;
                ControlFlow::Break(())
            };
            frozen.visit(&mut visit).unwrap();
            assert_eq!(count, 1);
        }
    }

    fn check_corrupt(key: &[u8], value: &[u8], words: &str) {
        let error = decode_entry::<String, (), u64>(key, value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(words), "{error}");
    }

    #[test]
    fn damaged_entries_are_refused() {
        let mut table = Table::new();
        table.insert(hash_key("ab", &mut Vec::new()).unwrap(), "ab".to_owned(), 1_u64);
        let [(key, value)] = visited(&keyed_plain(table.freeze())).try_into().unwrap();
        assert_eq!(decode_entry::<String, (), u64>(&key, &value).unwrap().3, 1);

        check_corrupt(&key[..7], &value, "shorter than a hash");
        check_corrupt(&key[..9], &value, "end within a key");
        check_corrupt(&[&key[..], &[0]].concat(), &value, "trail the key");
        check_corrupt(&[&[key[0] ^ 1], &key[1..]].concat(), &value, "hash");
        check_corrupt(&key, &[], "can't be decoded");
        check_corrupt(&key, &[0xc0], "can't be decoded");
        check_corrupt(&key, &[1, 1], "can't be decoded");
        check_corrupt(&key, &[1, 0x91], "can't be decoded");
        check_corrupt(&key, &[1, 0xd9], "can't be decoded");
    }

    #[derive(Serialize, Deserialize)]
    enum Renamed {
        #[serde(alias = "Old")]
        New,
    }

    #[test]
    fn a_key_that_would_be_looked_for_elsewhere_is_refused() {
        let own = b"Old\x00\x01";
        let key = [&hash_bytes(hash_key_bytes(own))[..], own].concat();
        let error = decode_entry::<Renamed, (), u8>(&key, &[1]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    /// Keys that are unequal and yet show serde the same.
    #[derive(Clone, PartialEq, Eq, Serialize)]
    struct Half(u8, #[serde(skip)] u8);

    fn check_refused<K: Serialize + Clone + Eq + Send + Sync + 'static>(
        entries: impl IntoIterator<Item = (KeyHash, K)>,
        words: &str,
    ) {
        let mut table = Table::new();
        for (hash, key) in entries {
            table.insert(hash, key, 1);
        }
        let error =
            keyed_plain(table.freeze()).visit(&mut |_, _| ControlFlow::Continue(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyRefused);
        assert!(error.to_string().contains(words), "{error}");
    }

    #[test]
    fn keys_that_would_be_lost_are_refused() {
        let hash = hash_key(&Half(1, 0), &mut Vec::new()).unwrap();
        check_refused([(hash, Half(1, 0)), (hash, Half(1, 1))], "equal bytes: key=");
        check_refused([(KeyHash(1), 1_u8)], "isn't its own: key=00000000000000018101");
        check_refused([(KeyHash(1), 1.0_f64.to_bits())], "isn't its own");
    }

    #[derive(Clone)]
    struct Unwritable;

    impl Serialize for Unwritable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }

    #[test]
    fn a_value_that_cannot_be_encoded_is_named() {
        let mut table = Table::new();
        table.insert(hash_key(&5, &mut Vec::new()).unwrap(), 5, Unwritable);
        let error =
            keyed_plain(table.freeze()).visit(&mut |_, _| ControlFlow::Continue(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueRefused);
        assert!(error.to_string().ends_with("8105"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
}
