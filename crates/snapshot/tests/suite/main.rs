//! The store as a whole: random histories, cuts, damage, crashes.

mod chunks;
mod common;
mod crashes;
mod damage;
mod histories;
mod leaks;
mod merging;
mod owners;
mod repair;
