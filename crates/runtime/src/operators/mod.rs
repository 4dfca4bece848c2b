//! The operators that a stream offers, one file each.

pub(crate) mod basic;
pub(crate) mod exchange;
pub(crate) mod keyed;
pub(crate) mod sink;
pub(crate) mod timestamps;
pub(crate) mod window;
