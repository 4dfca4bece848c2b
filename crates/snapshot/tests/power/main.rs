//! Power loss and failing disks under the local store: a simulated disk that forgets whatever was
//! not synced, that fails at one sync, that is full. And maps of files.

mod crashes;
mod disk;
mod faults;
mod image;
mod mapped;
mod order;
mod random;
mod world;
