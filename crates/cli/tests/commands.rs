//! The command as a process: what it prints, and how it ends.

#[path = "suite/collect.rs"]
mod collect;
#[path = "suite/export.rs"]
mod export;
#[path = "suite/fixture.rs"]
mod fixture;
#[path = "suite/look.rs"]
mod look;
#[path = "suite/slow.rs"]
mod slow;
