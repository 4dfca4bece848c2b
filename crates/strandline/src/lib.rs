//! Checkpointing for stateful stream processing: exactly-once jobs inside your own program.
