//! What the fuzz targets share: how an input is read, a small real job, and what is done with it.

pub mod checkpoint;
pub mod index;
pub mod input;
pub mod records;
pub mod run;
pub mod world;
