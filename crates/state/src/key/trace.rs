//! Checks a type before it is used as a key.
//!
//! The type is asked to read itself from a deserializer that makes values up and watches what is asked
//! for. One pass follows one variant of each enum, so passes are made until each variant of each enum
//! has been followed. A type met inside itself is cut short there (no value, an empty list, a variant
//! that isn't being followed), so recursive types end.
//!
//! What an enum is was settled when its variants have been followed *once*, wherever it was met: enums
//! are told apart by the name of their visitor's type, which has the type's parameters.

use std::any::type_name;
use std::collections::BTreeMap;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer as _, IntoDeserializer, Visitor,
};

use super::DEPTH_MAX;
use crate::error::{Error, ErrorKind};

/// Passes after which a type is accepted as it is; a type needs about as many as it has variants.
const PASSES_MAX: usize = 10_000;

/// Whether a type can be a key: it must have no float and no map in it, and must not ask for bytes
/// that describe themselves (as untagged enums and flattened fields do).
///
/// A type that refuses made-up values (text that must be an address, say) is accepted when nothing
/// was found up to there: [`encode_key`](super::encode_key) still refuses its floats and maps.
///
/// # Errors
/// [`KeyRefused`](ErrorKind::KeyRefused), with what was found and where.
pub fn check_key_type<K: DeserializeOwned>() -> Result<(), Error> {
    let mut trace = Trace::default();
    for _ in 0..PASSES_MAX {
        trace.begin();
        // Whether made-up values do for the type says nothing; what it asked for does.
        let _refusal_of_made_up_values = K::deserialize(Tracer(&mut trace)).err();
        if let Some(found) = trace.found {
            return Err(Error::key_refused(found));
        }
        if trace.is_settled(0) {
            break;
        }
    }
    Ok(())
}

type TypeName = &'static str;

/// What has been seen of a type.
#[derive(Default)]
struct Trace {
    enums: BTreeMap<TypeName, Vec<Progress>>,
    /// The enums met in this pass, in order.
    met: Vec<TypeName>,
    /// What is being read: options and lists by their type, enums by type and variant.
    open: Vec<(TypeName, usize)>,
    path: Vec<String>,
    found: Option<String>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Progress {
    #[default]
    New,
    /// Followed to the end, and a value came out.
    Whole,
    /// Followed as far as it went.
    Refused,
}

impl Trace {
    fn begin(&mut self) {
        self.met.clear();
        self.open.clear();
        self.path.clear();
    }

    fn is_open(&self, name: TypeName) -> bool {
        self.open.iter().any(|(open, _)| *open == name)
    }

    /// Whether all enums met since `mark` have been followed in all variants; those that are being
    /// followed right now are left out, since their turn ends later.
    fn is_settled(&self, mark: usize) -> bool {
        self.met.iter().skip(mark).all(|name| {
            self.is_open(name)
                || self.enums.get(name).is_none_or(|all| !all.contains(&Progress::New))
        })
    }

    /// The variant to follow now: a new one, else one that is known to end.
    fn choose(&mut self, name: TypeName, count: usize) -> Option<usize> {
        self.met.push(name);
        let all = self.enums.entry(name).or_insert_with(|| vec![Progress::New; count]);
        let closed = |variant: &usize| !self.open.contains(&(name, *variant));
        let of = |wanted| {
            let fits = move |(variant, progress): (usize, &Progress)| {
                (*progress == wanted).then_some(variant)
            };
            all.iter().enumerate().filter_map(fits)
        };
        of(Progress::New).find(closed).or_else(|| of(Progress::Whole).find(closed))
    }

    /// A variant has been followed, and the enums met since `mark` with it: is it done?
    fn settle(&mut self, name: TypeName, variant: usize, mark: usize, whole: bool) {
        if !self.is_settled(mark) {
            return;
        }
        let slot = self.enums.get_mut(name).and_then(|all| all.get_mut(variant));
        if let Some(slot) = slot.filter(|slot| **slot == Progress::New) {
            *slot = if whole { Progress::Whole } else { Progress::Refused };
        }
    }

