//! When the entries of a page were last changed: a byte for each.
//!
//! The seven lower bits are the *age*: how many freezes lie between the entry's last change and the
//! page's. An age of 127 stands for that or more, so an old change is taken for a younger one and
//! never the other way: it may be written once more than needed, and is never left out. The upper bit
//! says that the entry is *new*: it came in the page's last epoch and no view has seen it.
//!
//! The page's own epoch lies beside its pointer. When the page is changed for the first time in an
//! epoch, all ages grow at once; nothing is done for pages that aren't written to.

use super::page::TAGS;

const NEW: u8 = 0x80;
const OLDEST: u8 = 0x7F;

/// One byte for each entry of a page, in the order of the entries.
#[derive(Clone)]
pub(super) struct Stamps {
    first: [u8; TAGS],
    /// Those of entries from [`TAGS`] on.
    #[expect(clippy::box_collection, reason = "few pages have it: a pointer must do")]
    more: Option<Box<Vec<u8>>>,
}

impl Default for Stamps {
    fn default() -> Self {
        Self { first: [0; TAGS], more: None }
    }
}

impl Stamps {
    #[inline]
    fn get(&self, index: usize) -> u8 {
        match self.first.get(index) {
            Some(stamp) => *stamp,
            None => self.more.as_ref().and_then(|more| more.get(index - TAGS)).map_or(0, |of| *of),
        }
    }

    #[inline]
    pub(super) fn age(&self, index: usize) -> u32 {
        u32::from(self.get(index) & OLDEST)
    }

    pub(super) fn is_new(&self, index: usize) -> bool {
        self.get(index) & NEW != 0
    }

    /// The entry is changed now. A new one stays new.
    #[inline]
    pub(super) fn renew(&mut self, index: usize) {
        match self.first.get_mut(index) {
            Some(stamp) => *stamp &= NEW,
            None => self.renew_more(index),
        }
    }

    #[cold]
    fn renew_more(&mut self, index: usize) {
        if let Some(stamp) = self.more.as_mut().and_then(|more| more.get_mut(index - TAGS)) {
            *stamp &= NEW;
        }
    }

    /// The page comes to an epoch so many freezes later.
    pub(super) fn advance(&mut self, freezes: u32) {
        let freezes = u8::try_from(freezes).unwrap_or(OLDEST).min(OLDEST);
        let older = |stamp: &mut u8| *stamp = ((*stamp & OLDEST) + freezes).min(OLDEST);
        self.first.iter_mut().for_each(older);
        self.more.iter_mut().flat_map(|more| more.iter_mut()).for_each(older);
    }

    /// Puts one in; there were `count`.
    pub(super) fn insert(&mut self, index: usize, count: usize, age: u32, is_new: bool) {
        let age = u8::try_from(age).unwrap_or(OLDEST).min(OLDEST);
        let stamp = age | if is_new && age == 0 { NEW } else { 0 };
        if count >= TAGS {
            let [.., last] = self.first;
            let more = self.more.get_or_insert_default();
            if index < TAGS {
                more.insert(0, last);
            } else {
                more.insert(index - TAGS, stamp);
            }
        }
        if index < TAGS {
            self.first.copy_within(index..TAGS - 1, index + 1);
            if let Some(of) = self.first.get_mut(index) {
                *of = stamp;
            }
        }
    }

    /// Takes one out; `count` are left.
    pub(super) fn remove(&mut self, index: usize, count: usize) {
        if index >= TAGS {
            if let Some(more) = &mut self.more {
                more.remove(index - TAGS);
            }
        } else {
            self.first.copy_within(index + 1.., index);
            if count >= TAGS {
                let next = self.more.as_mut().map_or(0, |more| more.remove(0));
                let [.., last] = &mut self.first;
                *last = next;
            }
        }
        if count <= TAGS {
            self.more = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(prop::sample::Index, u32, bool),
        Remove(prop::sample::Index),
        Renew(prop::sample::Index),
        Advance(u32),
    }

    fn op() -> impl Strategy<Value = Op> {
        let index = any::<prop::sample::Index>;
        prop_oneof![
            4 => (index(), 0_u32..300, any::<bool>()).prop_map(|(at, age, new)| Op::Insert(at, age, new)),
            2 => index().prop_map(Op::Remove),
            2 => index().prop_map(Op::Renew),
            1 => (1_u32..200).prop_map(Op::Advance),
        ]
    }

    proptest! {
        #[test]
        fn stamps_follow_their_entries(ops in prop::collection::vec(op(), 0..200)) {
            let (mut stamps, mut model) = (Stamps::default(), Vec::<(u32, bool)>::new());
            for op in ops {
                match op {
                    Op::Insert(at, age, new) => {
                        let at = at.index(model.len() + 1);
                        stamps.insert(at, model.len(), age, new);
                        model.insert(at, (age.min(127), new && age == 0));
                    }
                    Op::Remove(at) if !model.is_empty() => {
                        let at = at.index(model.len());
                        model.remove(at);
                        stamps.remove(at, model.len());
                    }
                    Op::Renew(at) if !model.is_empty() => {
                        let at = at.index(model.len());
                        stamps.renew(at);
                        model[at].0 = 0;
                    }
                    Op::Advance(by) => {
                        stamps.advance(by);
                        model.iter_mut().for_each(|of| *of = ((of.0 + by).min(127), false));
                    }
                    Op::Remove(_) | Op::Renew(_) => {}
                }
                for (index, expected) in model.iter().enumerate() {
                    prop_assert_eq!((stamps.age(index), stamps.is_new(index)), *expected);
                }
            }
        }
    }
}
