//! The index of a layout.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_registry_fuzz::index(bytes));
