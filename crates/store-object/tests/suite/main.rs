//! The store over a service in memory that fails as real ones do.

mod faults;
mod faulty;
mod model;
