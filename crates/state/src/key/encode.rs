//! The encoder: a serde serializer for canonical bytes.

use std::fmt;

use serde::ser::{self, Serialize};

use super::DEPTH_MAX;
use super::short::Short;
use crate::error::Error;

/// Writes one value. Each level of nesting gets an encoder of its own, one level less deep.
pub(super) struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    depth_left: u32,
    /// An integer that comes first is noted here.
    short: Option<&'a mut Option<Short>>,
}

impl<'a> Encoder<'a> {
    #[inline]
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, depth_left: DEPTH_MAX, short: None }
    }

    /// Notes the first bytes if they are those of an integer. The output must be empty.
    #[inline]
    pub(super) fn noting(out: &'a mut Vec<u8>, short: &'a mut Option<Short>) -> Self {
        Self { out, depth_left: DEPTH_MAX, short: Some(short) }
    }

    #[inline]
    fn part<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(Encoder { out: self.out, depth_left: self.depth_left, short: None })
    }

    #[inline]
    fn note(self, first: Short) {
        if let Some(short) = self.short {
            *short = Some(first);
        }
    }

    #[inline]
    fn deeper(self) -> Result<Self, Error> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(Error::key_refused(format!("a key is nested too deep: max={DEPTH_MAX}"))),
        }
    }

    #[inline]
    fn variant(self, name: &str) -> Result<Self, Error> {
        let inside = self.deeper()?;
        put_bytes(name.as_bytes(), inside.out);
        Ok(inside)
    }
}

/// Not negative: 0x80 + the number of bytes, then the bytes, the most significant one first.
#[inline]
fn put_unsigned(value: u64, out: &mut Vec<u8>) -> Short {
    let count = bytes_of(value);
    put_digits(0x80 + count, count, value, out)
}

/// Negative: 0x80 − the number of bytes of the magnitude, then the bytes of its complement.
#[inline]
fn put_signed(value: i64, out: &mut Vec<u8>) -> Short {
    if value >= 0 {
        return put_unsigned(value.unsigned_abs(), out);
    }
    let count = bytes_of(value.unsigned_abs());
    put_digits(0x80 - count, count, !value.unsigned_abs(), out)
}

/// A tag and the lower `count` bytes of a value.
#[inline]
fn put_digits(tag: u8, count: u8, value: u64, out: &mut Vec<u8>) -> Short {
    let digits = value.checked_shl(64 - 8 * u32::from(count)).unwrap_or(0);
    let tagged = u128::from(tag) << 120 | u128::from(digits) << 56;
    // One write of fixed length, whose surplus is cut off: it is faster than a copy of a length that
    // is only known at run time.
    let len = 1 + usize::from(count);
    let end = out.len() + len;
    out.extend_from_slice(&big_endian(tagged));
    out.truncate(end);
    Short { tagged, len }
}

#[inline(never)]
fn put_wide(magnitude: u128, negative: bool, out: &mut Vec<u8>) {
    let begin = out.len();
    match u64::try_from(magnitude) {
        Ok(narrow) => drop(put_unsigned(narrow, out)),
        Err(_) => {
            let bytes = big_endian(magnitude);
            let leading = bytes.iter().take_while(|byte| **byte == 0).count();
            out.push(0x90 - u8::try_from(leading).expect("a leading zero is one of 16 bytes"));
            out.extend(bytes.iter().skip(leading));
        }
    }
    if negative {
        complement(out, begin);
    }
}

/// Turns a positive integer into the negative one of equal magnitude.
fn complement(out: &mut [u8], begin: usize) {
    let mut bytes = out.iter_mut().skip(begin);
    if let Some(tag) = bytes.next() {
        *tag = 0x80 - (*tag - 0x80);
    }
    for byte in bytes {
        *byte = !*byte;
    }
}

/// How many bytes a value has without leading zeros: none for 0.
///
/// Counted by comparing, since the instruction that finds the highest bit waits, on common processors,
/// for whatever its target register was used for before: here, the hash of the key before.
#[inline]
fn bytes_of(value: u64) -> u8 {
    (0..8).map(|byte| u8::from(value >= 1 << (8 * byte))).sum()
}

