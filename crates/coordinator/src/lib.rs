//! The round: a checkpoint coordinator as a pure state machine.
