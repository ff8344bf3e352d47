//! Lines of a replay.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_agent::oracle::tick_line(bytes));
