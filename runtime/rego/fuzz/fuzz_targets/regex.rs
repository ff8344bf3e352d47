//! A regular expression, and on the second line a text.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qosm_rego::fuzz_checks::regex(text));
