//! A function with one value of state per key.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use strandline_barrier::Barrier;
use strandline_state::{KeyHash, keyed_plain};

use crate::Result;
use crate::checkpointing::{Restored, TaskSnapshot, Tracked};
use crate::operator::Operator;
use crate::operators::exchange::{Exchanged, Keyed};

/// What must hold of a value kept in keyed state.
pub trait StateValue: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {}

impl<V: Serialize + DeserializeOwned + Clone + Send + Sync + 'static> StateValue for V {}

/// What must hold of a key.
pub trait Key: Exchanged + Clone + Eq + Sync {}

impl<K: Exchanged + Clone + Eq + Sync> Key for K {}

/// Calls a function with each record and the value kept for its key.
pub(crate) struct WithState<K, T, V, U, F> {
    section: String,
    state: Tracked<K, V>,
    /// The keys of a batch, and what comes with them.
    hashes: Vec<KeyHash>,
    keys: Vec<K>,
    records: Vec<Option<T>>,
    function: F,
    types: PhantomData<fn(T) -> U>,
}

impl<K, T, V, U, F> WithState<K, T, V, U, F> {
    pub(crate) fn new(section: String, function: F) -> Self
    where
        K: Key,
        V: StateValue,
    {
        let (hashes, keys, records) = (Vec::new(), Vec::new(), Vec::new());
        Self { section, state: Tracked::new(), hashes, keys, records, function, types: PhantomData }
    }
}

impl<K, T, V, U, F> Operator for WithState<K, T, V, U, F>
where
    K: Key,
    T: Send + 'static,
    V: StateValue + Default,
    U: Send + 'static,
    F: FnMut(&K, T, &mut V, &mut Vec<U>) + Send,
{
    type In = Keyed<K, T>;
    type Out = U;

    fn batch(&mut self, batch: &mut Vec<Keyed<K, T>>, out: &mut Vec<U>) -> Result<()> {
        let Self { state, hashes, keys, records, function, .. } = self;
        for Keyed { hash, key, value } in batch.drain(..) {
            hashes.push(hash);
            keys.push(key);
            records.push(Some(value));
        }
        state.table.update_batch(
            hashes,
            keys,
            |_| V::default(),
            |index, value| {
                let record = records.get_mut(index).and_then(Option::take);
                if let (Some(key), Some(record)) = (keys.get(index), record) {
                    function(key, record, value, out);
                }
            },
        );
        hashes.clear();
        keys.clear();
        records.clear();
        Ok(())
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.state.restored(restored);
        let table = &mut self.state.table;
        restored.keyed(&self.section, |hash, key: K, (): (), value: V| {
            table.restore(hash, key, value);
        })
    }

    fn freeze(&mut self, barrier: &Barrier, snapshot: &mut TaskSnapshot) -> Result<()> {
        self.state.freeze(barrier, &self.section, snapshot, keyed_plain);
        Ok(())
    }
}