    fn find(&mut self, what: &str, why: &str) -> Error {
        let at = if self.path.is_empty() { "the key itself" } else { "" };
        let path = self.path.iter().rev().map(String::as_str).collect::<Vec<_>>().join(" ");
        let text = format!("a key can't have {what}, {why}: {at}{path}");
        self.found.get_or_insert(text);
        made_up()
    }

    /// Goes one step down, and up again.
    fn step<T>(
        &mut self,
        step: String,
        read: impl FnOnce(Tracer<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.path.len() >= DEPTH_MAX as usize {
            return Err(made_up());
        }
        self.path.push(step);
        let value = read(Tracer(self));
        self.path.pop();
        value
    }

    /// Reads what may have its own type inside.
    fn opened<T>(
        &mut self,
        name: TypeName,
        variant: usize,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.open.push((name, variant));
        let value = read(self);
        self.open.pop();
        value
    }
}

/// Ends a pass; never seen by a caller.
fn made_up() -> Error {
    Error::new(ErrorKind::KeyRefused, "the type can't be made up")
}

struct Tracer<'a>(&'a mut Trace);

macro_rules! made_up_values {
    ($($method:ident $visit:ident $value:expr;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit($value)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    made_up_values! {
        deserialize_bool visit_bool true;
        deserialize_i8 visit_i8 1;
        deserialize_i16 visit_i16 1;
        deserialize_i32 visit_i32 1;
        deserialize_i64 visit_i64 1;
        deserialize_i128 visit_i128 1;
        deserialize_u8 visit_u8 1;
        deserialize_u16 visit_u16 1;
        deserialize_u32 visit_u32 1;
        deserialize_u64 visit_u64 1;
        deserialize_u128 visit_u128 1;
        deserialize_char visit_char 'a';
        deserialize_str visit_borrowed_str "a";
        deserialize_string visit_borrowed_str "a";
        deserialize_identifier visit_borrowed_str "a";
        // As long as a UUID, the most frequent type that reads bytes.
        deserialize_bytes visit_borrowed_bytes &[1; 16];
        deserialize_byte_buf visit_borrowed_bytes &[1; 16];
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(self
            .0
            .find("a type that asks what its bytes hold", "since keys don't describe themselves"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(self.0.find("an f32", "since equal floats may have unequal bytes"))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(self.0.find("an f64", "since equal floats may have unequal bytes"))
    }

    fn deserialize_map<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(self.0.find("a map", "since its order may differ"))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let name = type_name::<V>();
        if self.0.is_open(name) {
            return visitor.visit_none();
        }
        self.0.opened(name, 0, |trace| visitor.visit_some(Tracer(trace)))
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
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.step(format!("in `{name}`"), |inside| visitor.visit_newtype_struct(inside))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let name = type_name::<V>();
        let left = usize::from(!self.0.is_open(name));
        self.0.opened(name, 0, |trace| visitor.visit_seq(List { trace, left }))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple_struct("a tuple", len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Fields { trace: self.0, of: name, names: &[], next: 0, count: len })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let count = fields.len();
        visitor.visit_seq(Fields { trace: self.0, of: name, names: fields, next: 0, count })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let kind = type_name::<V>();
        let variant = self.0.choose(kind, variants.len()).ok_or_else(made_up)?;
        let label = variants.get(variant).copied().unwrap_or_default();
        let mark = self.0.met.len();
        let step = format!("in variant `{label}` of `{name}`");
        self.0.opened(kind, variant, |trace| {
            let read = |inside: Tracer<'_>| visitor.visit_enum(Variant { trace: inside.0, label });
            let value = trace.step(step, read);
            trace.settle(kind, variant, mark, value.is_ok());
            value
        })
    }
}

struct Fields<'a> {
    trace: &'a mut Trace,
    of: &'static str,
    /// Empty for fields that have none.
    names: &'static [&'static str],
    next: usize,
    count: usize,
}

impl<'de> de::SeqAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.next == self.count {
            return Ok(None);
        }
        let step = match self.names.get(self.next) {
            Some(name) => format!("in field `{name}` of `{}`", self.of),
            None => format!("in field {} of `{}`", self.next, self.of),
        };
        self.next += 1;
        self.trace.step(step, |inside| seed.deserialize(inside)).map(Some)
    }
}

