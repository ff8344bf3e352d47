//! A call of any function that the host provides.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qosm_rego::fuzz_checks::call(text));
