//! The store as a whole: random histories, cuts, damage, crashes.

mod chunks;
mod common;
mod corners;
mod crashes;
mod damage;
mod flaky;
mod golden;
mod histories;
mod leaks;
mod limits;
mod local_cache;
mod merging;
mod owners;
mod repair;
