//! The id of a job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Names one job for ever: 32 lower-case hex digits. It is the folder of everything the job keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId([u8; 16]);

impl JobId {
    /// The id that a job of this name has unless it was given another: the first 16 bytes of the
    /// BLAKE3 hash of `strandline job`, a zero byte, and the name.
    #[must_use]
    pub fn for_name(name: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"strandline job\0");
        hasher.update(name.as_bytes());
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        Self(id)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

impl FromStr for JobId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid(format!("a job id has 32 hex digits 0-9a-f: {text:?}"));
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return Err(wrong());
        }
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return Err(wrong()) };
            *byte = (hex(*high).ok_or_else(wrong)? << 4) | hex(*low).ok_or_else(wrong)?;
        }
        Ok(Self(id))
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl TryFrom<String> for JobId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_name_is_the_same_for_ever() {
        assert_eq!(JobId::for_name("wordcount").to_string().len(), 32);
        assert_eq!(JobId::for_name("wordcount"), JobId::for_name("wordcount"));
        assert_ne!(JobId::for_name("wordcount"), JobId::for_name("wordcount "));
    }

    #[test]
    fn reads_what_it_writes_and_nothing_else() {
        let id = JobId::for_name("flights");
        assert_eq!(id.to_string().parse::<JobId>().ok(), Some(id));
        for bad in ["", "ab", &"g".repeat(32), &"A".repeat(32), &"0".repeat(33), &"é".repeat(16)] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }
}
