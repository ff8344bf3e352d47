//! Fuzzes lines of a recording.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_agent::fuzz_checks::tick_line(bytes));
