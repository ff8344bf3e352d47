//! `*.pressure`: stall totals.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_host::fuzz_checks::pressure(bytes));
