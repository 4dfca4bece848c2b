//! See [`strandline_fuzz::run`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strandline_fuzz::run::try_input(bytes));
