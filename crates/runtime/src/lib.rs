//! The job: a streaming runtime of step functions, checkpointed.
