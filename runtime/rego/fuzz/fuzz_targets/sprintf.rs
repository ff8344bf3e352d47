//! A format, and its arguments on the second line.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qosm_rego::fuzz_checks::sprintf(text));
