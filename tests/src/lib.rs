//! What the tests of whole jobs share: building and running programs, killing them, reading what
//! they have committed, and seeds.

mod process;
mod results;
mod seed;

pub use process::{Ended, Program, Running, build, build_with, wait_until};
pub use results::{committed_lines, committed_parts, copy_folder, records_noted, repository};
pub use seed::Random;
