//! See [`strandline_fuzz::checkpoint`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strandline_fuzz::checkpoint::try_input(bytes));
