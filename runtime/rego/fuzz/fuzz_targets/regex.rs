//! A regular expression, and a text on the second line.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qosm_rego::fuzz_checks::regex(text));
