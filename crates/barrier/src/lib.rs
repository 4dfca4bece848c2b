//! The cut: barriers that travel with the records, and their alignment.

mod id;

pub use id::CheckpointId;
