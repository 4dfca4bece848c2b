//! The task at the head of a job: reads splits in turn through a chain, and injects barriers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use strandline_barrier::Barrier;
use strandline_state::Entries;

use crate::Result;
use crate::checkpointing::{Restored, SplitProgress, TaskSnapshot, decode_value, encode_value};
use crate::graph::Share;
use crate::link::Signal;
use crate::pace::Pace;
use crate::source::{Read, Source, SplitReader};
use crate::task::{Asked, Chain, Report, Step, Task};

/// Records that a source hands on at a time, at most.
const BATCH_RECORDS: usize = 1024;

/// Reads its share of a source's splits.
pub(crate) struct SourceTask<S: Source> {
    uid: String,
    source: Arc<S>,
    chain: Chain<S::Record>,
    splits: Vec<Split<S>>,
    /// Entries of splits that are not in the input any more (all have ended). One subtask carries
    /// them on, so that a split that comes back is not read again.
    absent: Absent,
    /// The split to read next: they take turns.
    turn: usize,
    /// A job on its way out reads nothing more.
    held: bool,
    pace: Option<Arc<Pace>>,
    batch: Vec<S::Record>,
}

/// What became of splits that are not in the input.
struct Absent {
    /// All splits of the input, for the subtask that carries the others.
    present: Option<Vec<String>>,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One split of this subtask.
struct Split<S: Source> {
    name: String,
    at: At<S::Position>,
    reader: Option<S::Reader>,
    /// Nothing comes before this time.
    wait: Option<Duration>,
}

/// What a checkpoint keeps of a split.
#[derive(Clone, Serialize, Deserialize)]
struct At<P> {
    position: Option<P>,
    records: u64,
    ended: bool,
}

/// What a turn of reading came to.
enum Turn {
    Did,
    Wait(Option<Duration>),
    AllEnded,
}

impl<S: Source> SourceTask<S> {
    pub(crate) fn new(
        uid: &str,
        source: Arc<S>,
        share: Share,
        chain: Chain<S::Record>,
        pace: Option<Arc<Pace>>,
    ) -> Self {
        let split = |name| Split {
            name,
            at: At { position: None, records: 0, ended: false },
            reader: None,
            wait: None,
        };
        let splits = share.own.into_iter().map(split).collect();
        let absent = Absent { present: share.present, entries: Vec::new() };
        let batch = Vec::with_capacity(BATCH_RECORDS);
        Self {
            uid: uid.to_owned(),
            source,
            chain,
            splits,
            absent,
            turn: 0,
            held: false,
            pace,
            batch,
        }
    }

    fn section(&self) -> String {
        format!("{}/splits", self.uid)
    }

    fn freeze(&mut self, barrier: Barrier) -> Result<bool> {
        let mut snapshot = TaskSnapshot::default();
        let mut entries = Vec::with_capacity(self.splits.len());
        for split in &self.splits {
            entries.push((split.name.clone().into_bytes(), encode_value(&split.at)?));
            snapshot.splits.push(split.progress(&self.uid));
        }
        for (name, at) in &self.absent.entries {
            snapshot.splits.push(absent_progress(&self.uid, name, decode_value(at)?));
            entries.push((name.clone(), at.clone()));
        }
        snapshot.section(&self.section(), entries.into_iter().collect::<Entries>());
        self.chain.freeze(barrier, snapshot)
    }

    fn commands(&mut self) -> Result<Option<Step>> {
        let mut frozen = None;
        while let Some(asked) = self.chain.command()? {
            match asked {
                Asked::Done => {}
                Asked::Freeze { barrier, hold } => {
                    frozen = self.freeze(barrier)?.then_some(Step::Frozen).or(frozen);
                    self.held |= hold;
                }
                Asked::Exit => return Ok(Some(Step::Exit)),
            }
        }
        Ok(frozen)
    }

    /// Reads from the next split that has something.
    fn read(&mut self, now: Duration) -> Result<Turn> {
        let Some(index) = self.next_split(now) else {
            let open = self.splits.iter().filter(|split| !split.at.ended);
            let mut waits = open.map(|split| split.wait).peekable();
            if waits.peek().is_none() {
                return Ok(Turn::AllEnded);
            }
            return Ok(Turn::Wait(waits.flatten().min()));
        };
        let max = match &self.pace {
            None => BATCH_RECORDS,
            Some(pace) => match pace.permits(now, BATCH_RECORDS) {
                Ok(permits) => permits,
                Err(until) => return Ok(Turn::Wait(Some(until))),
            },
        };
        self.read_split(index, max, now)?;
        Ok(Turn::Did)
    }

