//! Archives of layouts, as they are carried to where no network goes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qosm_registry_fuzz::layout_archive(bytes));