#[expect(clippy::big_endian_bytes, reason = "keys must sort by their bytes")]
#[inline]
fn big_endian(value: u128) -> [u8; 16] {
    value.to_be_bytes()
}

/// The bytes, each 0x00 written as 0x00 0xFF, and 0x00 0x01 at the end.
#[inline]
fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_escaped(bytes, out);
    out.extend_from_slice(&[0x00, 0x01]);
}

#[inline]
fn put_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.contains(&0) {
        return out.extend_from_slice(bytes);
    }
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xFF);
        }
    }
}

/// Escapes text that is made bit by bit.
struct EscapedText<'a>(&'a mut Vec<u8>);

impl fmt::Write for EscapedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        put_escaped(text.as_bytes(), self.0);
        Ok(())
    }
}

fn refused_float(name: &str) -> Error {
    Error::key_refused(format!(
        "a float can't be part of a key, since equal floats may have unequal bytes: type={name}"
    ))
}

impl<'a> ser::Serializer for Encoder<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = ListEncoder<'a>;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = ser::Impossible<(), Error>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fn is_human_readable(&self) -> bool {
        false
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.out.push(u8::from(value));
        Ok(())
    }

    #[inline]
    fn serialize_i8(self, value: i8) -> Result<(), Error> {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_i16(self, value: i16) -> Result<(), Error> {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_i32(self, value: i32) -> Result<(), Error> {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<(), Error> {
        let short = put_signed(value, self.out);
        self.note(short);
        Ok(())
    }

    fn serialize_i128(self, value: i128) -> Result<(), Error> {
        put_wide(value.unsigned_abs(), value < 0, self.out);
        Ok(())
    }

    #[inline]
    fn serialize_u8(self, value: u8) -> Result<(), Error> {
        self.serialize_u64(value.into())
    }

    #[inline]
    fn serialize_u16(self, value: u16) -> Result<(), Error> {
        self.serialize_u64(value.into())
    }

    #[inline]
    fn serialize_u32(self, value: u32) -> Result<(), Error> {
        self.serialize_u64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<(), Error> {
        let short = put_unsigned(value, self.out);
        self.note(short);
        Ok(())
    }

    fn serialize_u128(self, value: u128) -> Result<(), Error> {
        put_wide(value, false, self.out);
        Ok(())
    }

    fn serialize_f32(self, _: f32) -> Result<(), Error> {
        Err(refused_float("f32"))
    }

    fn serialize_f64(self, _: f64) -> Result<(), Error> {
        Err(refused_float("f64"))
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.serialize_u32(value.into())
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), Error> {
        self.serialize_bytes(value.as_bytes())
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        put_bytes(value, self.out);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.out.push(0x00);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        self.out.push(0x01);
        self.deeper()?.part(value)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self.deeper()?)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.variant(variant)?.part(value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<ListEncoder<'a>, Error> {
        self.deeper().map(ListEncoder)
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Self, Error> {
        self.deeper()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        self.deeper()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self, Error> {
        self.variant(variant)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Error> {
        Err(Error::key_refused("a map can't be part of a key, since its order may differ"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        self.deeper()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self, Error> {
        self.variant(variant)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<(), Error> {
        use fmt::Write;
        write!(EscapedText(self.out), "{value}")
            .map_err(|_| Error::key_refused("a key's text can't be formatted"))?;
        self.out.extend_from_slice(&[0x00, 0x01]);
        Ok(())
    }
}

impl ser::SerializeTuple for Encoder<'_> {
    type Ok = ();
    type Error = Error;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.part(value)
    }

    #[inline]
    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl ser::SerializeTupleStruct for Encoder<'_> {
    type Ok = ();
    type Error = Error;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.part(value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl ser::SerializeTupleVariant for Encoder<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.part(value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl ser::SerializeStruct for Encoder<'_> {
    type Ok = ();
    type Error = Error;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.part(value)
    }

    fn skip_field(&mut self, name: &'static str) -> Result<(), Error> {
        Err(skipped(name))
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl ser::SerializeStructVariant for Encoder<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.part(value)
    }

    fn skip_field(&mut self, name: &'static str) -> Result<(), Error> {
        Err(skipped(name))
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

/// Fields lie next to each other without names: what follows one that is missing couldn't be read.
fn skipped(name: &str) -> Error {
    Error::key_refused(format!("a field of a key can't be left out: field={name}"))
}

/// A list: 0x01 before each element, 0x00 after the last.
pub(super) struct ListEncoder<'a>(Encoder<'a>);

impl ser::SerializeSeq for ListEncoder<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.0.out.push(0x01);
        self.0.part(value)
    }

    fn end(self) -> Result<(), Error> {
        self.0.out.push(0x00);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::super::encode_key;
    use crate::error::{ErrorKind, hex};

    fn check<K: Serialize + ?Sized>(key: &K, expected: &str) {
        let mut bytes = Vec::new();
        encode_key(key, &mut bytes).unwrap();
        assert_eq!(hex(&bytes), expected);
    }

    fn check_refused<K: Serialize>(key: &K, words: &str) {
        let error = encode_key(key, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyRefused);
        assert!(error.to_string().contains(words), "{error}");
    }

    #[derive(Serialize)]
    enum Shape {
        Dot,
        Circle(u8),
        Line(u8, u8),
        Box { width: u8, height: u8 },
    }

    #[derive(Serialize)]
    struct Unit;

    #[derive(Serialize)]
    struct Wrapped(i32);

    #[derive(Serialize)]
    struct Sometimes {
        #[serde(skip_serializing_if = "Option::is_none")]
        field: Option<u8>,
    }

    #[test]
    fn integers() {
        check(&0_u8, "80");
        check(&5_u8, "8105");
        check(&5_i128, "8105");
        check(&255_u16, "81ff");
        check(&256_u16, "820100");
        check(&u64::MAX, "88ffffffffffffffff");
        check(&(1_u128 << 64), "89010000000000000000");
        check(&u128::MAX, "90ffffffffffffffffffffffffffffffff");
        check(&-1_i8, "7ffe");
        check(&-1_i128, "7ffe");
        check(&-255_i16, "7f00");
        check(&-256_i16, "7efeff");
        check(&i64::MIN, "787fffffffffffffff");
        check(&i128::MIN, "707fffffffffffffffffffffffffffffff");
        check(&(-(1_i128 << 64)), "77feffffffffffffffff");
        check(&'a', "8161");
        check(&true, "01");
        check(&false, "00");
    }

    #[test]
    fn text() {
        check("", "0001");
        check("ab", "61620001");
        check("a\0b", "6100ff620001");
        check(&std::net::Ipv4Addr::LOCALHOST, "817f80808101");
        check(&format_args!("{}\0{}", 1, 2), "3100ff320001");
    }

    #[test]
    fn shapes() {
        check(&None::<u8>, "00");
        check(&Some(1), "018101");
        check(&(), "");
        check(&Unit, "");
        check(&Wrapped(7), "8107");
        check(&(1, "b", false), "810162000100");
        check(&vec![1, 2], "01810101810200");
        check(&Vec::<u8>::new(), "00");
        check(&Shape::Dot, "446f740001");
        check(&Shape::Circle(1), "436972636c6500018101");
        check(&Shape::Line(1, 2), "4c696e65000181018102");
        check(&Shape::Box { width: 1, height: 2 }, "426f78000181018102");
    }

    #[test]
    fn refusals() {
        check_refused(&1.0_f64, "type=f64");
        check_refused(&(1, Some(1.0_f32)), "type=f32");
        check_refused(&BTreeMap::from([(1, 2)]), "map");
        check_refused(&Sometimes { field: None }, "field=field");
        check(&Sometimes { field: Some(1) }, "018101");
    }

    #[derive(Serialize)]
    struct Nested(Option<Box<Self>>);

    #[test]
    fn depth_is_bounded() {
        let deep = (0..40).fold(Nested(None), |inside, _| Nested(Some(Box::new(inside))));
        check_refused(&deep, "too deep");
    }
}
