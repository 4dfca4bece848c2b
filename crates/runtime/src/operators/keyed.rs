//! A function with one value of state per key.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use strandline_barrier::CheckpointId;
use strandline_state::{Table, keyed_plain};

use crate::Result;
use crate::checkpointing::{Restored, TaskSnapshot};
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
    table: Table<K, V>,
    function: F,
    types: PhantomData<fn(T) -> U>,
}

impl<K, T, V, U, F> WithState<K, T, V, U, F> {
    pub(crate) fn new(section: String, function: F) -> Self
    where
        K: Key,
        V: StateValue,
    {
        Self { section, table: Table::new(), function, types: PhantomData }
    }
}

impl<K, T, V, U, F> Operator for WithState<K, T, V, U, F>
where
    K: Key,
    T: 'static,
    V: StateValue + Default,
    U: Send + 'static,
    F: FnMut(&K, T, &mut V, &mut Vec<U>) + Send,
{
    type In = Keyed<K, T>;
    type Out = U;

    fn batch(&mut self, batch: &mut Vec<Keyed<K, T>>, out: &mut Vec<U>) -> Result<()> {
        for Keyed { hash, key, value } in batch.drain(..) {
            let state = self.table.get_or_insert_with(hash, &key, V::default);
            (self.function)(&key, value, state, out);
        }
        Ok(())
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let table = &mut self.table;
        restored.keyed(&self.section, |hash, key: K, (): (), value: V| {
            table.insert(hash, key, value);
        })
    }

    fn freeze(&mut self, _id: CheckpointId, snapshot: &mut TaskSnapshot) -> Result<()> {
        snapshot.section(&self.section, keyed_plain(self.table.freeze()));
        Ok(())
    }
}
