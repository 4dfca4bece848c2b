//! Values: MessagePack, nested to a limit.
//!
//! The decoder of rmp-serde goes as deep as the bytes say wherever a type has itself inside, and ends
//! the process with the stack. So the bytes are walked first, without recursion; this also shows where
//! the value ends. The encoder's bytes are walked alike, so that what was written can be read.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How deep arrays and maps may lie in each other.
const DEPTH_MAX: usize = 128;

type Reason = Box<dyn std::error::Error + Send + Sync>;

/// Appends the bytes of a value.
pub(super) fn encode_value<V: Serialize>(value: &V, out: &mut Vec<u8>) -> Result<(), Reason> {
    let begin = out.len();
    rmp_serde::encode::write(out, value)?;
    let bytes = out.get(begin..).unwrap_or_default();
    // Each level takes a byte.
    if bytes.len() > DEPTH_MAX {
        length_of(bytes)?;
    }
    Ok(())
}

/// Reads a value that is all of the bytes.
pub(super) fn decode_value<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, Reason> {
    if length_of(bytes)? != bytes.len() {
        return Err("bytes trail the value".into());
    }
    Ok(rmp_serde::from_slice(bytes)?)
}

/// How many bytes the first value takes.
fn length_of(bytes: &[u8]) -> Result<usize, Reason> {
    let mut rest = bytes;
    let mut depth = 0;
    // Values yet to come in the innermost container, and in those around it that aren't at their end.
    let mut left = 1_u64;
    let mut around = Vec::new();
    loop {
        while left == 0 {
            match around.pop() {
                Some(outer) => (depth, left) = outer,
                None => return Ok(bytes.len() - rest.len()),
            }
        }
        left -= 1;
        let inside = take_item(&mut rest).ok_or("the bytes aren't those of a value")?;
        if inside == 0 {
            continue;
        }
        if depth == DEPTH_MAX {
            return Err(format!("the value is nested too deep: max={DEPTH_MAX}").into());
        }
        if left > 0 {
            around.push((depth, left));
        }
        (depth, left) = (depth + 1, inside);
    }
}

/// Takes a value, of a container only its head; says how many values are inside.
fn take_item(rest: &mut &[u8]) -> Option<u64> {
    let marker = take_number(rest, 1)?;
    let (payload_bytes, inside) = match marker {
        0x80..=0x8F => (0, 2 * (marker - 0x80)),
        0x90..=0x9F => (0, marker - 0x90),
        0xA0..=0xBF => (marker - 0xA0, 0),
        0x00..=0x7F | 0xE0.. | 0xC0 | 0xC2 | 0xC3 => (0, 0),
        0xC1 => return None,
        // Binary, extension (with a type), string: the width of the length doubles.
        0xC4..=0xC6 => (take_number(rest, 1 << (marker - 0xC4))?, 0),
        0xC7..=0xC9 => (take_number(rest, 1 << (marker - 0xC7))? + 1, 0),
        0xD9..=0xDB => (take_number(rest, 1 << (marker - 0xD9))?, 0),
        0xCA => (4, 0),
        0xCB => (8, 0),
        0xCC..=0xCF => (1 << (marker - 0xCC), 0),
        0xD0..=0xD3 => (1 << (marker - 0xD0), 0),
        0xD4..=0xD8 => ((1 << (marker - 0xD4)) + 1, 0),
        0xDC..=0xDD => (0, take_number(rest, 2 << (marker - 0xDC))?),
        0xDE..=0xDF => (0, 2 * take_number(rest, 2 << (marker - 0xDE))?),
    };
    *rest = rest.get(usize::try_from(payload_bytes).ok()?..)?;
    Some(inside)
}

/// Takes a big-endian number of a few bytes.
fn take_number(rest: &mut &[u8], count: usize) -> Option<u64> {
    let (bytes, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use serde::Deserialize;

    use super::*;

    fn check<V: Serialize + DeserializeOwned + PartialEq + Debug>(value: V) {
        let mut bytes = b"before".to_vec();
        encode_value(&value, &mut bytes).unwrap();
        let bytes = &bytes[6..];
        assert_eq!(decode_value::<V>(bytes).unwrap(), value);
        assert_eq!(length_of(&[bytes, &[0xC1]].concat()).unwrap(), bytes.len());
        // All cuts of a short value, some of a long one.
        for end in (0..bytes.len()).step_by(bytes.len() / 100 + 1) {
            assert!(length_of(&bytes[..end]).is_err(), "{value:?} cut at {end}");
        }
        assert!(decode_value::<V>(&[bytes, &[0]].concat()).is_err());
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum List {
        End,
        Link(Box<Self>),
    }

    fn list(length: usize) -> List {
        (0..length).fold(List::End, |rest, _| List::Link(Box::new(rest)))
    }

    #[test]
    fn every_shape_is_walked_to_its_end() {
        check(());
        check((true, false, None::<u8>, 'c', "text".to_owned(), 1.5_f32, -2.5_f64));
        check((1_u8, 200_u8, 60_000_u16, 1_u32 << 31, u64::MAX, u128::MAX));
        check((-1_i8, -100_i8, -30_000_i16, i32::MIN, i64::MIN, i128::MIN));
        check(["x".repeat(31), "x".repeat(32), "x".repeat(256), "x".repeat(65_536)]);
        check((vec![1_u8; 15], vec![1_u8; 16], vec![0_u8; 65_536]));
        check((0_u32..100).map(|key| (key, vec![key])).collect::<BTreeMap<_, _>>());
        check((0_u32..66_000).map(|key| (key, ())).collect::<BTreeMap<_, _>>());
        check(Vec::<Vec<Vec<u8>>>::from([vec![], vec![vec![], vec![1]]]));
        check(list(0));
        check(list(DEPTH_MAX));
    }

    #[test]
    fn lengths_of_what_serde_does_not_write() {
        let vectors: [(&[u8], usize); 6] = [
            (&[0xC4, 2, 0, 0], 4),
            (&[0xC5, 0, 1, 0], 4),
            (&[0xC7, 1, 9, 0], 4),
            (&[0xD4, 9, 0], 3),
            (&[0xD8, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 18),
            (&[0xDF, 0, 0, 0, 1, 5, 0xDD, 0, 0, 0, 0], 11),
        ];
        for (bytes, length) in vectors {
            assert_eq!(length_of(bytes).unwrap(), length, "{bytes:x?}");
        }
    }

    #[test]
    fn depth_is_bounded_on_both_sides() {
        let refusal = encode_value(&list(DEPTH_MAX + 1), &mut Vec::new()).unwrap_err();
        assert!(refusal.to_string().contains("too deep"));
        // A map of one entry, "Link", and in it the next one.
        let bytes = b"\x81\xA4Link".repeat(10_000);
        let bytes = [&bytes[..], b"\xA3End"].concat();
        let refusal = decode_value::<List>(&bytes).unwrap_err();
        assert!(refusal.to_string().contains("too deep"));
    }
}