    fn next_split(&mut self, now: Duration) -> Option<usize> {
        let count = self.splits.len();
        let ready = |split: &Split<S>| !split.at.ended && split.wait.is_none_or(|wait| wait <= now);
        let index = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|&index| self.splits.get(index).is_some_and(ready))?;
        self.turn = (index + 1) % count;
        Some(index)
    }

    fn read_split(&mut self, index: usize, max: usize, now: Duration) -> Result<()> {
        let Some(split) = self.splits.get_mut(index) else {
            return Ok(());
        };
        let read = split.read(&self.source, max, &mut self.batch)?;
        split.wait = match read {
            Read::Wait(time) => Some(now.saturating_add(time)),
            Read::More | Read::End => None,
        };
        split.at.records += self.batch.len() as u64;
        split.at.ended = read == Read::End;
        if let Some(pace) = &self.pace {
            pace.give_back(max - self.batch.len());
        }
        if !self.batch.is_empty() {
            self.chain.head.signal(&mut Signal::Split(index))?;
            self.chain.batch(&mut self.batch)?;
        }
        if read == Read::End {
            self.chain.head.signal(&mut Signal::SplitEnd(index))?;
        }
        Ok(())
    }
}

impl Absent {
    /// Whether this subtask carries the entry of a split on.
    fn carries(&self, name: &[u8]) -> bool {
        let present = self.present.as_ref();
        present.is_some_and(|present| !present.iter().any(|split| split.as_bytes() == name))
    }
}

fn absent_progress(uid: &str, name: &[u8], at: At<IgnoredAny>) -> SplitProgress {
    SplitProgress {
        source: uid.to_owned(),
        split: String::from_utf8_lossy(name).into_owned(),
        position: "no longer in the input".to_owned(),
        records: at.records,
        ended: at.ended,
    }
}

impl<S: Source> Split<S> {
    fn read(&mut self, source: &S, max: usize, out: &mut Vec<S::Record>) -> Result<Read> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => self.reader.insert(source.open(&self.name, self.at.position.as_ref())?),
        };
        let read = reader.read(max, out)?;
        self.at.position = Some(reader.position());
        if read == Read::End {
            self.reader = None;
        }
        Ok(read)
    }

    fn progress(&self, uid: &str) -> SplitProgress {
        let position =
            self.at.position.as_ref().map_or_else(|| "start".to_owned(), ToString::to_string);
        SplitProgress {
            source: uid.to_owned(),
            split: self.name.clone(),
            position,
            records: self.at.records,
            ended: self.at.ended,
        }
    }
}

impl<S: Source> Task for SourceTask<S> {
    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.chain.head.signal(&mut Signal::Restore(restored))?;
        let splits = &mut self.splits;
        let absent = &mut self.absent;
        let mut records = 0;
        restored.entries(&format!("{}/splits", self.uid), |name, value| {
            if let Some(split) = splits.iter_mut().find(|split| split.name.as_bytes() == name) {
                split.at = decode_value(value)?;
                records += split.at.records;
            } else if absent.carries(name) {
                let at: At<S::Position> = decode_value(value)?;
                records += at.records;
                absent.entries.push((name.to_vec(), value.to_vec()));
            }
            Ok(())
        })?;
        // Relaxed: counts that are only read, with no other memory depending on them.
        self.chain.counters.records.store(records, Ordering::Relaxed);
        self.chain.counters.restored_records.store(records, Ordering::Relaxed);
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let names: Vec<String> = self.splits.iter().map(|split| split.name.clone()).collect();
        self.chain.head.signal(&mut Signal::Splits(&names))?;
        for (index, split) in self.splits.iter().enumerate() {
            if split.at.ended {
                self.chain.head.signal(&mut Signal::SplitEnd(index))?;
            }
        }
        self.chain.line.report(Report::Running);
        Ok(())
    }

    fn step(&mut self, now: Duration) -> Result<Step> {
        if let Some(step) = self.commands()? {
            return Ok(step);
        }
        if !self.chain.has_room()? || self.chain.ended || self.held {
            return Ok(Step::Blocked(None));
        }
        match self.read(now)? {
            Turn::Did => Ok(Step::Progress),
            Turn::Wait(until) => Ok(Step::Blocked(until)),
            Turn::AllEnded => {
                self.chain.end()?;
                Ok(Step::Progress)
            }
        }
    }
}