struct List<'a> {
    trace: &'a mut Trace,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for List<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        self.trace.step("in a list".to_owned(), |inside| seed.deserialize(inside)).map(Some)
    }
}

/// The chosen variant of an enum.
struct Variant<'a> {
    trace: &'a mut Trace,
    label: &'static str,
}

impl<'de> de::EnumAccess<'de> for Variant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let label: StrDeserializer<'_, Error> = self.label.into_deserializer();
        Ok((seed.deserialize(label)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(Tracer(self.trace))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        Tracer(self.trace).deserialize_tuple_struct(self.label, len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        Tracer(self.trace).deserialize_struct(self.label, fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::num::NonZeroU8;

    use serde::Deserialize;

    use super::*;

    fn check_refused<K: DeserializeOwned>(what: &str, at: &str) {
        let error = check_key_type::<K>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyRefused);
        let text = error.to_string();
        assert!(text.contains(what) && text.contains(at), "{text}");
    }

    fn check_accepted<K: DeserializeOwned>() {
        check_key_type::<K>().unwrap();
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type matters")]
    struct Point {
        y: u8,
        x: f64,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type matters")]
    enum Shape<T> {
        Dot,
        Circle(u8),
        Line(u8, T),
        Box { width: Option<T> },
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type matters")]
    enum Expression {
        Sum(Box<Self>, Box<Self>),
        Product(Vec<Self>),
        Maybe(Option<Box<Self>>),
        Literal(u8),
        Call { name: Symbol, with: Box<Call> },
        Last(f32),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type matters")]
    enum Symbol {
        Short(char),
        Long(String),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type matters")]
    enum Call {
        Of(Expression),
        Nothing,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type matters")]
    struct Metres(f64);

    #[derive(Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only the type matters")]
    enum Untagged {
        Number(u8),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type matters")]
    struct Tree {
        children: Vec<Self>,
        parent: Option<Box<Self>>,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type matters")]
    struct Endless(Box<Self>);

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the type matters")]
    enum Picky {
        Address(#[serde(deserialize_with = "never")] u8),
        Float(f32),
    }

    fn never<'de, D: de::Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
        String::deserialize(from)?;
        Err(de::Error::custom("made-up text won't do"))
    }

    #[test]
    fn types_that_can_be_keys() {
        check_accepted::<(u8, i128, char, bool, String, (), Option<NonZeroU8>)>();
        check_accepted::<(Vec<[Shape<u8>; 3]>, BTreeSet<u8>)>();
        check_accepted::<Result<std::net::IpAddr, std::time::Duration>>();
        check_accepted::<Tree>();
        check_accepted::<Symbol>();
        check_accepted::<Endless>();
    }

    #[test]
    fn floats_are_found_wherever_they_are() {
        check_refused::<f32>("f32", "the key itself");
        check_refused::<Point>("f64", ": in field `x` of `Point`");
        check_refused::<(u8, Point)>("f64", "in field `x` of `Point` in field 1 of `a tuple`");
        check_refused::<Option<Vec<Metres>>>("f64", "in `Metres` in a list");
        check_refused::<Shape<f64>>("f64", "field 1 of `Line` in variant `Line` of `Shape`");
        check_refused::<(Shape<u8>, Shape<f32>)>("f32", "in field 1 of `a tuple`");
        check_refused::<(Result<u8, u8>, Result<u8, f32>)>("f32", "in field 1 of `a tuple`");
    }

    #[test]
    fn recursive_types_are_followed_to_the_last_variant() {
        check_refused::<Expression>("f32", "in variant `Last` of `Expression`");
        check_refused::<Call>("f32", "in variant `Last` of `Expression`");
    }

    #[test]
    fn a_variant_that_refuses_hides_no_other() {
        check_refused::<Picky>("f32", "in variant `Float` of `Picky`");
    }

    #[test]
    fn maps_and_types_that_ask() {
        check_refused::<BTreeMap<u8, u8>>("a map", "the key itself");
        check_refused::<Untagged>("asks what its bytes hold", "the key itself");
    }
}
