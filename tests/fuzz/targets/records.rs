//! See [`strandline_fuzz::records`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| strandline_fuzz::records::try_input(bytes));
