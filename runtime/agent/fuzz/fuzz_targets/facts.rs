//! Fuzzes documents of facts, and the simulated node that is set up from them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_agent::fuzz_checks::facts(bytes));
