//! Canonical bytes: round trips, order, hostile bytes, and the checked-in vectors.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::fmt::{Debug, Write};
use std::ops::ControlFlow;

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strandline_state::{
    ErrorKind, Frozen, KeyHash, MaxParallelism, Table, decode_entry, decode_key, encode_key,
    hash_key, hash_key_bytes, hash_range, key_group, keyed, owner_of,
};

type Nested = (i64, String, Option<(u8, char)>, Vec<Option<i16>>, Vec<String>, i128);

fn text() -> impl Strategy<Value = String> {
    // Zeros and neighbours of the escapes are frequent.
    prop::collection::vec(prop::sample::select(vec!['\0', '\u{1}', 'a', 'ÿ', '\u{ff}']), 0..5)
        .prop_map(String::from_iter)
}

fn integer() -> impl Strategy<Value = i128> {
    (any::<i128>(), 0_u32..128).prop_map(|(value, shift)| value >> shift)
}

fn nested() -> impl Strategy<Value = Nested> {
    (
        integer().prop_map(|value| i64::try_from(value >> 64).unwrap()),
        text(),
        prop::option::of((any::<u8>(), any::<char>())),
        prop::collection::vec(prop::option::of(any::<i16>()), 0..4),
        prop::collection::vec(text(), 0..3),
        integer(),
    )
}

fn bytes_of<K: Serialize + ?Sized>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(key, &mut bytes).unwrap();
    bytes
}

fn check_round_trip<K: Serialize + DeserializeOwned + PartialEq + Debug>(key: &K) {
    let mut bytes = bytes_of(key);
    bytes.extend_from_slice(b"rest");
    let (decoded, rest) = decode_key::<K>(&bytes).unwrap();
    assert_eq!((&decoded, rest), (key, &b"rest"[..]));
}

fn check_order<K: Serialize + Ord + Debug>(one: &K, two: &K) {
    assert_eq!(bytes_of(one).cmp(&bytes_of(two)), one.cmp(two), "{one:?} {two:?}");
}

#[derive(Debug, Serialize, Deserialize)]
enum Hostile {
    A,
    B(Vec<u8>, String),
    C { inside: Option<Box<Self>>, list: Vec<()> },
}

