//! Operators without state: map, filter, flat map, and the one that may refuse a record.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::operator::Operator;
use crate::{Error, ErrorKind, Result};

/// One record in, any number out.
pub(crate) struct FlatMap<T, U, F> {
    function: F,
    types: PhantomData<fn(T) -> U>,
}

impl<T, U, F> FlatMap<T, U, F> {
    pub(crate) fn new(function: F) -> Self {
        Self { function, types: PhantomData }
    }
}

impl<T, U, F> Operator for FlatMap<T, U, F>
where
    T: 'static,
    U: Send + 'static,
    F: FnMut(T, &mut Vec<U>) + Send,
{
    type In = T;
    type Out = U;

    fn batch(&mut self, batch: &mut Vec<T>, out: &mut Vec<U>) -> Result<()> {
        for record in batch.drain(..) {
            (self.function)(record, out);
        }
        Ok(())
    }
}

/// What becomes of a record that can't be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBadRecord {
    /// The job fails with the record's place in the input.
    Fail,
    /// It is logged, counted and left out.
    Skip,
}

/// Turns each record into another one, or refuses it with a reason.
pub(crate) struct TryMap<T, U, F> {
    function: F,
    policy: OnBadRecord,
    skipped: Arc<AtomicU64>,
    types: PhantomData<fn(T) -> U>,
}

impl<T, U, F> TryMap<T, U, F> {
    pub(crate) fn new(function: F, policy: OnBadRecord, skipped: Arc<AtomicU64>) -> Self {
        Self { function, policy, skipped, types: PhantomData }
    }

    fn refuse(&self, reason: &str) -> Result<()> {
        match self.policy {
            OnBadRecord::Fail => Err(Error::new(
                ErrorKind::Source,
                format!("{reason}; to leave such records out: skip bad records"),
            )),
            OnBadRecord::Skip => {
                // Relaxed: a count that is only read, with no other memory depending on it.
                self.skipped.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("bad record skipped: {reason}");
                Ok(())
            }
        }
    }
}

impl<T, U, F> Operator for TryMap<T, U, F>
where
    T: 'static,
    U: Send + 'static,
    F: FnMut(T) -> Result<U, String> + Send,
{
    type In = T;
    type Out = U;

    fn batch(&mut self, batch: &mut Vec<T>, out: &mut Vec<U>) -> Result<()> {
        for record in batch.drain(..) {
            match (self.function)(record) {
                Ok(value) => out.push(value),
                Err(reason) => self.refuse(&reason)?,
            }
        }
        Ok(())
    }
}
