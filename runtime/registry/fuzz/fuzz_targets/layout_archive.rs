//! Archives of layouts, as used for air-gapped nodes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_registry_fuzz::layout_archive(bytes));