fn check_hostile<K: DeserializeOwned>(bytes: &[u8]) {
    if let Err(error) = decode_key::<K>(bytes) {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

proptest! {
    #[test]
    fn keys_come_back(key in nested()) {
        check_round_trip(&key);
    }

    #[test]
    fn bytes_sort_as_keys_do(one in nested(), two in nested()) {
        check_order(&one, &two);
        // Equal beginnings, so that later parts decide.
        let three = (one.0, one.1.clone(), one.2, two.3.clone(), two.4.clone(), two.5);
        check_order(&one, &three);
        let four = (one.0, one.1.clone(), one.2, one.3.clone(), one.4.clone(), two.5);
        check_order(&one, &four);
    }

    #[test]
    fn integers_sort(one in integer(), two in integer(), near in -2_i128..3) {
        check_order(&one, &two);
        check_order(&one, &one.saturating_add(near));
        check_order(&one.unsigned_abs(), &two.unsigned_abs());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        check_hostile::<Nested>(&bytes);
        check_hostile::<Hostile>(&bytes);
        check_hostile::<(u128, i8, bool, [u16; 3])>(&bytes);
        let _decoded_or_not = decode_entry::<String, u8, Vec<String>>(&bytes, &bytes).is_ok();
    }

    #[test]
    fn damaged_keys_never_panic(key in nested(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = bytes_of(&key);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check_hostile::<Nested>(&bytes);
    }

    #[test]
    fn entries_are_bytes_of_their_keys_alone(
        entries in prop::collection::btree_map((text(), 0_u8..9), any::<u32>(), 0..40)
            .prop_flat_map(|entries| {
                let listed: Vec<_> = entries.into_iter().collect();
                (Just(listed.clone()), Just(listed).prop_shuffle())
            }),
    ) {
        let (one, two) = entries;
        prop_assert_eq!(visited(&one), visited(&two));
    }

    #[test]
    fn a_hash_has_one_owner(hash: u64, max in 1_u16..=32_768, parallelism in 1_u32..40_000) {
        let max = MaxParallelism::new(max).unwrap();
        let owner = owner_of(key_group(KeyHash(hash), max), max, parallelism);
        prop_assert!(hash_range(owner, parallelism, max).unwrap().contains(KeyHash(hash)));
        for other in [owner.checked_sub(1), owner.checked_add(1)].into_iter().flatten() {
            let range = hash_range(other, parallelism, max);
            prop_assert!(range.is_none_or(|range| !range.contains(KeyHash(hash))));
        }
    }
}

fn visited(entries: &[((String, u8), u32)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut table = Table::new();
    for (key, value) in entries {
        let hash = hash_key(&key.0, &mut Vec::new()).unwrap();
        table.insert(hash, key.clone(), *value);
    }
    let mut seen = Vec::new();
    let frozen = keyed(table.freeze());
    frozen
        .visit(&mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(seen.is_sorted_by(|one, two| one.0 < two.0));
    for (key, value) in &seen {
        let (_, key, namespace, value) = decode_entry::<String, u8, u32>(key, value).unwrap();
        assert!(entries.contains(&((key, namespace), value)));
    }
    assert_eq!(seen.len(), entries.len());
    seen
}

#[derive(Serialize)]
struct Point {
    x: i32,
    y: i32,
}

#[derive(Serialize)]
enum Shape {
    Dot,
    Circle(u8),
    Line { from: u8, to: u8 },
}

/// A line of the vectors: what the value is, its bytes, their hash and the group of 128.
fn line<K: Serialize + ?Sized>(lines: &mut String, what: &str, key: &K) {
    let bytes = bytes_of(key);
    let hash = hash_key_bytes(&bytes);
    let hex: String = bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    let hex = if hex.is_empty() { "-".to_owned() } else { hex };
    let group = key_group(hash, MaxParallelism::default()).0;
    writeln!(lines, "{what} | {hex} | {:016x} | {group}", hash.0).unwrap();
}

fn vectors() -> String {
    let mut lines = String::from("# value | canonical bytes | hash | key group of 128\n");
    let out = &mut lines;
    line(out, "unit", &());
    line(out, "bool false", &false);
    line(out, "bool true", &true);
    for value in [0_u128, 1, 5, 127, 128, 255, 256, 65_535, 65_536, 1 << 32, 1 << 63] {
        line(out, &format!("integer {value}"), &value);
    }
    line(out, "integer 18446744073709551615", &u64::MAX);
    line(out, "integer 18446744073709551616", &(1_u128 << 64));
    line(out, "integer 340282366920938463463374607431768211455", &u128::MAX);
    for value in [-1_i128, -128, -255, -256, -65_535, -65_536, i64::MIN.into(), i128::MIN] {
        line(out, &format!("integer {value}"), &value);
    }
    line(out, "char U+20AC", &'€');
    line(out, "str \"\"", "");
    line(out, "str \"a\"", "a");
    line(out, "str \"tide\"", "tide");
    line(out, "str \"a\\0b\"", "a\0b");
    line(out, "str \"größe\"", "größe");
    line(out, "str of 300 times \"x\"", &"x".repeat(300));
    line(out, "none", &None::<u8>);
    line(out, "some 5", &Some(5));
    line(out, "some none", &Some(None::<u8>));
    line(out, "tuple (5, \"a\")", &(5, "a"));
    line(out, "tuple (\"a\", -1, true)", &("a", -1, true));
    line(out, "struct {x: 1, y: -1}", &Point { x: 1, y: -1 });
    line(out, "seq []", &[0_u8; 0].as_slice());
    line(out, "seq [1, 0, 256]", &[1, 0, 256].as_slice());
    line(out, "enum Dot", &Shape::Dot);
    line(out, "enum Circle(7)", &Shape::Circle(7));
    line(out, "enum Line{from: 1, to: 2}", &Shape::Line { from: 1, to: 2 });
    lines
}

#[test]
fn vectors_are_as_checked_in() {
    let stored = include_str!("../../../docs/vectors/keys.txt");
    for (made, stored) in vectors().lines().zip(stored.lines()) {
        assert_eq!(made, stored);
    }
    assert_eq!(vectors(), stored, "a format that is final has changed");
}

#[test]
fn vectors_read_as_written_in_the_specification() {
    // By hand, so that the file isn't only what the encoder says.
    for (text, bytes) in [
        ("integer 256", "820100"),
        ("integer -256", "7efeff"),
        ("str \"a\\0b\"", "6100ff620001"),
        ("some none", "0100"),
        ("seq [1, 0, 256]", "01810101800182010000"),
        ("enum Line{from: 1, to: 2}", "4c696e65000181018102"),
        ("unit", "- | 2d06800538d394c2"),
    ] {
        assert!(vectors().contains(&format!("\n{text} | {bytes} | ")), "{text}");
    }
}
