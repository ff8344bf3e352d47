//! A format, and on the second line its arguments.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qosm_rego::fuzz_checks::sprintf(text));
