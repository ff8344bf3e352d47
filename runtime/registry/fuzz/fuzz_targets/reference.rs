//! References, and the names of layouts.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qosm_registry_fuzz::reference(text));
