//! A module's binary, before it is compiled.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_engine::fuzz_checks::inspection(bytes));
