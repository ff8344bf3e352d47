//! `/proc/self/mountinfo`, and the hierarchies in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_host::fuzz_checks::mountinfo(bytes));
