//! Records made in the process: for benchmarks and tests.

use std::fmt;

use serde::{Deserialize, Serialize};
use strandline_runtime::source::{Read, Source, SplitReader};
use strandline_runtime::{Error, ErrorKind, Result};

/// Makes records by a function of split and index: the same ones each time it is read.
#[derive(Clone, Debug)]
pub struct Generator<F> {
    splits: u32,
    records_per_split: Option<u64>,
    make: F,
}

impl<F> Generator<F> {
    /// This many splits of this many records each, or endless ones.
    pub fn new<T>(splits: u32, records_per_split: Option<u64>, make: F) -> Self
    where
        F: Fn(u32, u64) -> T + Clone + Send + Sync + 'static,
    {
        Self { splits, records_per_split, make }
    }
}

/// The index of the record that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index(pub u64);

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}", self.0)
    }
}

impl<T, F> Source for Generator<F>
where
    T: Send + 'static,
    F: Fn(u32, u64) -> T + Clone + Send + Sync + 'static,
{
    type Record = T;
    type Position = Index;
    type Reader = GeneratorReader<F>;

    fn splits(&self) -> Result<Vec<String>> {
        Ok((0..self.splits).map(|split| format!("{split:05}")).collect())
    }

    fn open(&self, split: &str, position: Option<&Index>) -> Result<GeneratorReader<F>> {
        let number = split.parse().ok().filter(|number| *number < self.splits);
        let number = number.ok_or_else(|| {
            let text = format!("the generator has no split {split:?}: splits={}", self.splits);
            Error::new(ErrorKind::Source, text)
        })?;
        Ok(GeneratorReader {
            split: number,
            next: position.map_or(0, |position| position.0),
            end: self.records_per_split.unwrap_or(u64::MAX),
            make: self.make.clone(),
        })
    }
}

/// Makes the records of one split.
#[derive(Clone, Debug)]
pub struct GeneratorReader<F> {
    split: u32,
    next: u64,
    end: u64,
    make: F,
}

impl<T, F: Fn(u32, u64) -> T + Send> SplitReader for GeneratorReader<F> {
    type Record = T;
    type Position = Index;

    fn read(&mut self, max: usize, out: &mut Vec<T>) -> Result<Read> {
        let end = self.end.min(self.next.saturating_add(max as u64));
        out.extend((self.next..end).map(|index| (self.make)(self.split, index)));
        self.next = end;
        Ok(if end == self.end { Read::End } else { Read::More })
    }

    fn position(&self) -> Index {
        Index(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_where_it_stood() {
        let source = Generator::new(2, Some(5), |split, index| u64::from(split) * 10 + index);
        let mut out = Vec::new();
        let mut reader = source.open("00001", None).expect("it opens");
        assert_eq!(reader.read(3, &mut out).ok(), Some(Read::More));
        let mut reader = source.open("00001", Some(&reader.position())).expect("it opens");
        assert_eq!(reader.read(9, &mut out).ok(), Some(Read::End));
        assert_eq!(out, [10, 11, 12, 13, 14]);
    }
}
