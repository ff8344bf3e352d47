//! Documents of facts, and the stage that is set from them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_agent::fuzz_checks::facts(bytes));
