//! What tells one owner's bytes from those of anybody else.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hash::Blob;

/// 16 bytes that nobody else has. Two writers who want to create the same object with otherwise
/// equal bytes can tell whose it has become.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// A new one, from the randomness that the standard library seeds its maps with.
    #[must_use]
    pub fn random() -> Self {
        let half = |salt: u8| RandomState::new().hash_one(salt).to_le_bytes();
        let mut nonce = [0; 16];
        let halves = half(0).into_iter().chain(half(1));
        nonce.iter_mut().zip(halves).for_each(|(to, from)| *to = from);
        Self(nonce)
    }
}

/// As 32 hex digits.
impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({self})")
    }
}

impl Serialize for Nonce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Nonce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Blob::deserialize(deserializer)?;
        let nonce = bytes.0.try_into();
        nonce.map(Self).map_err(|_| serde::de::Error::custom("a nonce has 16 bytes"))
    }
}
