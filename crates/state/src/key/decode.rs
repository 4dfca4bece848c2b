//! The decoder: a serde deserializer for canonical bytes.
//!
//! It believes nothing: bytes that the encoder wouldn't write are refused where this can be told from
//! the bytes alone, and nothing is allocated that the bytes haven't paid for.

use std::borrow::Cow;

use serde::de::value::CowStrDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::DEPTH_MAX;
use crate::error::Error;

/// Reads one value and moves `rest` behind it.
pub(super) struct Decoder<'a, 'de> {
    rest: &'a mut &'de [u8],
    depth_left: u32,
}

impl<'a, 'de> Decoder<'a, 'de> {
    pub(super) fn new(rest: &'a mut &'de [u8]) -> Self {
        Self { rest, depth_left: DEPTH_MAX }
    }

    fn deeper(self) -> Result<Self, Error> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { rest: self.rest, depth_left }),
            None => Err(Error::corrupt(format!("a key is nested too deep: max={DEPTH_MAX}"))),
        }
    }

    fn part(&mut self) -> Decoder<'_, 'de> {
        Decoder { rest: self.rest, depth_left: self.depth_left }
    }

    fn take(&mut self, count: usize) -> Result<&'de [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(too_short)?;
        *self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let (first, rest) = self.rest.split_first().ok_or_else(too_short)?;
        *self.rest = rest;
        Ok(*first)
    }

    /// A byte that is 0x00 or 0x01.
    fn flag(&mut self, of: &str) -> Result<bool, Error> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::corrupt(format!("a key's bytes have a wrong {of}: byte={other}"))),
        }
    }

    fn integer(&mut self) -> Result<Integer, Error> {
        let tag = self.byte()?;
        let negative = tag < 0x80;
        let digits = self.take(tag.abs_diff(0x80).into())?;
        if digits.len() > 16 {
            return Err(Error::corrupt(format!("an integer of a key is too long: tag={tag}")));
        }
        // The bytes of a negative integer are the complement of its magnitude's.
        let flip = if negative { 0xFF } else { 0 };
        if digits.first() == Some(&flip) {
            return Err(Error::corrupt("an integer of a key has leading zeros"));
        }
        let magnitude = digits.iter().fold(0, |value, byte| value << 8 | u128::from(*byte ^ flip));
        Ok(Integer { negative, magnitude })
    }

    fn visit_integer<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let integer = self.integer()?;
        if integer.negative {
            let value = integer.negated()?;
            return match i64::try_from(value) {
                Ok(narrow) => visitor.visit_i64(narrow),
                Err(_) => visitor.visit_i128(value),
            };
        }
        match u64::try_from(integer.magnitude) {
            Ok(narrow) => visitor.visit_u64(narrow),
            Err(_) => visitor.visit_u128(integer.magnitude),
        }
    }

    /// Escaped bytes up to their end.
    fn bytes(&mut self) -> Result<Cow<'de, [u8]>, Error> {
        let plain = self.up_to_zero()?;
        if !self.is_escape()? {
            return Ok(Cow::Borrowed(plain));
        }
        let mut bytes = plain.to_vec();
        loop {
            bytes.push(0);
            bytes.extend_from_slice(self.up_to_zero()?);
            if !self.is_escape()? {
                return Ok(Cow::Owned(bytes));
            }
        }
    }

    /// The bytes before the next 0x00, which is taken as well.
    fn up_to_zero(&mut self) -> Result<&'de [u8], Error> {
        let length = self.rest.iter().position(|byte| *byte == 0).ok_or_else(too_short)?;
        let plain = self.take(length)?;
        self.take(1)?;
        Ok(plain)
    }

    /// Whether a 0x00 stands for itself and isn't the end.
    fn is_escape(&mut self) -> Result<bool, Error> {
        match self.byte()? {
            0xFF => Ok(true),
            0x01 => Ok(false),
            other => Err(Error::corrupt(format!("a key's text has a wrong escape: byte={other}"))),
        }
    }

    fn text(&mut self) -> Result<Cow<'de, str>, Error> {
        match self.bytes()? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(not_utf8),
            Cow::Owned(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Cow::Owned(text)),
                Err(error) => Err(not_utf8(error.utf8_error())),
            },
        }
    }
}

/// Invariant: `negative` implies that the magnitude isn't 0.
struct Integer {
    negative: bool,
    magnitude: u128,
}

impl Integer {
    fn negated(&self) -> Result<i128, Error> {
        0_i128
            .checked_sub_unsigned(self.magnitude)
            .ok_or_else(|| Error::corrupt("an integer of a key has more than 128 bits"))
    }
}

fn too_short() -> Error {
    Error::corrupt("the bytes end within a key")
}

fn not_utf8(error: std::str::Utf8Error) -> Error {
    Error::corrupt("a key's text isn't UTF-8").because(error)
}

macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.visit_integer(visitor)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Decoder<'_, 'de> {
    type Error = Error;

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }

    // What remains asks for no type, which the bytes don't tell, or for one that is never written.
    forward_to_deserialize_any! { f32 f64 map ignored_any }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::corrupt("a type that can't be a key was asked for"))
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.flag("bool")?)
    }

    fn deserialize_char<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let integer = self.integer()?;
        let scalar = u32::try_from(integer.magnitude).ok().filter(|_| !integer.negative);
        match scalar.and_then(char::from_u32) {
            Some(scalar) => visitor.visit_char(scalar),
            None => Err(Error::corrupt("a key's character isn't a scalar value")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        match self.text()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        match self.bytes()? {
            Cow::Borrowed(bytes) => visitor.visit_borrowed_bytes(bytes),
            Cow::Owned(bytes) => visitor.visit_byte_buf(bytes),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        if self.flag("option")? { visitor.visit_some(self.deeper()?) } else { visitor.visit_none() }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self.deeper()?)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut list = List { decoder: self.deeper()?, ended: false };
        let value = visitor.visit_seq(&mut list)?;
        if list.ended || !list.decoder.flag("list")? {
            return Ok(value);
        }
        Err(Error::corrupt("a list of a key has more elements than its type takes"))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Fields { decoder: self.deeper()?, left: len })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.deeper()?)
    }
}

/// The fields of a tuple or struct: nothing lies between them.
struct Fields<'a, 'de> {
    decoder: Decoder<'a, 'de>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Fields<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                seed.deserialize(self.decoder.part()).map(Some)
            }
            None => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The elements of a list, each behind a flag. How many follow isn't known before the end.
struct List<'a, 'de> {
    decoder: Decoder<'a, 'de>,
    ended: bool,
}

impl<'de> de::SeqAccess<'de> for &mut List<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.ended || !self.decoder.flag("list")? {
            self.ended = true;
            return Ok(None);
        }
        seed.deserialize(self.decoder.part()).map(Some)
    }
}

impl<'de> de::EnumAccess<'de> for Decoder<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(mut self, seed: V) -> Result<(V::Value, Self), Error> {
        let name: CowStrDeserializer<'_, Error> = self.text()?.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Decoder<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.part())
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Fields { decoder: self, left: len })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.tuple_variant(fields.len(), visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Serialize};

    use super::super::{decode_key, encode_key};
    use crate::error::ErrorKind;

    fn check<K: Serialize + DeserializeOwned + PartialEq + Debug>(key: K) {
        let mut bytes = Vec::new();
        encode_key(&key, &mut bytes).unwrap();
        for end in 0..bytes.len() {
            let error = decode_key::<K>(&bytes[..end]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{key:?} cut at {end}");
        }
        bytes.push(9);
        assert_eq!(decode_key::<K>(&bytes).unwrap(), (key, &[9][..]));
    }

    fn check_corrupt<K: DeserializeOwned + Debug>(bytes: &[u8]) {
        assert_eq!(decode_key::<K>(bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Dot,
        Circle(u8),
        Line(u8, i64),
        #[serde(rename = "b\0x")]
        Box {
            width: u8,
            inside: Option<Box<Self>>,
        },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Unit;

    #[test]
    fn round_trips() {
        for value in [0, 1, 255, 256, u64::MAX.into(), 1 << 64, u128::MAX] {
            check(value);
        }
        for value in [0, -1, -255, -256, i64::MIN.into(), -1 << 64, i128::MIN, i128::MAX] {
            check(value);
        }
        check((1_u8, -1_i16, 'ß', true, ((), Unit, "a\0b\0".to_owned(), String::new())));
        check(vec![Some(vec![1_u8]), None, Some(Vec::new())]);
        check(["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
        check(std::time::Duration::from_millis(1_500));
        check(Shape::Dot);
        check(Shape::Circle(9));
        check(Shape::Line(9, -9));
        check(Shape::Box { width: 1, inside: Some(Box::new(Shape::Dot)) });
    }

    #[test]
    fn an_integer_may_be_read_with_another_width() {
        assert_eq!(decode_key::<i8>(&[0x81, 5]).unwrap().0, 5);
        assert_eq!(decode_key::<u128>(&[0x81, 5]).unwrap().0, 5);
        check_corrupt::<i8>(&[0x81, 200]);
        check_corrupt::<u8>(&[0x7f, 0xfe]);
    }

    #[test]
    fn bytes_that_are_never_written() {
        check_corrupt::<u64>(&[0x82, 0, 5]);
        check_corrupt::<i64>(&[0x7e, 0xff, 5]);
        check_corrupt::<u128>(&[[0x91].as_slice(), &[1; 17]].concat());
        check_corrupt::<i128>(&[[0x70].as_slice(), &[0; 16]].concat());
        check_corrupt::<bool>(&[2]);
        check_corrupt::<Option<u8>>(&[2]);
        check_corrupt::<Vec<u8>>(&[2]);
        check_corrupt::<String>(&[0, 2]);
        check_corrupt::<String>(&[0xff, 0, 1]);
        check_corrupt::<String>(&[0xff, 0, 0xff, 0, 1]);
        check_corrupt::<char>(&[0x82, 0xd8, 0x00]);
        check_corrupt::<Shape>(b"Cube\x00\x01");
        check_corrupt::<f64>(&[0; 8]);
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its depth matters")]
    struct Nested(Option<Box<Self>>);

    #[test]
    fn depth_is_bounded() {
        check_corrupt::<Nested>(&[1; 100_000]);
    }
}
